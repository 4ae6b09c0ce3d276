package config

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Change is one difference between two configurations.
type Change struct {
	// Key is what differs: a key such as node.workers, or an uplink, a
	// handler or a route by its name, as in handler.hello.
	Key  string
	What string // for people: "64, was 32", "added", "removed", "changed"
	When When   // when it takes effect
}

// Changes lists what next has otherwise than old: the keys of the sections, then
// the uplinks, the handlers and the routes, each whole.
func Changes(old, next *Config) []Change {
	var all []Change
	for _, k := range Keys() {
		if k.of == nil {
			continue
		}
		if a, b := k.of(old), k.of(next); !reflect.DeepEqual(a, b) {
			all = append(all, Change{Key: k.Path(), What: shown(b) + ", was " + shown(a), When: k.When})
		}
	}
	all = append(all, changesOfList("uplink", AtReload, old.Uplinks, next.Uplinks, func(u Uplink) (string, Uplink) {
		u.Line = 0
		return u.Name, u
	})...)
	all = append(all, changesOfList("handler", AtClaim, old.Handlers, next.Handlers, func(h Handler) (string, Handler) {
		h.Line = 0
		return h.Name, h
	})...)
	return append(all, changesOfList("route", AtReload, old.Routes, next.Routes, func(r Route) (string, Route) {
		r.Line = 0
		return r.Name, r
	})...)
}

// changesOfList compares two lists by the names of their items; plain gives the
// name of an item and the item without its place.
func changesOfList[T any](list string, when When, old, next []T, plain func(T) (string, T)) []Change {
	was := make(map[string]T, len(old))
	var before, after []string // names that both have, in their orders
	for _, item := range old {
		name, p := plain(item)
		was[name] = p
	}
	var all []Change
	has := make(map[string]bool, len(next))
	for _, item := range next {
		name, p := plain(item)
		has[name] = true
		w, known := was[name]
		switch {
		case !known:
			all = append(all, Change{list + "." + name, "added", when})
			continue
		case !reflect.DeepEqual(w, p):
			all = append(all, Change{list + "." + name, "changed", when})
		}
		after = append(after, name)
	}
	for _, item := range old {
		if name, _ := plain(item); has[name] {
			before = append(before, name)
		} else {
			all = append(all, Change{list + "." + name, "removed", when})
		}
	}
	if list == "route" && !slices.Equal(before, after) {
		all = append(all, Change{list, "in another order", when})
	}
	return all
}

// shown is a value for people. No value of a section is secret.
func shown(v any) string {
	switch v := v.(type) {
	case string:
		return printable(v)
	case []string:
		return "[" + quoteAll(v) + "]"
	case slog.Level:
		return `"` + strings.ToLower(v.String()) + `"`
	case time.Duration:
		return v.String()
	}
	if s := fmt.Sprint(v); len(s) <= 200 {
		return s
	}
	return "other values"
}
