package node

import (
	"context"
	"errors"
	"fmt"
	"os"

	"fencepost/edge"
	"fencepost/edge/api"
)

// door is a node as the api sees it: what changes something goes through the
// engine, what only reads through the store.
type door struct {
	*edge.Engine
	edge.Reader
	n *Node
}

var _ api.Node = door{}

func (n *Node) door() door { return door{Engine: n.engine, Reader: n.store, n: n} }

func (d door) Names() edge.Names  { return d.n.store.Names() }
func (d door) Clock() *edge.Clock { return d.n.store.Clock() }

func (d door) ConfirmClock(context.Context) error {
	d.Engine.ConfirmClock()
	return nil
}

// Reload puts the node's file in force; see [Node.Reload].
func (d door) Hold() *edge.Loss { return d.n.store.Hold() }

// Losses, AcceptLoss, Resume and Backup are the store's own; what a person does is
// logged.
func (d door) Losses(ctx context.Context, limit int) ([]edge.Loss, error) {
	return d.n.store.Losses(ctx, limit)
}

func (d door) AcceptLoss(ctx context.Context, by edge.Decided) (edge.Loss, error) {
	l, err := d.n.store.AcceptLoss(ctx, by)
	if err == nil {
		d.n.log.Warn("loss accepted", "by", by.By, "reason", by.Reason, "detail", l.Detail)
	}
	return l, err
}

func (d door) Resume(ctx context.Context, by edge.Decided) (edge.Loss, error) {
	l, err := d.n.store.Resume(ctx, by)
	if err == nil {
		d.n.log.Warn("hold ended: deliveries are dispatched again", "by", by.By, "reason", by.Reason)
	}
	return l, err
}

func (d door) Backup(ctx context.Context, path string) (edge.BackupReport, error) {
	b, err := d.n.store.Backup(ctx, path)
	if err != nil {
		d.n.log.Warn("backup failed", "path", path, "err", err)
		return b, err
	}
	d.n.log.Info("backup made", "path", path, "bytes", b.Bytes, "commit", b.Commit, "took_ms", b.TookMS)
	return b, nil
}

func (d door) Reload(ctx context.Context) (api.Reloaded, error) { return d.n.Reload(ctx) }

// Facts adds to the facts of the store what only the router and the engine know.
func (d door) Facts(ctx context.Context, id edge.DeliveryID) (edge.Facts, error) {
	f, err := d.Reader.Facts(ctx, id)
	if err == nil && f.Delivery.Code == edge.CodeRouteError {
		f.Fault = d.RouteFault(ctx, &f.Delivery)
	}
	if err == nil {
		f.Uplink, _ = d.UplinkOf(f.Delivery.Target.Handler)
	}
	return f, err
}

// Probe reads from the database, and goes through the writer with a step that
// finds nothing to do: a locked file or a stuck disk shows in either.
func (d door) Probe(ctx context.Context) error {
	if _, err := d.n.store.Counters(ctx); err != nil {
		return fmt.Errorf("probe, reading: %w", err)
	}
	if _, err := d.n.store.Prune(ctx, edge.PrunePolicy{Limit: 1}); err != nil && !errors.Is(err, edge.ErrLowSpace) { // low space is a state, and not a fault
		return fmt.Errorf("probe, writing: %w", err)
	}
	return nil
}

func (d door) Status() api.Status {
	n, now := d.n, d.n.engine.Status()
	s := api.Status{
		Node: n.store.Node(), Owner: n.store.Owner(), PID: os.Getpid(), Version: n.o.Version,
		Database: n.c.Node.Data, Durability: string(n.c.Node.Durability), Listen: n.Addr(),
		StartedAt: api.Stamp(n.since), Now: api.Stamp(n.store.Clock().NowMS()), Ready: true,
		Live: now.Live, Held: now.Held, Stubborn: now.Stubborn, Doubted: now.Doubted,
	}
	if l := d.Hold(); l != nil {
		loss := api.LossOf(*l)
		s.Hold = &loss
	}
	s.LastEnd, s.Recovery = n.store.LastEnd(), api.RecoveryOf(now.Recovery)
	s.Storage = api.StorageOf(n.store.Storage())
	for _, u := range n.engine.Uplinks() {
		s.Uplinks = append(s.Uplinks, api.Uplink{Name: u.Name, DownSince: api.Stamp(u.DownMS), Detail: u.Detail})
	}
	if err := n.engine.Ready(); err != nil {
		s.Ready, s.NotReady = false, err.Error()
	}
	return s
}
