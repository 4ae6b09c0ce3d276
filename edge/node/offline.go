package node

import (
	"context"
	"fmt"
	"net/http"

	"fencepost/edge"
	"fencepost/edge/api"
	"fencepost/edge/config"
	"fencepost/edge/sqlite"
)

// Offline answers the questions of the command line from a database that no node
// works on. What would change something is refused.
type Offline struct {
	edge.Reader
	file  *sqlite.ReadOnly
	c     config.Config
	clock *edge.Clock
}

var _ api.Node = (*Offline)(nil)

// OpenOffline opens the database of a configuration for reading; see
// [sqlite.OpenReadOnly] for its errors.
func OpenOffline(ctx context.Context, c config.Config) (*Offline, error) {
	clock := edge.NewClock(nil)
	file, err := sqlite.OpenReadOnly(ctx, c.Node.Data, clock)
	if err != nil {
		return nil, err
	}
	return &Offline{Reader: file, file: file, c: c, clock: clock}, nil
}

// Handler answers as the socket of a node does.
func (o *Offline) Handler() http.Handler { return api.NewLocalHandler(o, api.LocalOptions{}) }

// Close gives the database free.
func (o *Offline) Close() error { return o.file.Close() }

// Node is the id of the database.
func (o *Offline) Node() string { return o.file.Node() }

// Names are the ids of the database, present and former.
func (o *Offline) Names() edge.Names { return o.file.Names() }

// Clock is the clock of the host.
func (o *Offline) Clock() *edge.Clock { return o.clock }

// Ready is never nil.
func (o *Offline) Ready() error { return o.refuse() }

// Probe reads from the database.
func (o *Offline) Probe(ctx context.Context) error {
	_, err := o.Counters(ctx)
	return err
}

// Status tells of the file alone.
func (o *Offline) Status() api.Status {
	s := api.Status{
		Node: o.Node(), Database: o.c.Node.Data, Durability: string(o.c.Node.Durability), Now: api.Stamp(o.clock.NowMS()),
		NotReady: "no node is running: this is read from the file",
	}
	if l := o.Hold(); l != nil {
		loss := api.LossOf(*l)
		s.Hold = &loss
	}
	return s
}

func (o *Offline) refuse() error {
	return fmt.Errorf("%w: the database is open for reading alone: start a node with fencepost serve, and leave --offline out", edge.ErrConflict)
}

// Hold is the loss that holds the dispatch; nil when nothing does.
func (o *Offline) Hold() *edge.Loss { return o.file.Hold() }

// Losses lists the latest losses.
func (o *Offline) Losses(ctx context.Context, limit int) ([]edge.Loss, error) {
	return o.file.Losses(ctx, limit)
}

func (o *Offline) AcceptLoss(context.Context, edge.Decided) (l edge.Loss, err error) {
	return l, o.refuse()
}
func (o *Offline) Resume(context.Context, edge.Decided) (l edge.Loss, err error) {
	return l, o.refuse()
}
func (o *Offline) Backup(context.Context, string) (b edge.BackupReport, err error) {
	return b, o.refuse()
}
func (o *Offline) ConfirmClock(context.Context) error                 { return o.refuse() }
func (o *Offline) Reload(context.Context) (r api.Reloaded, err error) { return r, o.refuse() }
func (o *Offline) EnqueueBatch(context.Context, []edge.Event) ([]edge.Accepted, error) {
	return nil, o.refuse()
}
func (o *Offline) EnqueueOnce(context.Context, edge.RequestKey, []edge.Event) (k edge.Kept, err error) {
	return k, o.refuse()
}
func (o *Offline) Cancel(context.Context, edge.DeliveryID) (d edge.Delivery, err error) {
	return d, o.refuse()
}
func (o *Offline) Resolve(context.Context, edge.Resolution) (d edge.Delivery, err error) {
	return d, o.refuse()
}
func (o *Offline) Redrive(context.Context, edge.Redrive) (d edge.Delivery, err error) {
	return d, o.refuse()
}
func (o *Offline) RetryNow(context.Context, edge.DeliveryID) (d edge.Delivery, err error) {
	return d, o.refuse()
}
func (o *Offline) Bulk(context.Context, edge.Bulk) ([]edge.BulkResult, error) { return nil, o.refuse() }
func (o *Offline) ResumeTarget(context.Context, edge.Target) (t edge.TargetInfo, err error) {
	return t, o.refuse()
}
func (o *Offline) SkipTarget(context.Context, edge.Target, int64, string, string) (t edge.TargetInfo, err error) {
	return t, o.refuse()
}
func (o *Offline) SetGate(context.Context, string, edge.Gate, string, int64) (h edge.HandlerInfo, err error) {
	return h, o.refuse()
}

// Subscribe is for changes, of which there are none.
func (o *Offline) Subscribe(uint64) *edge.Subscription { return edge.ClosedSubscription() }
