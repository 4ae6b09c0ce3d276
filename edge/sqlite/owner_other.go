//go:build !unix

package sqlite

import "os"

const keepsModes = false

func ownership(os.FileInfo) (uid uint32, links uint64, ok bool) { return 0, 0, false }

func umask077() func() { return func() {} }

const noFollow = 0

func inodeOf(os.FileInfo) (ino, dev uint64) { return 0, 0 }
