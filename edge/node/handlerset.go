package node

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"

	"fencepost/edge"
	"fencepost/edge/config"
)

// handlerSet is the handlers of one configuration.
type handlerSet struct {
	specs   []edge.HandlerSpec
	uplinks []edge.Uplink
	checks  map[string]checker // handlers by name that can say what they lack
	built   map[string]*built
}

// built is a handler that was made, with what it was made from. A reload that
// leaves its configuration as it is takes it over, with its connections.
type built struct {
	from config.Handler
	impl edge.Handler

	mu   sync.Mutex
	uses int // sets that have it and are not retired
}

// use counts a set that has b; drop ends that. The last one closes the handler.
func (b *built) use() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uses++
}

func (b *built) drop() {
	b.mu.Lock()
	b.uses--
	last := b.uses == 0
	b.mu.Unlock()
	if c, ok := b.impl.(io.Closer); ok && last {
		_ = c.Close()
	}
}

// drop ends the use of all handlers of a set that no engine was given.
func (s *handlerSet) drop() {
	if s == nil {
		return
	}
	for _, b := range s.built {
		b.drop()
	}
}

// handlers makes the handlers of c; of old, which may be nil, it takes over what
// has the same configuration. All faults are reported together, with the line of
// the file. The set has to be given to an engine, or dropped.
func (n *Node) handlers(c *config.Config, old *handlerSet) (*handlerSet, error) {
	if err := n.mayRunCommands(c); err != nil {
		return nil, err
	}
	s := &handlerSet{checks: map[string]checker{}, built: map[string]*built{}}
	var faults []error
	var err error
	if s.uplinks, err = uplinks(c); err != nil {
		faults = append(faults, err)
	}
	for i := range c.Handlers {
		h := &c.Handlers[i]
		b, err := n.build(h, old)
		if err != nil {
			faults = append(faults, fmt.Errorf("%w: %s:%d: handler %q: %w", edge.ErrInvalid, c.File, h.Line, h.Name, err))
			continue
		}
		b.use()
		s.built[h.Name] = b
		if c, ok := b.impl.(checker); ok {
			s.checks[h.Name] = c
		}
		spec := spec(h, b.impl)
		spec.Retired = b.drop
		s.specs = append(s.specs, spec)
	}
	if len(faults) > 0 {
		s.drop()
		return nil, errors.Join(faults...)
	}
	return s, nil
}

func (n *Node) build(h *config.Handler, old *handlerSet) (*built, error) {
	from := *h
	from.Line = 0
	if old != nil {
		if b := old.built[h.Name]; b != nil && reflect.DeepEqual(b.from, from) {
			return b, nil
		}
	}
	impl, err := n.handler(h)
	return &built{from: from, impl: impl}, err
}
