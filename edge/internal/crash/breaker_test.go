package crash_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/stretchr/testify/require"
)

// told are the types of the node's own events that a receiver got.
func (r *receiver) told(pattern string) []string {
	var all []string
	for _, a := range r.ledger(nil) {
		if strings.HasPrefix(a.kind, pattern) {
			all = append(all, a.kind)
		}
	}
	return all
}

func (n *node) handler(name string) api.Handler {
	n.t.Helper()
	for _, h := range as[[]api.Handler](n, "handler", "list") {
		if h.Name == name {
			return h
		}
	}
	n.t.Fatalf("no handler %s", name)
	return api.Handler{}
}

// TestD9_EightFailuresAtOnceAreOneEpisode lets eight requests fail in the same
// moment, over a threshold of five (hookdeck/outpost#596). The handler rests, one
// alert is sent, and one when the endpoint works again.
func TestD9_EightFailuresAtOnceAreOneEpisode(t *testing.T) {
	t.Parallel()
	const crowd = 8
	var dead atomic.Bool
	dead.Store(true)
	h := newHolding()
	r := newReceiver(t, func(done <-chan struct{}, a arrival) int {
		if status := h.answer(done, a); status == 0 || !dead.Load() {
			return status
		}
		return http.StatusInternalServerError
	})
	alerts := newReceiver(t, always(http.StatusNoContent))
	n := newNode(t, r.webhook(hook, "concurrency = 8", "retry_schedule_s = [1]", "breaker_failures = 5")+alerts.webhook("alerts")+
		route(hook, "hook.*")+route("alerts", "fencepost.handler.*"))
	n.start()
	var ids []string
	for i := range crowd {
		ids = append(ids, n.sendOne("hook.x", fmt.Sprint("t", i), fmt.Sprint("e", i)))
	}
	await(t, n, "all are open at once", func() bool { return r.count(nil) == crowd })
	close(h.open)
	await(t, n, "each is charged", func() bool {
		for _, id := range ids {
			if n.delivery(id).Delivery.Attempts == 0 {
				return false
			}
		}
		return true
	})
	await(t, n, "one was tried again after the rest", func() bool { return r.count(nil) > crowd })
	require.NotZero(t, n.handler(hook).FailingSince)
	require.Equal(t, "http_500", n.handler(hook).FailingCode)
	require.Equal(t, []string{"fencepost.handler.failing"}, alerts.told("fencepost."))
	dead.Store(false)
	for _, id := range ids {
		n.awaitState(id, edge.Succeeded)
	}
	await(t, n, "the recovery is told", func() bool { return len(alerts.told("fencepost.")) > 1 })
	require.Equal(t, []string{"fencepost.handler.failing", "fencepost.handler.recovered"}, alerts.told("fencepost."))
	await(t, n, "a pause that is over is not shown any more", func() bool { return n.handler(hook).Gate == edge.GateOn })
	require.Empty(t, n.handler(hook).Code)
	require.Empty(t, r.broken())
	n.clean()
}

// TestD9_ConnectionsThatFail has a name that does not resolve and a port that
// refuses (hookdeck/outpost#314). While the network is there, each try is charged and
// made again; while the probe of the network fails too, none is charged.
func TestD9_ConnectionsThatFail(t *testing.T) {
	t.Parallel()
	refusing, probe := closedPort(t), closedPort(t)
	uplink := func(to string) string {
		return fmt.Sprintf("[[uplink]]\nname = \"wan\"\nprobe = %q\ninterval_s = 5\ntimeout_s = 2\n", to)
	}
	hooks := ""
	for name, url := range map[string]string{"refused": "http://" + refusing, "unresolved": "http://receiver.invalid"} {
		hooks += fmt.Sprintf("[[handler]]\nname = %q\nkind = \"webhook\"\nurl = %q\nallow_addresses = [\"127.0.0.1\"]\nretry_schedule_s = [1]\nmax_attempts = 100\nbreaker_failures = 5\nuplink = \"wan\"\n", name, url) + route(name, name+".*")
	}
	alerts := newReceiver(t, always(http.StatusNoContent))
	hooks += alerts.webhook("alerts") + route("alerts", "fencepost.*")
	allow := `allow_addresses = ["127.0.0.0/8"]`
	online, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer online.Close()

	n := newNode(t, uplink(probe)+hooks, allow)
	n.start()
	ids := map[string]string{"connect_refused": n.sendOne("refused.x", "t", "a"), "dns_failed": n.sendOne("unresolved.x", "t", "b")}
	await(t, n, "the node knows that it is offline", func() bool { return len(alerts.told("fencepost.uplink.down")) == 1 })
	await(t, n, "both were tried or held", func() bool {
		return len(n.deliveries("--state", "pending")) == len(ids)
	})
	for _, id := range ids {
		require.Zero(t, n.delivery(id).Delivery.Attempts, "offline is no failure of the endpoint")
	}
	require.Empty(t, alerts.told("fencepost.handler."))
	n.stop()

	n.configure(uplink(online.Addr().String())+hooks, allow)
	n.start()
	for code, id := range ids {
		await(t, n, "tries of "+code, func() bool { return n.delivery(id).Delivery.Attempts >= 5 })
		for _, e := range n.delivery(id).Executions {
			if e.Outcome == edge.OutcomeRetry {
				require.Equal(t, code, e.Code)
			}
		}
	}
	await(t, n, "one alert for each endpoint", func() bool { return len(alerts.told("fencepost.handler.failing")) == len(ids) })
	for _, name := range []string{"refused", "unresolved"} {
		await(t, n, name+" rests", func() bool { return n.handler(name).Code == edge.CodeEndpointFailing })
	}
	require.Len(t, alerts.told("fencepost.handler."), len(ids))
	n.clean()
}

// closedPort is an address of this host at which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}
