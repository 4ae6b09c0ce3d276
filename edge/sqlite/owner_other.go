//go:build !unix

package sqlite

import "os"

func ownership(os.FileInfo) (uid uint32, links uint64, ok bool) { return 0, 0, false }

func umask077() func() { return func() {} }
