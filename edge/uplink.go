package edge

import (
	"context"
	"fmt"
	"time"
)

// Uplink is a way to the outside that handlers share, such as a modem. When an
// execution of one of them fails for want of a connection, Probe tells whose fault
// it was: while it fails too, we are offline, nothing of these handlers is
// attempted and nothing is charged.
type Uplink struct {
	Name string // required: the form of a handler's name
	// Probe reports an error while there is no way out. It has its own end at
	// ctx, and is called once at a time.
	Probe func(ctx context.Context) error
	// Interval is the time between two probes while we are offline; 0 = 15 s,
	// at least 5 s. Nothing is probed while all is well.
	Interval time.Duration
	Timeout  time.Duration // of one probe; 0 = 5 s, at most 20 s
}

// Bounds and defaults of an Uplink.
const (
	defaultProbeInterval = 15 * time.Second
	minProbeInterval     = 5 * time.Second
	maxProbeInterval     = time.Hour
	defaultProbeTimeout  = 5 * time.Second
	maxProbeTimeout      = 20 * time.Second
)

func (u Uplink) withDefaults() Uplink {
	orDuration(&u.Interval, defaultProbeInterval)
	orDuration(&u.Timeout, defaultProbeTimeout)
	return u
}

func (u Uplink) validate() error {
	switch {
	case !ValidHandlerName(u.Name):
		return fmt.Errorf("Name: must be 1 to %d bytes of the form [a-z0-9][a-z0-9_.-]*", maxHandlerName)
	case u.Probe == nil:
		return fmt.Errorf("Probe: must be set")
	case u.Interval < minProbeInterval || u.Interval > maxProbeInterval:
		return fmt.Errorf("Interval: %s, must be %s to %s", u.Interval, minProbeInterval, maxProbeInterval)
	case u.Timeout < 0 || u.Timeout > maxProbeTimeout:
		return fmt.Errorf("Timeout: %s, must be more than 0 and at most %s", u.Timeout, maxProbeTimeout)
	}
	return nil
}

// UplinkState is what is known of an uplink.
type UplinkState struct {
	Name   string
	DownMS int64  // since when we are offline, milliseconds UTC; 0 = we are not
	Detail string // what the latest probe found wrong
}

// uplink is a registered uplink. Its fields belong to endpoints.mu.
type uplink struct {
	spec     Uplink
	state    UplinkState
	probing  *probing // the probe under way
	watching bool     // a goroutine probes until we are online again
}

// probing is one probe; err may be read once done is closed.
type probing struct {
	done chan struct{}
	err  error
}

// verify probes u, or joins the probe that is under way, and reports whether we
// are offline. known is false when ctx ended first.
func (e *Engine) verify(ctx context.Context, u *uplink) (down, known bool) {
	e.ends.mu.Lock()
	if u.state.DownMS != 0 {
		e.ends.mu.Unlock()
		return true, true
	}
	p := u.probing
	if p == nil {
		p = &probing{done: make(chan struct{})}
		u.probing = p
		if !e.spawn(func() { e.probe(u, p) }) {
			u.probing = nil
			e.ends.mu.Unlock()
			return false, false
		}
	}
	e.ends.mu.Unlock()
	select {
	case <-p.done:
		return p.err != nil, true
	case <-ctx.Done():
		return false, false
	}
}

// probe makes one probe and draws the conclusion.
func (e *Engine) probe(u *uplink, p *probing) {
	e.ends.mu.Lock()
	spec := u.spec
	e.ends.mu.Unlock()
	ctx, cancel := context.WithTimeout(e.bg, spec.Timeout)
	defer cancel()
	p.err = e.callProbe(ctx, spec)
	e.ends.mu.Lock()
	u.probing = nil
	wentDown := p.err != nil && e.bg.Err() == nil && u.state.DownMS == 0
	if wentDown {
		u.state.DownMS, u.state.Detail = e.clock.NowMS(), validDetail(p.err.Error())
	}
	state := u.state
	e.ends.mu.Unlock()
	if wentDown {
		e.log.Warn("uplink is down: nothing of its handlers is attempted until it is back", "uplink", state.Name, "err", p.err)
		e.applyUplink(u)
		e.Notify(Notice{Type: "uplink.down", ID: fmt.Sprint("uplink-", state.Name, "-down-", state.DownMS), Subject: state.Name,
			Data: map[string]any{"uplink": state.Name, "since_ms": state.DownMS, "detail": state.Detail}})
		e.watchUplink(u)
	}
	close(p.done)
}

// callProbe calls the probe; a panic is no way out.
func (e *Engine) callProbe(ctx context.Context, spec Uplink) (err error) {
	defer func() {
		if p := recover(); p != nil {
			e.log.Error("probe panicked", append([]any{"uplink", spec.Name}, panicAttrs(p)...)...)
			err = fmt.Errorf("probe panicked: %s", panicText(p))
		}
	}()
	return spec.Probe(ctx)
}

// watchUplink probes u at its interval until we are online again, or u is no
// longer configured.
func (e *Engine) watchUplink(u *uplink) {
	e.ends.mu.Lock()
	defer e.ends.mu.Unlock()
	if !u.watching {
		u.watching = e.spawn(func() { e.awaitUplink(u) })
	}
}

func (e *Engine) awaitUplink(u *uplink) {
	for {
		e.ends.mu.Lock()
		spec, ours := u.spec, e.ends.uplinks[u.spec.Name] == u
		u.watching = ours
		e.ends.mu.Unlock()
		if !ours || !sleep(e.bg, spec.Interval) {
			return
		}
		ctx, cancel := context.WithTimeout(e.bg, spec.Timeout)
		err := e.callProbe(ctx, spec)
		cancel()
		if e.bg.Err() != nil {
			return
		}
		if err == nil {
			e.backOnline(u)
			return
		}
		e.ends.mu.Lock()
		u.state.Detail = validDetail(err.Error())
		e.ends.mu.Unlock()
	}
}

// backOnline lets the handlers of u go on, slowly at first. What expired meanwhile
// is told to upkeep, and no claim takes it.
func (e *Engine) backOnline(u *uplink) {
	e.ends.mu.Lock()
	was := u.state
	u.state.DownMS, u.state.Detail, u.watching = 0, "", false
	for name, h := range e.now().handlers {
		if h.spec.Uplink == was.Name {
			e.ends.of(name).ramp = 1
		}
	}
	e.ends.mu.Unlock()
	now := e.clock.NowMS()
	e.expireAt(now)
	e.log.Info("uplink is back", "uplink", was.Name, "down_ms", now-was.DownMS)
	e.Notify(Notice{Type: "uplink.up", ID: fmt.Sprint("uplink-", was.Name, "-up-", was.DownMS), Subject: was.Name,
		Data: map[string]any{"uplink": was.Name, "since_ms": was.DownMS}})
	e.applyUplink(u)
}

// applyUplink tells the store how many deliveries of each handler of u may run.
func (e *Engine) applyUplink(u *uplink) {
	for name, h := range e.now().handlers {
		if h.spec.Uplink == u.spec.Name {
			e.applyLimit(name)
		}
	}
}

// Uplinks returns what is known of each uplink, in the order of the options.
func (e *Engine) Uplinks() []UplinkState {
	specs := e.now().o.Uplinks
	e.ends.mu.Lock()
	defer e.ends.mu.Unlock()
	out := make([]UplinkState, 0, len(specs))
	for _, spec := range specs {
		if u := e.ends.uplinks[spec.Name]; u != nil {
			out = append(out, u.state)
		}
	}
	return out
}

// UplinkOf returns what is known of a handler's uplink; false when it has none.
func (e *Engine) UplinkOf(handler string) (UplinkState, bool) {
	h := e.now().handlers[handler]
	if h == nil || h.spec.Uplink == "" {
		return UplinkState{}, false
	}
	e.ends.mu.Lock()
	defer e.ends.mu.Unlock()
	u := e.ends.uplinks[h.spec.Uplink]
	if u == nil {
		return UplinkState{}, false
	}
	return u.state, true
}
