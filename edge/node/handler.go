package node

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"fencepost/edge"
	"fencepost/edge/config"
	"fencepost/handlers"
	"fencepost/handlers/command"
	eventlog "fencepost/handlers/log"
	"fencepost/handlers/webhook"
)

// checker is a handler that can say what it lacks on this host.
type checker interface{ Check() error }

// mayRunCommands refuses command handlers as root, unless it was asked for: each
// would be a root shell for whoever can write to its program.
func (n *Node) mayRunCommands(c *config.Config) error {
	if os.Geteuid() != 0 || n.o.AllowRootCommands || c.Node.AllowRootCommands {
		return nil
	}
	for _, h := range c.Handlers {
		if h.Kind == config.KindCommand {
			return fmt.Errorf("%w: %s:%d: handler %q: its command would run as root: run the node as a user of its own (fencepost install-service says how), or set allow_root_commands = true in [node] if it is meant", edge.ErrInvalid, c.File, h.Line, h.Name)
		}
	}
	return nil
}

func (n *Node) handler(h *config.Handler) (edge.Handler, error) {
	switch h.Kind {
	case config.KindWebhook:
		headers, fill, err := requestContent(h.Webhook)
		if err != nil {
			return nil, err
		}
		return webhook.New(webhook.Config{
			URL:              h.Webhook.URL,
			Secrets:          h.Webhook.Secrets,
			Headers:          headers,
			Fill:             fill,
			PermanentCodes:   h.Webhook.PermanentStatus,
			ConflictSucceeds: h.Webhook.Success409,
			Concurrency:      h.Concurrency,
			Timeout:          h.Timeout,
			MaxPause:         maxPause(h.Retry),
			AllowAddress:     webhookPolicy(h.Webhook).Check,
		})
	case config.KindCommand:
		env, fill, err := executionContent(h.Command)
		if err != nil {
			return nil, err
		}
		return command.New(command.Config{
			Argv:           h.Command.Argv,
			Dir:            h.Command.Dir,
			Env:            env,
			Fill:           fill,
			SucceededCodes: h.Command.SuccessExit,
			RetryCodes:     h.Command.RetryExit,
			Timeout:        h.Timeout,
		})
	case config.KindLog:
		return eventlog.New(eventlog.Config{Logger: n.log})
	}
	return nil, fmt.Errorf("kind %q is not known", h.Kind)
}

// maxPause bounds what a receiver can ask of the whole handler: the longest delay,
// and half of the time after which a delivery is given up.
func maxPause(p edge.RetryPolicy) time.Duration {
	longest := p.Max
	if _, giveUp := p.Budget(); giveUp > 0 && (longest <= 0 || longest > giveUp/2) {
		longest = giveUp / 2
	}
	return longest
}

func spec(h *config.Handler, impl edge.Handler) edge.HandlerSpec {
	return edge.HandlerSpec{
		Name:          h.Name,
		Handler:       impl,
		Effect:        h.Effect,
		Revision:      revision(h),
		Slots:         h.Slots,
		Concurrency:   h.Concurrency,
		Timeout:       h.Timeout,
		Retry:         h.Retry,
		HaltOnFailure: h.Halt,
		MaxLosses:     h.MaxLosses,
		Rate:          h.Rate,
		Breaker:       h.Breaker,
		Uplink:        h.Uplink,
	}
}

// revision names a handler's configuration: equal text, equal revision. Of its
// secrets it knows which are there, not what they are, so that one that was
// supplied is a change.
func revision(h *config.Handler) string {
	plain := *h
	plain.Line = 0
	present := map[string]bool{}
	for _, ref := range secretRefs(h) {
		_, err := handlers.ResolveSecret(ref)
		present[ref] = err == nil
	}
	return hash(plain, present)[:12]
}

// secretRefs are the references to secrets in a handler's configuration.
func secretRefs(h *config.Handler) []string {
	var refs []string
	add := func(values map[string]string) {
		for _, v := range values {
			if handlers.IsSecretRef(v) {
				refs = append(refs, v)
			}
		}
	}
	if w := h.Webhook; w != nil {
		refs = append(refs, w.Secrets...)
		add(w.Headers)
	}
	if c := h.Command; c != nil {
		add(c.Env)
	}
	return refs
}

// digest names what nodes that share a database must agree on: the handlers, the
// routes, and how work is stored. Addresses and limits are each node's own.
func digest(c config.Config) string {
	hs := make([]config.Handler, len(c.Handlers))
	for i, h := range c.Handlers {
		h.Line, h.Concurrency = 0, 0
		hs[i] = h
	}
	rs := make([]config.Route, len(c.Routes))
	for i, r := range c.Routes {
		r.Line = 0
		rs[i] = r
	}
	return hash(hs, rs, c.Node.Durability, c.Node.Lease, c.Retention, c.Storage.MaxBacklogBytes, c.Storage.AtBacklogBound, c.Storage.DropHandlers)
}

func hash(parts ...any) string {
	h := sha256.New()
	if err := json.NewEncoder(h).Encode(parts); err != nil {
		panic("node: a configuration is always plain data: " + err.Error())
	}
	return hex.EncodeToString(h.Sum(nil))
}

// warnFirst is warn at the start, which a reload may meet.
func (n *Node) warnFirst() {
	n.reloading <- struct{}{}
	defer func() { <-n.reloading }()
	n.warn()
}

// warn logs what is allowed and yet not what most people want. The caller holds
// reloading.
func (n *Node) warn() {
	c := n.conf()
	for i := range c.Handlers {
		h := &c.Handlers[i]
		for _, ref := range secretRefs(h) {
			if _, err := handlers.ResolveSecret(ref); err != nil {
				n.log.Warn("a secret is missing: the deliveries of the handler will be blocked until it is there", "handler", h.Name, "err", err)
			}
		}
		if c := n.set.checks[h.Name]; c != nil {
			if err := c.Check(); err != nil {
				n.log.Warn("a program or its directory is missing: the deliveries of the handler will be blocked", "handler", h.Name, "err", err)
			}
		}
	}
	if host, _, err := net.SplitHostPort(n.Addr()); err == nil && !net.ParseIP(host).IsLoopback() {
		n.log.Warn("the listener can be reached from other hosts, and the token travels in clear: put a TLS proxy in front, or listen on 127.0.0.1", "listen", n.Addr())
	}
	if n.c.Node.Durability == config.Normal {
		n.log.Warn("durability is normal: a power loss may cost about the last second of what was acknowledged")
	}
	if os.Geteuid() == 0 && slices.ContainsFunc(c.Handlers, func(h config.Handler) bool { return h.Kind == config.KindCommand }) {
		by := "allow_root_commands"
		if !c.Node.AllowRootCommands {
			by = "the example that it runs, and nothing in the configuration"
		}
		n.log.Warn("the node runs as root, and so do the commands of its handlers: a user of its own is safer (fencepost install-service)", "allowed_by", by)
	}
	if n.o.Share {
		n.log.Warn("the database is shared: limits of workers and handlers hold for each process")
	}
}
