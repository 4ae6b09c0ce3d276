//go:build faults

package crash_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestP14_KillAtEachWrite kills the node in the middle of its commits: when it is
// about to make the Nth write or sync of a file of the database, for growing N,
// while events are accepted, claimed, started and settled and, in each second
// life, what the last one left is recovered. All ledgers are compared at the end.
func TestP14_KillAtEachWrite(t *testing.T) {
	t.Parallel()
	kills := number(t, "FENCEPOST_WRITES", 40)
	l := newLoad(t)
	x := newTracer(t, l.n)
	db, wal := l.n.database()
	l.n.start()
	l.produce()
	l.acksFrom(0, 20)
	l.n.kill()
	hits := map[string]int{} // kills by call and file
	missed, inFlight, decided := 0, 0, 0
	for k := range kills {
		call := []string{"pwrite64", "fdatasync"}[l.rng.IntN(2)]
		most := 150
		if call == "fdatasync" {
			most = 12
		}
		at := 1 + l.rng.IntN(most)
		if k%2 == 1 {
			at = 1 + l.rng.IntN(max(most/10, 1)) // before recovery has ended, or soon after
		}
		x.with("pwrite64,fdatasync,ftruncate", []string{db, wal, db + "-shm"}, fmt.Sprintf("%s:signal=KILL:when=%d", call, at))
		p := l.n.spawn()
		select {
		case addr := <-p.addr:
			l.n.addr.Store(&addr)
		case <-p.done:
		}
		if !within(p.done, 3*time.Second) {
			missed++ // the threads made fewer calls each
			l.n.kill()
		} else {
			calls, _ := x.read(t)
			last := "nothing"
			if len(calls) > 0 {
				last = strings.TrimPrefix(calls[len(calls)-1].file, l.n.dir+"/")
			}
			hits[call+" "+last]++
		}
		t.Logf("%s at %d of life %s", call, at, p.life)
		x.with("", nil)
		if k%4 == 3 {
			l.n.start()
			l.n.clean()
			decided += l.decide()
			l.n.kill()
		}
	}
	l.n.start()
	l.finish()
	decided += l.settleAll()
	l.n.clean()
	ev := l.evidence()
	require.Empty(t, ev.judge())
	for _, d := range ev.deliveries {
		if d.Losses > 0 {
			inFlight++
		}
	}
	l.n.stop()
	fired := 0
	for _, h := range hits {
		fired += h
	}
	t.Logf("kill at each write: %d kills came to pass, by call and file of the last call before %v; %d did not; %d events acknowledged, %d deliveries, %d of them lost an execution, %d decided by a person",
		fired, hits, missed, len(ev.acked), len(ev.deliveries), inFlight, decided)
	require.GreaterOrEqual(t, fired, kills/2, "too few kills came to pass")
	require.Positive(t, inFlight, "no kill hit work in flight")
}
