//go:build !unix

package handlers

import (
	"io/fs"
	"os"
)

const openFlags = os.O_RDONLY

func privateSecret(fs.FileInfo, bool) error { return nil }
