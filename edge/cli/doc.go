// Package cli is the command line: one file per command. Commands that look at or
// change a running node talk to its socket, and take everything else from the
// configuration file.
//
// Output rules: results go to standard output, errors and the log of serve to
// standard error. Tables have times in the zone of the host and ids as bare
// numbers, which every command takes; with --json the output is the JSON of the
// API, with times in UTC and public ids. Control characters of events and errors
// are escaped. An error says what to do next. The exit codes are those of
// [fencepost/edge/api.Classes].
package cli
