// Package service tests the built program as a service of its host: its files,
// its secrets, what it tells the service manager, and what its programs get.
package service
