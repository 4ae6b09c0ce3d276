package node

import (
	"fmt"
	"reflect"
	"strings"

	"fencepost/edge/config"
	"fencepost/edge/route"
)

// routes warns of routes that are not what they look like.
func (w *warner) routes() {
	if len(w.c.Routes) == 0 && len(w.c.Handlers) > 0 {
		w.add("no_routes", "", "there is no route: events are stored and go nowhere", "add a [[route]]")
	}
	for j := range w.c.Routes {
		at := fmt.Sprintf("route[%d]", j+1)
		w.patterns(&w.c.Routes[j], at)
		w.oneRoute(&w.c.Routes[j], at)
		if j < maxCompared {
			w.twins(j, at)
		}
	}
}

// maxCompared bounds how many routes are compared with each other.
const maxCompared = 1000

// twins warns of an earlier route that leaves route j nothing, or doubles it.
func (w *warner) twins(j int, at string) {
	r := &w.c.Routes[j]
	for i := range j {
		first := &w.c.Routes[i]
		if first.Handler != r.Handler || !covers(first, r) {
			continue
		}
		if reflect.DeepEqual(first.Key, r.Key) {
			advice := "remove it, or narrow the other"
			if first.TTL != r.TTL {
				advice = "remove it, or put it first: the ttl_s of the first of the two counts"
			}
			w.add("route_shadowed", at+".name", fmt.Sprintf("route %s (line %d) takes all that this one takes, to the same target: two routes to one target make one delivery, of the first", first.Name, first.Line), advice)
		} else {
			w.add("route_doubled", at+".name", fmt.Sprintf("route %s (line %d) takes all that this one takes, to the same handler under another key: one event makes two deliveries", first.Name, first.Line), "remove one of the two, unless that is meant")
		}
		return
	}
}

// covers reports whether route a takes every event that b takes, as far as can be
// told without events.
func covers(a, b *config.Route) bool {
	return route.Covers(a.Type, b.Type) && route.Covers(a.Source, b.Source) && route.Covers(a.Subject, b.Subject) &&
		(always(a.When) || a.When == b.When)
}

func always(when string) bool { return when == "" || when == "true" }

// patterns warns of patterns in another language: here only * is special.
func (w *warner) patterns(r *config.Route, at string) {
	for _, p := range []struct{ key, text string }{{"type", r.Type}, {"source", r.Source}, {"subject", r.Subject}} {
		if strings.ContainsAny(p.text, `^$[]|?\`) || strings.Contains(p.text, ".*") && strings.Contains(p.text, "(") || strings.Contains(p.text, "**") {
			w.add("pattern_odd", at+"."+p.key, "looks like a regular expression or a glob: in a pattern only * is special, and stands for any run of characters, / and . too", "a pattern of plain text and *")
		}
	}
}

func (w *warner) oneRoute(r *config.Route, at string) {
	if r.When == "false" {
		w.add("route_never", at+".when", "is never true: this route takes nothing", "remove the route, or give a condition")
	}
	h := w.handlerOf(r.Handler)
	if h == nil {
		return
	}
	if r.Key != nil && *r.Key == "id" && h.Slots == 1 {
		w.add("key_id", at+".key", "each event is a target of its own, so nothing is kept in order", `a key that things with an order share, or ordering = "none" in the handler`)
	}
	if r.Key != nil && *r.Key == "" && h.Halt {
		w.add("halts_all", at+".key", "the whole handler is one line, and on_failure is halt: one failed delivery stops everything of this handler", "a key, so that only its own line stops")
	}
	if first := h.Retry.Delay(1, 0, func() float64 { return 0 }); r.TTL > 0 && r.TTL < first {
		w.add("ttl_short", at+".ttl_s", fmt.Sprintf("is shorter than the handler's first retry delay (%s): a delivery whose first attempt goes wrong expires", first), "more, or a shorter first delay")
	}
}

// uplinks warns of uplinks that hold nothing up.
func (w *warner) uplinks() {
	used := map[string]bool{}
	for i := range w.c.Handlers {
		used[w.c.Handlers[i].Uplink] = true
	}
	for i, u := range w.c.Uplinks {
		if loopbackRefused(hostOf(u.Probe), probePolicy(w.c)) {
			w.add("loopback_refused", fmt.Sprintf("uplink[%d].probe", i+1), "the name stands for this host, whose own address is refused: the uplink stays down", `allow_addresses = ["127.0.0.1", "::1"] in [node], if that is meant`)
		}
		if !used[u.Name] {
			w.add("uplink_unused", fmt.Sprintf("uplink[%d].name", i+1), "no handler needs this uplink: whether it is up or down changes nothing", "uplink = \""+u.Name+"\" in the handlers that go over it")
		}
	}
}

func (w *warner) handlerOf(name string) *config.Handler {
	for i := range w.c.Handlers {
		if w.c.Handlers[i].Name == name {
			return &w.c.Handlers[i]
		}
	}
	return nil
}
