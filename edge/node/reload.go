package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"sync/atomic"

	"fencepost/edge"
	"fencepost/edge/api"
	"fencepost/edge/config"
)

// conf is the configuration in force. What only a restart changes is the same as
// in n.c, with which the node was made.
func (n *Node) conf() *config.Config { return n.current.Load() }

// switchable is an HTTP handler that can be replaced while it serves.
type switchable struct{ to atomic.Pointer[http.Handler] }

func (s *switchable) set(h http.Handler) { s.to.Store(&h) }

// ServeHTTP serves a request wholly by one handler.
func (s *switchable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*s.to.Load()).ServeHTTP(w, r)
}

// Reload reads the node's file again and puts it in force while the node works:
// whole or not at all. It says what changed. On an error nothing has changed and
// the node goes on as before; the error says everything that is wrong, is logged
// too, and wraps [edge.ErrInvalid] when the file is to blame: a fault in it, or a
// changed key that needs a restart.
//
// Events that are accepted meanwhile are routed wholly by the old or wholly by
// the new routes, and none is lost. When each key takes effect is in
// docs/configuration.md; see also [edge.Engine.Reload].
func (n *Node) Reload(ctx context.Context) (api.Reloaded, error) {
	select {
	case n.reloading <- struct{}{}:
	case <-ctx.Done():
		return api.Reloaded{}, context.Cause(ctx)
	}
	defer func() { <-n.reloading }()
	tell := n.tellReload()
	changes, err := n.reload(ctx)
	tell(err)
	if err != nil {
		return api.Reloaded{}, n.refused(err)
	}
	answer := api.Reloaded{File: n.conf().File, Changes: []api.ConfigChange{}}
	for _, c := range changes {
		answer.Changes = append(answer.Changes, api.ConfigChange{Key: c.Key, What: c.What, TakesEffect: string(c.When)})
	}
	n.logReloaded(changes)
	n.warn()
	return answer, nil
}

// tellReload tells the service manager that a reload has begun, and returns what
// tells of its end. Before the start is done nothing is told: the end of a reload
// looks like that of the start.
func (n *Node) tellReload() (ended func(error)) {
	select {
	case <-n.engine.Started():
	default:
		return func(error) {}
	}
	n.o.Notify.Reloading()
	return func(err error) {
		if err != nil {
			n.o.Notify.Ready("reload refused, the configuration stays as it was: the log says why")
			return
		}
		n.o.Notify.Ready(n.statusLine())
	}
}

func (n *Node) reload(ctx context.Context) ([]config.Change, error) {
	old := n.conf()
	if old.File == "" {
		return nil, fmt.Errorf("%w: the node was not made from a file", edge.ErrInvalid)
	}
	c, src, err := config.Read(old.File, Addresses)
	if err != nil {
		return nil, unreadable(err)
	}
	if src.Empty() && len(old.Handlers)+len(old.Routes) > 0 {
		// As a start it is valid. Here it is most likely a file that is being
		// written, or was cut off: it would take all routes away.
		return nil, src.Finish([]config.Fault{src.Fault("", "the file is empty", "to reload without handlers and routes, write at least one key, such as [node]")})
	}
	changes := config.Changes(old, c)
	if err := needRestart(src, changes); err != nil {
		return nil, err
	}
	next, err := n.prepare(c)
	if err != nil {
		return nil, err
	}
	if err := n.install(ctx, old, next); err != nil {
		return nil, err
	}
	n.apply(next)
	return changes, nil
}

// unreadable makes a file that cannot be read a fault of the file.
func unreadable(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("%w: %w", edge.ErrInvalid, err)
	}
	return err
}

// needRestart refuses changes that only a restart can make. All are named: none
// of the others is made either, so that what runs is always what a file says.
func needRestart(src *config.Source, changes []config.Change) error {
	var faults []config.Fault
	for _, c := range changes {
		if c.When == config.AtRestart {
			faults = append(faults, src.Fault(c.Key, "is "+c.What+", which needs a restart", "restart the node, or put the old value back to reload the rest"))
		}
	}
	return src.Finish(faults)
}

// prepared is a configuration that can be put in force.
type prepared struct {
	c     *config.Config
	set   *handlerSet
	o     edge.Options
	token tokens
}

// prepare makes everything that a configuration needs and can go wrong.
func (n *Node) prepare(c *config.Config) (p prepared, err error) {
	p.c = c
	router, err := newRouter(c.Routes)
	if err != nil {
		return p, err
	}
	if c.HTTP.Listen != "" {
		if p.token, err = readTokens(c); err != nil {
			return p, err
		}
	}
	if p.set, err = n.handlers(c, n.set); err != nil {
		return p, err
	}
	p.o = n.engineOptions(c, p.set, router)
	return p, nil
}

// install gives the engine what was prepared. Sharers of the database must agree
// on handlers and routes first.
func (n *Node) install(ctx context.Context, old *config.Config, next prepared) error {
	was, is := digest(*old), digest(*next.c)
	if was != is {
		if err := n.store.Reconfigure(ctx, is); err != nil {
			next.set.drop()
			if errors.Is(err, edge.ErrConflict) {
				return fmt.Errorf("%w: stop the others, reload this one, and start them with the new file", err)
			}
			return fmt.Errorf("store the digest of the configuration: %w", err)
		}
	}
	err := n.engine.Reload(ctx, next.o) // which drops the set when it fails
	if err != nil && was != is {
		if back := n.store.Reconfigure(context.WithoutCancel(ctx), was); back != nil {
			n.log.Warn("the digest of the old configuration could not be stored again", "err", back)
		}
	}
	return err
}

// apply puts the rest in force, which cannot fail.
func (n *Node) apply(p prepared) {
	n.set = p.set
	n.current.Store(p.c)
	n.store.SetLimits(limitsOf(p.c.Storage))
	n.serveBy(p.c, p.token)
	if n.o.LogLevel != nil {
		n.o.LogLevel.Set(p.c.Node.LogLevel)
	}
}

// serveBy makes the doors answer by a configuration.
func (n *Node) serveBy(c *config.Config, token tokens) {
	if n.local != nil {
		n.local.handler.set(n.localHandler(c))
	}
	if n.network != nil {
		n.network.handler.set(n.networkHandler(c, token))
	}
}

// refused logs why a reload changed nothing, and returns it for the caller: with
// each fault of the file on a line of its own.
func (n *Node) refused(err error) error {
	var faults config.Errors
	if !errors.As(err, &faults) {
		n.log.Error("reload refused: the configuration stays as it was", "file", n.conf().File, "err", err)
		return fmt.Errorf("nothing was changed: %w", err)
	}
	lines := []string{fmt.Sprintf("nothing was changed: %s has %s", n.conf().File, count(len(faults), "fault"))}
	problem := api.NewProblem(api.CodeInvalid, "")
	for _, f := range faults {
		n.log.Error("reload refused: the configuration stays as it was", "err", f.Error())
		lines = append(lines, f.Error())
		problem.Errors = append(problem.Errors, api.FieldFault{Detail: f.Error()})
	}
	problem.Detail = strings.Join(lines, "\n")
	return problem
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// takesEffect says when a change takes effect, once the reload has answered.
func takesEffect(w config.When) string {
	if w == config.AtReload {
		return "now"
	}
	return string(w)
}

// maxLogged bounds how many changes a reload logs one by one.
const maxLogged = 50

func (n *Node) logReloaded(changes []config.Change) {
	for _, c := range changes[:min(len(changes), maxLogged)] {
		n.log.Info("configuration changed", "key", c.Key, "change", c.What, "takes_effect", takesEffect(c.When))
	}
	n.log.Info("configuration reloaded", "file", n.conf().File, "changes", len(changes))
}
