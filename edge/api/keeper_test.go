package api_test

import (
	"context"
	"fmt"
	"testing"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/stretchr/testify/require"
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

// TestLocal_ABackupWithoutSpaceNamesItsDisk: it is not the node's disk that is full.
func TestLocal_ABackupWithoutSpaceNamesItsDisk(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.err = fmt.Errorf("%w: 5 MiB are free in /mnt/usb, and 28 MiB are needed", edge.ErrLowSpace)
	_, err := dial(t, serveLocal(t, n)).Backup(t.Context(), "/mnt/usb/copy")
	require.Equal(t, api.CodeLowSpace, api.ClassOf(err).Code)
	require.ErrorContains(t, err, "5 MiB are free in /mnt/usb")
}
