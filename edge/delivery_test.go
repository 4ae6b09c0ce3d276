package edge_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
)

func TestTargetsAreWrittenAndRead(t *testing.T) {
	t.Parallel()
	for _, at := range []edge.Target{{Handler: "h"}, {Handler: "h", Key: "k"}, {Handler: "h", Key: "a:b:c"}} {
		got, err := edge.ParseTarget(at.String())
		require.NoError(t, err)
		require.Equal(t, at, got)
	}
	for _, s := range []string{"", "h", ":k"} {
		_, err := edge.ParseTarget(s)
		require.ErrorIs(t, err, edge.ErrInvalid)
		require.ErrorContains(t, err, "handler:key")
	}
}

func TestPublicIDs(t *testing.T) {
	t.Parallel()
	id := edge.FormatID(edge.KindDelivery, "abcd2345", 42)
	require.Equal(t, "dlv-abcd2345-42", id)
	for s, want := range map[string]error{
		id: nil, "42": nil,
		"dlv-other-42": edge.ErrNotFound,
		"dlv-42":       edge.ErrInvalid, "evt-abcd2345-42": edge.ErrInvalid, "dlv-abcd2345-042": edge.ErrInvalid,
		"dlv-abcd2345-": edge.ErrInvalid, "0": edge.ErrInvalid, "-1": edge.ErrInvalid, "+42": edge.ErrInvalid,
		"042": edge.ErrInvalid, "9223372036854775808": edge.ErrInvalid, "": edge.ErrInvalid, " 42": edge.ErrInvalid,
	} {
		n, err := edge.ParseID(edge.KindDelivery, "abcd2345", s)
		if want != nil {
			require.ErrorIs(t, err, want, "%q", s)
			continue
		}
		require.NoError(t, err, "%q", s)
		require.Equal(t, int64(42), n)
	}
}

func TestStatesFinal(t *testing.T) {
	t.Parallel()
	final := map[edge.State]bool{edge.Succeeded: true, edge.Failed: true, edge.Cancelled: true, edge.Expired: true}
	for _, s := range edge.States {
		require.Equal(t, final[s], s.Final(), s)
	}
}

func TestTransitionErrorNamesTheWayOut(t *testing.T) {
	t.Parallel()
	err := &edge.TransitionError{Delivery: 42, Event: edge.OnCancel, State: edge.Blocked, Hint: "use resolve"}
	require.ErrorIs(t, err, edge.ErrConflict)
	require.Equal(t, "delivery 42 is blocked: cancel is not possible; use resolve", err.Error())
}

func TestDefaultKey(t *testing.T) {
	t.Parallel()
	require.Empty(t, edge.DefaultKey(&edge.Event{}))
	require.Equal(t, "s", edge.DefaultKey(&edge.Event{Subject: "s"}))
	require.Equal(t, "p", edge.DefaultKey(&edge.Event{Subject: "s", Extensions: map[string]string{"partitionkey": "p"}}))
}

func TestValidCode(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"ok": true, "http_503": true, "a.b:c-d": true, "5xx": true,
		"": false, "_a": false, "A": false, "a b": false, "é": false,
		string(make([]byte, 65)): false,
	} {
		require.Equal(t, want, edge.ValidCode(s), "%q", s)
	}
}
