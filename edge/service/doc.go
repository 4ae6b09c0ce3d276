// Package service is what makes a node a good service of its host: it tells the
// service manager how things are (sd_notify(3)), writes its log as the journal
// wants it, keeps the memory of the process to itself, and lays itself down as a
// service (user, directories, unit, configuration).
package service
