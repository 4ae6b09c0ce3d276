//go:build !linux

package node

// clockSynced is not known here: only an operator ends a doubt.
func clockSynced() bool { return false }
