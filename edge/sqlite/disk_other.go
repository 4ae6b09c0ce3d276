//go:build !linux

package sqlite

// lookAt knows nothing of disks here: a full one shows when a commit fails.
func lookAt(string) (disk, error) { return disk{free: -1}, nil }

func sameDisk(string, string) bool { return false }
