package sqlite_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the zones must be known on every host

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/edgetest"
	"fencepost/edge/sqlite"
)

// midnight is what a process in some zone saw round a local midnight: all times
// are milliseconds from that midnight.
type midnight struct {
	Zone     string
	Accepted map[string]int64 // by event
	Due      map[string]int64
	Claimed  map[string]int64   // when the event's delivery was first claimable
	Pruned   map[string][]int64 // when it was finished, and when it was gone
}

const retention = time.Minute

// childMidnight takes events round midnight by every path, lets them be claimed
// and pruned second by second, and prints what it saw.
func childMidnight(path, day string) {
	if err := watchMidnight(path, day); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func watchMidnight(path, day string) error {
	at, err := time.ParseInLocation(time.DateOnly, day, time.Local)
	if err != nil {
		return err
	}
	zero := at.UnixMilli()
	clock := edge.ManualClock(zero - 2000)
	s, err := sqlite.Open(path, sqlite.Options{Clock: clock, Durability: sqlite.DurabilityNormal})
	if err != nil {
		return err
	}
	defer s.Close()
	ctx := context.Background()
	e, err := edge.New(s, edge.Options{Router: byType, Retention: edge.Retention{Succeeded: retention, Failed: retention}, Handlers: []edge.HandlerSpec{
		spec("hook", func(context.Context, *edge.Claim) edge.Result { return edge.Done() })}})
	if err != nil {
		return err
	}
	defer e.Stop(ctx)
	saw := midnight{Zone: os.Getenv("TZ"), Accepted: map[string]int64{}, Due: map[string]int64{}, Claimed: map[string]int64{}, Pruned: map[string][]int64{}}
	ids := map[string]edge.DeliveryID{}
	for second := -2; second < 70; second++ {
		if second < 2 {
			if err := arrive(ctx, e, s, second, ids); err != nil {
				return err
			}
		}
		cs, err := s.Claim(ctx, 100)
		if err != nil {
			return err
		}
		for _, c := range cs {
			id := c.Event.ID
			st := succeeded(c)
			if _, again := saw.Claimed[id]; !again && strings.Contains(id, "/later/") { // due a second later
				st.Outcome, st.Code, st.DelayMS = edge.OutcomeDeferred, "later", 1000
			}
			saw.Claimed[id] = clock.NowMS() - zero
			if _, err := s.Settle(ctx, st); err != nil {
				return err
			}
		}
		p := edge.PrunePolicy{SucceededBeforeMS: clock.NowMS() - retention.Milliseconds(), FailedBeforeMS: clock.NowMS() - retention.Milliseconds(), Limit: 1000}
		for id, n := range ids {
			d, err := s.Delivery(ctx, n)
			if err != nil {
				return err
			}
			saw.Accepted[id], saw.Due[id] = d.AcceptedMS-zero, d.DueMS-zero
			if d.FinishedMS != 0 {
				saw.Pruned[id] = []int64{d.FinishedMS - zero}
			}
		}
		if _, err := s.Prune(ctx, p); err != nil {
			return err
		}
		for id, n := range ids {
			if _, err := s.Delivery(ctx, n); err != nil {
				saw.Pruned[id] = append(saw.Pruned[id], clock.NowMS()-zero)
				delete(ids, id)
			}
		}
		clock.Advance(time.Second)
	}
	return json.NewEncoder(os.Stdout).Encode(saw)
}

// arrive brings in events of this second by each path: due now, and due a second
// later after a deferral.
func arrive(ctx context.Context, e *edge.Engine, s *sqlite.Store, second int, ids map[string]edge.DeliveryID) error {
	for _, when := range []string{"now", "later"} {
		name := func(path string) string { return fmt.Sprintf("%s/%s/%d", path, when, second) }
		one, err := e.Enqueue(ctx, eventFor("hook", name("one"), name("one")))
		if err != nil {
			return err
		}
		many, err := e.EnqueueBatch(ctx, []edge.Event{eventFor("hook", name("batch"), name("batch"))})
		if err != nil {
			return err
		}
		sub := edgetest.Owe(name("store"), "hook", name("store"))
		raw, err := s.Accept(ctx, []edge.Submission{sub})
		if err != nil {
			return err
		}
		for path, a := range map[string]edge.Accepted{"one": one, "batch": many[0], "store": raw[0]} {
			if a.Err != nil {
				return a.Err
			}
			ids[name(path)] = a.Deliveries[0].ID
		}
	}
	return nil
}

// TestQ12_MidnightInEveryZoneIsATimeLikeAnyOther runs processes with other local
// zones round their midnights, those of clock changes among them. What is due is
// due then, nothing that finished less than the retention ago is pruned, and
// nothing lingers past one sweep.
func TestQ12_MidnightInEveryZoneIsATimeLikeAnyOther(t *testing.T) {
	t.Parallel()
	var first midnight
	for _, tc := range []struct{ zone, day string }{
		{"UTC", "2026-01-15"},
		{"Pacific/Auckland", "2026-01-15"},
		{"Pacific/Auckland", "2026-04-05"}, // the clock is set back that night
		{"Pacific/Auckland", "2026-09-27"}, // and forward
		{"America/St_Johns", "2026-01-15"},
		{"America/St_Johns", "2026-03-08"},
		{"America/St_Johns", "2026-11-01"},
	} {
		cmd := childCommand(t, "midnight", filepath.Join(t.TempDir(), "test.db"), tc.day)
		cmd.Env = append(cmd.Env, "TZ="+tc.zone)
		out, err := cmd.Output()
		require.NoError(t, err, "%s", out)
		var saw midnight
		require.NoError(t, json.Unmarshal(out, &saw))
		require.Equal(t, tc.zone, saw.Zone)
		saw.Zone = ""
		if first.Due == nil {
			first = saw
		}
		require.Equal(t, first, saw, "%s on %s", tc.zone, tc.day)
	}
	require.Len(t, first.Due, 2*3*4)
	for id, due := range first.Due {
		parts := strings.Split(id, "/") // path, when, second
		second, err := strconv.ParseInt(parts[2], 10, 64)
		require.NoError(t, err)
		require.Equal(t, second*1000, first.Accepted[id], id)
		if parts[1] == "later" {
			second++
		}
		require.Equal(t, second*1000, due, "%s is due when it says", id)
		require.Equal(t, due, first.Claimed[id], "%s is claimable when it is due", id)
		gone := first.Pruned[id]
		require.Len(t, gone, 2, id)
		require.Equal(t, due, gone[0])
		age := gone[1] - gone[0]
		require.GreaterOrEqual(t, age, retention.Milliseconds(), "%s was pruned too early", id)
		require.LessOrEqual(t, age, retention.Milliseconds()+1000, "%s lingers", id)
	}
}
