//go:build !linux

package service

import "os"

// ToJournal is false: there is no journal here.
func ToJournal(*os.File) bool { return false }
