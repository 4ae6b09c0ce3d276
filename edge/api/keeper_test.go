package api_test

import (
	"context"

	"fencepost/edge"
)

// keeper is the database as a whole, for the fake node.
type keeper struct {
	hold   *edge.Loss
	losses []edge.Loss
	by     edge.Decided
	copied string
	err    error
}

func (k *keeper) Hold() *edge.Loss { return k.hold }

func (k *keeper) Losses(context.Context, int) ([]edge.Loss, error) { return k.losses, k.err }

func (k *keeper) AcceptLoss(_ context.Context, d edge.Decided) (edge.Loss, error) {
	k.by = d
	return edge.Loss{ID: 7, AcceptedBy: d.By, Hold: true}, k.err
}

func (k *keeper) Resume(_ context.Context, d edge.Decided) (edge.Loss, error) {
	k.by = d
	return edge.Loss{ID: 7, ResumedBy: d.By}, k.err
}

func (k *keeper) Backup(_ context.Context, path string) (edge.BackupReport, error) {
	k.copied = path
	return edge.BackupReport{Path: path, Bytes: 5, Commit: 9}, k.err
}
