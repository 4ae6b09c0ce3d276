//go:build !linux

package bench

import (
	"os"
	"time"
)

func datasync(f *os.File) error { return f.Sync() }

func flushes(string) (int64, bool) { return 0, false }

func cpuTime() time.Duration { return 0 }

func peakRSS() int64 { return 0 }

func rssOf(int) int64 { return 0 }

func freeBytes(string) (int64, bool) { return 0, false }
