// Package layering holds the tests of how the program is built: which package
// imports which, and which calls have one place. It has no code of its own.
package layering
