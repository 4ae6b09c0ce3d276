package edge

import (
	"fmt"
	"math"
	"strings"
)

// Names are the random ids that a file's node has had, oldest first; the last is
// the present one. A file has one, until it is copied to another machine: what
// is numbered there from then on bears a new name, and what was numbered before
// keeps its own, so no public id ever means two things.
type Names []Name

// Name is one of [Names] with the last numbers that bear it.
type Name struct {
	Node            string
	Event, Delivery int64
}

// OneName is the names of a file that was never copied.
func OneName(node string) Names {
	return Names{{Node: node, Event: math.MaxInt64, Delivery: math.MaxInt64}}
}

// Node is the present name.
func (ns Names) Node() string {
	if len(ns) == 0 {
		return ""
	}
	return ns[len(ns)-1].Node
}

// Of is the name that a number of this kind bears.
func (ns Names) Of(kind string, n int64) string {
	for _, name := range ns {
		last := name.Delivery
		if kind == KindEvent {
			last = name.Event
		}
		if n <= last {
			return name.Node
		}
	}
	return ns.Node()
}

// Format is the public id of a number.
func (ns Names) Format(kind string, n int64) string { return FormatID(kind, ns.Of(kind, n), n) }

// Parse reads a public id of one of the names, or the bare number. An id of
// another node is [ErrNotFound]; anything else is [ErrInvalid].
func (ns Names) Parse(kind, s string) (int64, error) {
	node := ns.Node()
	for _, name := range ns {
		if strings.HasPrefix(s, kind+"-"+name.Node+"-") {
			node = name.Node
		}
	}
	n, err := ParseID(kind, node, s)
	if err == nil && strings.HasPrefix(s, kind+"-") && ns.Of(kind, n) != node {
		return 0, fmt.Errorf("%w: id %q was given by another machine that has a copy of this file (that number here: %s)", ErrNotFound, s, ns.Format(kind, n))
	}
	return n, err
}
