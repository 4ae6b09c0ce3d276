package node_test

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/node"
)

// inbox is a receiver that answers with a status and notes what came.
type inbox struct {
	net.Listener
	status atomic.Int32
	mu     sync.Mutex
	types  []string
}

// cut is a status with which an inbox breaks the connection instead.
const cut = 0

func newInbox(t *testing.T, status int) *inbox {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b := &inbox{Listener: l}
	b.status.Store(int32(status))
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.status.Load() == cut {
			panic(http.ErrAbortHandler)
		}
		b.mu.Lock()
		b.types = append(b.types, r.Header.Get("Ce-Type"))
		b.mu.Unlock()
		w.WriteHeader(int(b.status.Load()))
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return b
}

func (b *inbox) got() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string{}, b.types...)
}

func (b *inbox) port() string { return portOf(b.Listener) }

func portOf(l net.Listener) string {
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// hookTo is a webhook with more lines.
func hookTo(name, url string, lines ...string) string {
	return fmt.Sprintf("[[handler]]\nname = %q\nkind = \"webhook\"\nurl = %q\nretry_schedule_s = [1]\n%s\n", name, url, strings.Join(lines, "\n"))
}

// T8: a name that leads to this host makes no connection and blocks the delivery,
// for as long as the configuration does not list the address.
func TestT8_ARefusedAddressIsBlockedUntilItIsListed(t *testing.T) {
	t.Parallel()
	canary := newInbox(t, http.StatusOK)
	s := newSite(t)
	url := "http://localhost:" + canary.port() + "/"
	r := s.startFile(t, hookTo("hook", url)+routeTo("all", "*", "hook"), node.Options{})
	id := r.send(t, "x", "1")
	d := r.await(t, id, edge.Blocked)
	require.Equal(t, "address_refused", d.Code)
	require.Zero(t, d.Attempts)
	s.write(t, hookTo("hook", url)+routeTo("all", "x*", "hook")) // another change does not free it
	_, err := r.client.Reload(t.Context())
	require.NoError(t, err)
	r.await(t, id, edge.Blocked)
	require.Empty(t, canary.got())

	s.write(t, hookTo("hook", url, `allow_addresses = ["127.0.0.0/8"]`)+routeTo("all", "x*", "hook"))
	_, err = r.client.Reload(t.Context())
	require.NoError(t, err)
	r.await(t, id, edge.Succeeded)
	require.Equal(t, []string{"x"}, canary.got())
	r.sound(t)
	r.end(t)
}

// 410 puts the gate off, and what the node says of that is delivered like any
// event, once.
func TestGoneEndpointIsToldByAnEvent(t *testing.T) {
	t.Parallel()
	gone := newInbox(t, http.StatusGone)
	alerts := newInbox(t, http.StatusOK)
	s := newSite(t)
	r := start(t, s.config(t, "s", hookTo("gone", "http://"+gone.Addr().String(), `allow_addresses = ["127.0.0.1"]`)+
		hookTo("alerts", "http://"+alerts.Addr().String(), `allow_addresses = ["127.0.0.1"]`)+
		routeTo("work", "work.*", "gone")+routeTo("alerts", "fencepost.*", "alerts")), node.Options{})
	var ids []string
	for i := range 5 {
		ids = append(ids, r.send(t, "work.x", fmt.Sprint("k", i)))
	}
	require.Eventually(t, func() bool { return len(alerts.got()) > 0 }, 30*time.Second, 5*time.Millisecond)
	for _, id := range ids {
		d := r.await(t, id, edge.Pending)
		require.Zero(t, d.Attempts, "held uncharged")
	}
	hs, err := r.client.Handlers(t.Context())
	require.NoError(t, err)
	require.Equal(t, "gone", hs[1].Name)
	require.Equal(t, edge.GateOff, hs[1].Gate)
	require.Equal(t, "endpoint_gone", hs[1].Code)

	gone.status.Store(http.StatusOK)
	_, err = r.client.ResumeHandler(t.Context(), "gone")
	require.NoError(t, err)
	for _, id := range ids {
		r.await(t, id, edge.Succeeded)
	}
	require.Equal(t, []string{"fencepost.handler.gate_off"}, alerts.got())
	r.sound(t)
	r.end(t)
}

// D9, over real sockets: while the uplink's probe fails nothing is charged; when it
// is back everything goes out.
func TestD9_UplinkDownChargesNothing(t *testing.T) {
	t.Parallel()
	box := newInbox(t, cut)
	probe := newInbox(t, http.StatusOK)
	text := "[[uplink]]\nname = \"wan\"\nprobe = \"localhost:" + probe.port() + "\"\ninterval_s = 5\ntimeout_s = 2\n" +
		hookTo("hook", "http://"+box.Addr().String(), "max_attempts = 2", `allow_addresses = ["127.0.0.1"]`, `uplink = "wan"`) +
		logHandler("record") + routeTo("work", "work.*", "hook") + routeTo("alerts", "fencepost.*", "record")
	s := newSite(t)
	r := start(t, s.config(t, "s", text), node.Options{})
	// The probe is judged like a webhook: its address is not listed, and it fails.
	var ids []string
	for i := range 10 {
		ids = append(ids, r.send(t, "work.x", fmt.Sprint("k", i)))
	}
	require.Eventually(t, func() bool {
		st, err := r.client.Status(t.Context())
		require.NoError(t, err)
		return len(st.Uplinks) == 1 && st.Uplinks[0].DownSince != 0
	}, 30*time.Second, 5*time.Millisecond)
	st, err := r.client.Status(t.Context())
	require.NoError(t, err)
	require.Contains(t, st.Uplinks[0].Detail, "is loopback")
	explained, err := r.client.Explain(t.Context(), ids[9])
	require.NoError(t, err)
	require.Contains(t, strings.Join(explained.Text, "\n"), "The uplink wan of handler hook is down since ")
	for _, id := range ids {
		d := r.await(t, id, edge.Pending)
		require.Zero(t, d.Attempts)
	}
	r.sound(t)
	r.end(t)

	// With the address listed and the way open, all is delivered.
	box.status.Store(http.StatusOK)
	c := s.config(t, "s", text)
	c.Node.AllowAddresses = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	r = start(t, c, node.Options{})
	for _, id := range ids {
		require.Zero(t, r.await(t, id, edge.Succeeded).Attempts)
	}
	require.Len(t, box.got(), 10)
	r.sound(t)
	r.end(t)
}

// A rate limit is a stored fact: a restart grants no second burst.
func TestRateLimitOutlivesTheNode(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	text := "[[handler]]\nname = \"slow\"\nkind = \"log\"\nrate_per_s = 0.01\nrate_burst = 3\n" + routeTo("all", "*", "slow")
	r := start(t, s.config(t, "s", text), node.Options{})
	var ids []string
	for i := range 8 {
		ids = append(ids, r.send(t, "x", fmt.Sprint("k", i)))
	}
	for _, id := range ids[:3] {
		r.await(t, id, edge.Succeeded)
	}
	r.end(t)
	r = start(t, s.config(t, "s", text), node.Options{})
	explained, err := r.client.Explain(t.Context(), ids[3])
	require.NoError(t, err)
	require.Contains(t, strings.Join(explained.Text, "\n"), "Handler slow waits for its rate limit (one every 1m40s, at most 3 at once) until ")
	hs, err := r.client.Handlers(t.Context())
	require.NoError(t, err)
	require.NotZero(t, hs[0].RateReadyAt)
	r.sound(t)
	for _, id := range ids[3:] {
		d := r.await(t, id, edge.Pending)
		require.Zero(t, d.Attempts)
	}
	r.end(t)
}
