//go:build !linux

package command

import "context"

// KillOwner does nothing and returns 0 on this system: it has no way to find the
// processes of an owner. See the documentation for Linux.
func KillOwner(context.Context, string) (killed int, err error) { return 0, nil }

func killMarked(context.Context, []string, uint64) (int, error) { return 0, nil }

func startTime(int) uint64 { return 0 }
