package edge_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
)

func TestEventValidate(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", edge.MaxNameBytes+1)
	many := map[string]string{}
	for i := range edge.MaxAttributes - 6 {
		many[fmt.Sprintf("x%d", i)] = "1"
	}
	for _, tc := range []struct {
		name string
		with func(e *edge.Event)
		want string // part of the error; "" = valid
	}{
		{"valid", func(*edge.Event) {}, ""},
		{"everything optional missing", func(e *edge.Event) { *e = edge.Event{ID: "1", Source: "s", Type: "t"} }, ""},
		{"no id", func(e *edge.Event) { e.ID = "" }, "id: must not be empty"},
		{"blank id", func(e *edge.Event) { e.ID = " \u00a0 " }, "id: must not be empty"},
		{"no source", func(e *edge.Event) { e.Source = "" }, "source: must not be empty"},
		{"no type", func(e *edge.Event) { e.Type = "  " }, "type: must not be empty"},
		{"longest id", func(e *edge.Event) { e.ID = long[1:] }, ""},
		{"long id", func(e *edge.Event) { e.ID = long }, "id: 513 bytes, the limit is 512"},
		{"long subject", func(e *edge.Event) { e.Subject = long }, "subject: 513 bytes"},
		{"newline", func(e *edge.Event) { e.Type = "a\nb" }, "type: control character U+000A"},
		{"C1 control", func(e *edge.Event) { e.Subject = "a\u0085b" }, "subject: control character U+0085"},
		{"not UTF-8", func(e *edge.Event) { e.Source = "a\xff" }, "source: not valid UTF-8"},
		{"time with offset", func(e *edge.Event) { e.Time = "2026-01-31T08:00:00.5+13:00" }, ""},
		{"not a time", func(e *edge.Event) { e.Time = "yesterday" }, "time: \"yesterday\" is not an RFC 3339 time"},
		{"data at the limit", func(e *edge.Event) { e.Data = make([]byte, 1<<20) }, ""},
		{"data beyond", func(e *edge.Event) { e.Data = make([]byte, 1<<20+1) }, "data: 1048577 bytes, the limit is 1048576"},
		{"extension", func(e *edge.Event) { e.Extensions = map[string]string{"partitionkey": "k"} }, ""},
		{"extension with a capital", func(e *edge.Event) { e.Extensions = map[string]string{"Key": "k"} }, `"Key": a name has`},
		{"extension named as an attribute", func(e *edge.Event) { e.Extensions = map[string]string{"subject": "k"} }, `"subject": a name has`},
		{"long extension name", func(e *edge.Event) { e.Extensions = map[string]string{strings.Repeat("a", 21): "k"} }, "1 to 20"},
		{"extension with a control character", func(e *edge.Event) { e.Extensions = map[string]string{"k": "\x1b[31m"} }, "k: control character U+001B"},
		{"too many attributes", func(e *edge.Event) { e.Extensions = many }, "attributes: 65, the limit is 64"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			e := edgetest.NewEvent("1", "k")
			tc.with(&e)
			err := e.Validate(0)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, edge.ErrInvalid)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestEventDigestKnowsItsParts(t *testing.T) {
	t.Parallel()
	base := edge.Event{ID: "1", Source: "s", Type: "ab", Subject: "c", ContentType: "d", Data: []byte("e")}
	same := base
	same.ID, same.Source, same.Time, same.N, same.AcceptedMS = "2", "r", "2026-01-31T08:00:00Z", 7, 8
	require.Equal(t, base.Digest(), same.Digest(), "identity and time are not content")
	for _, f := range []func(e *edge.Event){
		func(e *edge.Event) { e.Type, e.Subject = "a", "bc" },
		func(e *edge.Event) { e.Subject, e.ContentType = "cd", "" },
		func(e *edge.Event) { e.ContentType, e.Data = "", []byte("de") },
		func(e *edge.Event) { e.Data = nil },
	} {
		other := base
		f(&other)
		require.NotEqual(t, base.Digest(), other.Digest())
	}
}

// Q4: an event with an empty or blank id, at the library's door.
func TestQ4_EmptyIDsAreRefusedAtTheLibrary(t *testing.T) {
	bubble(t, func(t *testing.T) {
		script := edgetest.NewScript()
		b := newBench(t, only(handler("h", edge.Idempotent, script.Handle))).start()
		for _, id := range []string{"", "   ", "\u2003"} {
			_, err := b.Enqueue(t.Context(), edgetest.NewEvent(id, "k"))
			require.ErrorIs(t, err, edge.ErrInvalid)
		}
		as, err := b.EnqueueBatch(t.Context(), []edge.Event{edgetest.NewEvent("", "k"), edgetest.NewEvent("good", "k")})
		require.NoError(t, err)
		require.ErrorIs(t, as[0].Err, edge.ErrInvalid)
		require.NoError(t, as[1].Err)
		b.await(as[1].Deliveries[0].ID, edge.Succeeded)
		b.finish()
		for range 10 { // restarts cause no further runs
			again := benchOn(t, b.model.Open(nil), only(handler("h", edge.Idempotent, script.Handle))).start()
			again.finish()
		}
		require.Len(t, script.Calls(), 1)
		ds, err := b.model.Deliveries(t.Context(), edge.DeliveryFilter{})
		require.NoError(t, err)
		require.Len(t, ds, 1, "nothing of the refused events was stored")
	})
}

// DX6: a host far from UTC. All times are instants; the zone changes nothing.
func TestDX6_TheZoneOfTheHostDoesNotMatter(t *testing.T) {
	t.Parallel()
	far := time.FixedZone("UTC+13", 13*3600)
	at := time.Date(2026, 3, 1, 12, 0, 0, 250e6, far)
	clock := edge.NewClock(func() time.Time { return at })
	require.Equal(t, at.UnixMilli(), clock.NowMS())
	text := edge.Explain(edge.Facts{Delivery: edge.Delivery{
		ID: 3, Event: 1, Target: edge.Target{Handler: "h"}, State: edge.Pending, DueMS: at.UnixMilli() + 1500, Attempts: 1,
	}, Handler: edge.HandlerInfo{Gate: edge.GateOn}}, clock.NowMS())
	require.Contains(t, text, "due at 2026-02-28T23:00:01.750Z (in 1.5s)")

	m := edgetest.NewModel(edge.ManualClock(at.UnixMilli()))
	b := benchOn(t, m, only(handler("h", edge.Idempotent, edgetest.NewScript().Handle)))
	ev := edgetest.NewEvent("1", "k")
	ev.Time = at.Format(time.RFC3339Nano)
	ev.Extensions = map[string]string{"expirytime": at.Add(time.Minute).Format(time.RFC3339Nano)}
	a, err := b.Enqueue(t.Context(), ev)
	require.NoError(t, err)
	d, err := m.Delivery(t.Context(), a.Deliveries[0].ID)
	require.NoError(t, err)
	require.Equal(t, at.UnixMilli()+60_000, d.ExpiresMS)
	stored, err := m.Event(t.Context(), a.Event)
	require.NoError(t, err)
	require.Equal(t, ev.Time, stored.Time, "the time is kept as received")
}

func TestEvent_SourceIsAURIReference(t *testing.T) {
	t.Parallel()
	for _, source := range []string{
		"/s", "s", "https://a.example/b?c=d#e", "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66", "mailto:a@b.example", "//host/x", "a%20b", "/t%C3%A9st",
		"/tést", "#part", "?q", "tag:a.example,2026:x", "http://[::1]:80/", "!$&'()*+,;=:@~-._",
	} {
		require.NoError(t, (&edge.Event{ID: "1", Source: source, Type: "t"}).Validate(0), source)
	}
	for _, source := range []string{"my app", `"quoted"`, "<a>", `C:\dir`, "a{b}", "a|b", "a^b", "a`b", "100%", "%2", "%zz", "a%G0b"} {
		var fault *edge.FieldError
		require.ErrorAs(t, (&edge.Event{ID: "1", Source: source, Type: "t"}).Validate(0), &fault, source)
		require.Equal(t, "source", fault.Field)
		require.Contains(t, fault.Detail, "URI-reference")
	}
}
