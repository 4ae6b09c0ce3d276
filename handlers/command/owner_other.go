//go:build !linux

package command

import "context"

// KillOwner does nothing and returns 0 on this system: it has no way to find the
// processes of an owner. See the documentation for Linux.
func KillOwner(context.Context, string) (killed int, err error) { return 0, nil }

// AdoptOrphans does nothing on this system.
func AdoptOrphans() error { return nil }

// programs notes nothing: there is nobody to adopt.
var programs register

type register struct{}

func (register) start(begin func() (int, uint64, error)) error {
	_, _, err := begin()
	return err
}

func (register) ended(int, uint64) {}

func killMarked(context.Context, []string, uint64) (int, error) { return 0, nil }

func startTime(int) uint64 { return 0 }
