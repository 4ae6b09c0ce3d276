package api_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/stretchr/testify/require"
)

func send(t *testing.T, c *api.Client, id, subject string) api.Receipt {
	t.Helper()
	rc, err := c.Send(t.Context(), edge.Event{
		ID: id, Source: "/tést/100%25", Type: "greeting.hello", Subject: subject, ContentType: "application/json",
		Extensions: map[string]string{"note": `a "b" €`}, Data: []byte(`{"b":1,"a":1e400}`),
	})
	require.NoError(t, err)
	return rc
}

func TestLocal_SendKeepsTheEvent(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := dial(t, serveLocal(t, n))
	rc := send(t, c, "1", "bob € 😀")
	require.False(t, rc.Existing)
	require.True(t, send(t, c, "1", "bob € 😀").Existing)
	ev := n.events(t)[0]
	require.Equal(t, "/tést/100%25", ev.Source)
	require.Equal(t, "bob € 😀", ev.Subject)
	require.Equal(t, `{"b":1,"a":1e400}`, string(ev.Data))
	require.Equal(t, map[string]string{"note": `a "b" €`}, ev.Extensions)

	rc, err := c.Send(t.Context(), edge.Event{Source: "/s", Type: "t"})
	require.NoError(t, err)
	require.False(t, rc.Existing, "an id is drawn")
	_, err = c.Send(t.Context(), edge.Event{ID: "1", Source: "/tést/100%25", Type: "other"})
	require.ErrorIs(t, err, edge.ErrConflict)
	_, err = c.Send(t.Context(), edge.Event{ID: " ", Source: "/s", Type: "t"})
	require.ErrorIs(t, err, edge.ErrInvalid)
	var p *api.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, "ce-id", p.Errors[0].Header)
}

func TestLocal_ListsDeliveries(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := dial(t, serveLocal(t, n))
	page, err := c.Deliveries(t.Context(), api.ListDeliveries{})
	require.NoError(t, err)
	require.Equal(t, api.DeliveryPage{Deliveries: []api.Delivery{}}, page, "an empty store is no fault")
	var first api.Receipt
	for i := range 5 {
		rc := send(t, c, fmt.Sprint(i), []string{"bob", "eve"}[i%2])
		if i == 0 {
			first = rc
		}
	}
	_, err = c.Cancel(t.Context(), first.Deliveries[0].ID)
	require.NoError(t, err)

	ids := func(f api.ListDeliveries) []string {
		page, err := c.Deliveries(t.Context(), f)
		require.NoError(t, err)
		out := []string{}
		for _, d := range page.Deliveries {
			out = append(out, strings.TrimPrefix(d.ID, "dlv-"+n.Names().Node()+"-"))
		}
		return out
	}
	require.Equal(t, []string{"5", "4", "3", "2", "1"}, ids(api.ListDeliveries{}))
	require.Equal(t, []string{"1"}, ids(api.ListDeliveries{State: "cancelled"}))
	require.Equal(t, []string{"4", "2"}, ids(api.ListDeliveries{Target: "greet:eve"}))
	require.Equal(t, []string{"1"}, ids(api.ListDeliveries{Code: edge.CodeCancelled}))
	require.Equal(t, []string{"1"}, ids(api.ListDeliveries{Event: first.ID}))
	require.Equal(t, []string{"2"}, ids(api.ListDeliveries{Event: "2"}))
	require.Empty(t, ids(api.ListDeliveries{Handler: "other"}))

	page, err = c.Deliveries(t.Context(), api.ListDeliveries{Limit: 2})
	require.NoError(t, err)
	require.Equal(t, "dlv-"+n.Names().Node()+"-4", page.Next)
	require.Equal(t, []string{"3", "2"}, ids(api.ListDeliveries{Limit: 2, Before: page.Next}))
	require.Equal(t, []string{"3", "2", "1"}, ids(api.ListDeliveries{Before: "4"}))
}

func TestLocal_RefusesWhatItDoesNotUnderstand(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	h := api.NewLocalHandler(n, api.LocalOptions{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	run(t, l, api.NewServer(h, nil, api.Timeouts{}))
	for path, place := range map[string]string{
		"/v1/deliveries?state=done":         "states are",
		"/v1/deliveries?limit=0":            "1 to 1000",
		"/v1/deliveries?limit=1001":         "1 to 1000",
		"/v1/deliveries?limit=x":            "1 to 1000",
		"/v1/deliveries?stat=held":          "not known",
		"/v1/deliveries?state=held&state=x": "more than once",
		"/v1/deliveries?target=x":           "handler:key",
		"/v1/deliveries?event=x":            "bare number",
		"/v1/deliveries?before=-1":          "bare number",
		"/v1/targets?stalled=yes":           "true or false",
		"/v1/targets?after=x":               "handler:key",
		"/v1/deliveries/abc":                "bare number",
		"/v1/deliveries/01":                 "bare number",
		"/v1/deliveries/0/explain":          "bare number",
	} {
		a := raw(t, l.Addr().String(), "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		require.Equal(t, http.StatusBadRequest, a.status, path)
		require.Contains(t, a.problem(t).Detail, place, path)
	}
	rc := n.enqueue(t, "1", "bob")
	id := fmt.Sprint(int64(rc.Deliveries[0].ID))
	for _, c := range [][3]string{
		{"/v1/deliveries/" + id + "/cancel", `{"again":true}`, "unknown field"},
		{"/v1/deliveries/" + id + "/redrive", `{"again":1}`, "bool"},
		{"/v1/deliveries/" + id + "/resolve", `{"as":"maybe","version":1,"reason":"x"}`, "succeeded, failed or retry"},
		{"/v1/deliveries/" + id + "/resolve", `{"as":"failed","reason":"x"}`, "version"},
		{"/v1/deliveries/" + id + "/resolve", `{"as":"failed","version":1}`, "reason"},
		{"/v1/deliveries/" + id + "/resolve", `{"as":"failed","version":1,"reason":"` + strings.Repeat("x", 4097) + `"}`, "4097 bytes, the limit is 4096"},
		{"/v1/deliveries/" + id + "/resolve", `{`, "not valid JSON"},
		{"/v1/targets/skip", `{"target":"greet:bob","version":1}`, "reason"},
		{"/v1/targets/skip", `{"target":"bob","version":1,"reason":"x"}`, "handler:key"},
		{"/v1/handlers/greet/pause", `{"seconds":-1}`, "seconds"},
		{"/v1/handlers/greet/pause", `{"seconds":99999999999}`, "seconds"},
	} {
		a := raw(t, l.Addr().String(), postTo(c[0], c[1]))
		require.Equal(t, http.StatusBadRequest, a.status, c)
		require.Contains(t, a.problem(t).Detail, c[2], c)
	}
	d, err := n.Delivery(t.Context(), rc.Deliveries[0].ID)
	require.NoError(t, err)
	require.Equal(t, edge.Pending, d.State, "nothing of it did anything")
	a := raw(t, l.Addr().String(), postTo("/v1/check", strings.Repeat(" ", 64<<10+1)))
	require.Equal(t, http.StatusRequestEntityTooLarge, a.status)
}

func (n *node) enqueue(t *testing.T, id, subject string) edge.Accepted {
	t.Helper()
	a, err := n.Engine.Enqueue(t.Context(), edge.Event{ID: id, Source: "/s", Type: "t", Subject: subject, Data: []byte("abc")})
	require.NoError(t, err)
	return a
}

func TestLocal_NotFound(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := dial(t, serveLocal(t, n))
	for name, call := range map[string]func() error{
		"delivery":       func() error { _, err := c.Delivery(t.Context(), "7"); return err },
		"foreign":        func() error { _, err := c.Delivery(t.Context(), "dlv-abcdefgh-7"); return err },
		"explain":        func() error { _, err := c.Explain(t.Context(), "7"); return err },
		"cancel":         func() error { _, err := c.Cancel(t.Context(), "7"); return err },
		"redrive":        func() error { _, err := c.Redrive(t.Context(), "7", api.RedriveRequest{}); return err },
		"resume target":  func() error { _, err := c.ResumeTarget(t.Context(), "greet:nobody"); return err },
		"pause handler":  func() error { _, err := c.PauseHandler(t.Context(), "other", 0); return err },
		"resume handler": func() error { _, err := c.ResumeHandler(t.Context(), "a/../b"); return err },
	} {
		err := call()
		require.ErrorIs(t, err, edge.ErrNotFound, name)
		require.Equal(t, api.ExitNotFound, api.ClassOf(err).Exit)
	}
}

// blockOne makes a blocked delivery: its once handler answers that the outcome
// is unknown.
func blockOne(t *testing.T, n *node, id string) edge.DeliveryID {
	t.Helper()
	a := n.enqueue(t, id, "bob")
	_, err := n.DispatchOnce(t.Context(), 1)
	require.NoError(t, err)
	d, err := n.Delivery(t.Context(), a.Deliveries[0].ID)
	require.NoError(t, err)
	require.Equal(t, edge.Blocked, d.State)
	return d.ID
}

func TestLocal_ABlockedDeliveryIsShownExplainedAndResolved(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := dial(t, serveLocal(t, n))
	id := blockOne(t, n, "1")
	behind := n.enqueue(t, "2", "bob").Deliveries[0].ID
	public := edge.FormatID(edge.KindDelivery, n.Names().Node(), int64(id))

	detail, err := c.Delivery(t.Context(), public)
	require.NoError(t, err)
	require.Equal(t, public, detail.Delivery.ID)
	require.Equal(t, public, detail.Delivery.Key)
	require.Equal(t, edge.Blocked, detail.Delivery.State)
	require.Equal(t, "2023-11-14T22:13:20.000Z", detail.Delivery.AcceptedAt.String())
	require.Equal(t, 3, detail.Event.DataBytes)
	require.Equal(t, map[string]string{"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "subject": "bob"}, detail.Event.Attributes)
	require.Len(t, detail.Executions, 1)
	require.Equal(t, edge.OutcomeIndeterminate, detail.Executions[0].Outcome)

	x, err := c.Explain(t.Context(), fmt.Sprint(int64(behind)))
	require.NoError(t, err)
	require.Equal(t, public, x.Head)
	require.Equal(t, 1, x.Ahead)
	require.Contains(t, strings.Join(x.Text, "\n"), "blocked")

	page, err := c.Targets(t.Context(), api.ListTargets{Stalled: true, Handler: handlerName})
	require.NoError(t, err)
	require.Len(t, page.Targets, 1)
	require.Equal(t, edge.StallBlocked, page.Targets[0].Stall)
	require.Equal(t, public, page.Targets[0].Stalled)

	_, err = c.Cancel(t.Context(), public)
	require.ErrorIs(t, err, edge.ErrConflict)
	_, err = c.Resolve(t.Context(), public, api.ResolveRequest{As: edge.ResolveFailed, Version: detail.Delivery.Version + 1, Reason: "x", By: "me"})
	require.ErrorIs(t, err, edge.ErrConflict, "decided on another version")
	next, err := c.Resolve(t.Context(), public, api.ResolveRequest{As: edge.ResolveRetry, Version: detail.Delivery.Version, Reason: "looked", By: "me"})
	require.NoError(t, err)
	require.Equal(t, 2, next.Generation)
	require.Equal(t, public, next.RedriveOf)
	require.Equal(t, public, next.Key)
	require.Equal(t, public, next.Line)
	_, err = c.Redrive(t.Context(), public, api.RedriveRequest{})
	require.ErrorIs(t, err, edge.ErrConflict, "there is a newer generation")
	require.NoError(t, n.check(t))
}

func (n *node) check(t *testing.T) error {
	t.Helper()
	vs, err := n.Check(t.Context(), true)
	require.NoError(t, err)
	if len(vs) > 0 {
		return fmt.Errorf("%v", vs)
	}
	return nil
}

func TestLocal_CancelRedriveSkip(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := dial(t, serveLocal(t, n))
	id := fmt.Sprint(int64(n.enqueue(t, "1", "eve").Deliveries[0].ID))
	d, err := c.Cancel(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, edge.Cancelled, d.State)
	again, err := c.Cancel(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, d, again, "the same answer")
	next, err := c.Redrive(t.Context(), id, api.RedriveRequest{NewKey: true})
	require.NoError(t, err)
	require.Equal(t, edge.Pending, next.State)
	require.Equal(t, next.ID, next.Key)

	_, err = c.Cancel(t.Context(), next.ID)
	require.NoError(t, err)
	blocked := blockOne(t, n, "2")
	detail, err := c.Delivery(t.Context(), fmt.Sprint(int64(blocked)))
	require.NoError(t, err)
	_, err = c.ResumeTarget(t.Context(), "greet:bob")
	require.ErrorIs(t, err, edge.ErrConflict, "not halted")
	target, err := c.SkipTarget(t.Context(), api.TargetRequest{Target: "greet:bob", Version: detail.Delivery.Version, Reason: "let it go", By: "me"})
	require.NoError(t, err)
	require.Empty(t, target.Stall)
	require.NoError(t, n.check(t))
}

func TestLocal_GatesCountersCheckAndClock(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := dial(t, serveLocal(t, n))
	h, err := c.PauseHandler(t.Context(), handlerName, 0)
	require.NoError(t, err)
	require.Equal(t, edge.GateOff, h.Gate)
	require.Equal(t, edge.CodePausedByOperator, h.Code)
	h, err = c.PauseHandler(t.Context(), handlerName, 90*time.Second)
	require.NoError(t, err)
	require.Equal(t, edge.GatePaused, h.Gate)
	require.EqualValues(t, n.Clock().NowMS()+90_000, h.ResumeAt)
	h, err = c.ResumeHandler(t.Context(), handlerName)
	require.NoError(t, err)
	require.Equal(t, edge.GateOn, h.Gate)
	all, err := c.Handlers(t.Context())
	require.NoError(t, err)
	require.Equal(t, []api.Handler{h}, all)

	n.enqueue(t, "1", "bob")
	counters, err := c.Counters(t.Context())
	require.NoError(t, err)
	want, err := n.Counters(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, counters)
	found, err := c.Check(t.Context(), true)
	require.NoError(t, err)
	require.Empty(t, found)

	n.Clock().Doubt()
	st, err := c.Status(t.Context())
	require.NoError(t, err)
	require.True(t, st.Doubted)
	st, err = c.ConfirmClock(t.Context())
	require.NoError(t, err)
	require.False(t, st.Doubted)
	require.Equal(t, n.Names().Node(), st.Node)

	require.NoError(t, c.Ready(t.Context()))
	n.ready = errors.New("not yet")
	var p *api.Problem
	require.ErrorAs(t, c.Ready(t.Context()), &p)
	require.Equal(t, api.CodeNotReady, p.Code)
}

func TestLocal_OnlyItsPaths(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	run(t, l, api.NewServer(api.NewLocalHandler(newNode(t), api.LocalOptions{}), nil, api.Timeouts{}))
	for path, want := range map[string]int{
		"/v1/status": 200, "/v1/status/": 404, "/v1/Status": 404, "//v1/status": 404, "/v1/deliveries/": 404,
		"/v1/deliveries//explain": 404, "/v1/deliveries/1/x": 404, "/v1/deliveries/%zz": 400, "/v1/check": 405, "/v1/deliveries/1/cancel": 405,
	} {
		a := raw(t, l.Addr().String(), "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		require.Equal(t, want, a.status, path)
	}
}

func TestDX6_TimesDoNotDependOnTheZoneOfTheHost(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	require.NoError(t, err)
	for zone, offset := range map[string]string{"UTC": "+0000", "Pacific/Tongatapu": "+1300", "America/St_Johns": "-0330"} {
		cmd := exec.CommandContext(t.Context(), exe)
		cmd.Env = append(os.Environ(), "TZ="+zone, zoneHelper+"=1")
		out, err := cmd.Output()
		require.NoError(t, err)
		require.Equal(t, "2023-11-14T22:13:20.123Z "+offset, string(out), zone)
	}
	for text, want := range map[string]api.Stamp{
		`"2023-11-15T11:13:20.123+13:00"`: 1_700_000_000_123,
		`"2023-11-14T22:13:20Z"`:          1_700_000_000_000,
		`null`:                            0,
	} {
		var s api.Stamp
		require.NoError(t, s.UnmarshalJSON([]byte(text)))
		require.Equal(t, want, s)
		back, err := s.MarshalJSON()
		require.NoError(t, err)
		var again api.Stamp
		require.NoError(t, again.UnmarshalJSON(back))
		require.Equal(t, s, again)
	}
	require.Error(t, new(api.Stamp).UnmarshalJSON([]byte(`"yesterday"`)))
	require.Error(t, new(api.Stamp).UnmarshalJSON([]byte(`7`)))
}

var _ api.Node = (*node)(nil)
