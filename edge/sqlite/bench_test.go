package sqlite_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

func cpu() time.Duration {
	var ru syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

func BenchmarkMixed(b *testing.B) {
	s, err := sqlite.Open(filepath.Join(b.TempDir(), "b.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(context.Background())
	_ = s.Register(ctx, []edge.Registration{{Name: "h", Effect: edge.Idempotent, Slots: 1, Limit: 64}}, 64, 60000)
	var done atomic.Int64
	fin := make(chan struct{})
	go s.Dispatch(ctx, func(cs []edge.Claimed) {
		for _, c := range cs {
			go func() {
				_, err := s.Settle(ctx, edge.Settlement{Execution: c.Fence, Token: c.Token, Outcome: edge.OutcomeSucceeded, Code: "ok"})
				if err != nil {
					panic(err)
				}
				if done.Add(1) == int64(b.N) {
					close(fin)
				}
			}()
		}
	})
	payload := make([]byte, 300)
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	t0, c0 := time.Now(), cpu()
	for range 64 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				n := next.Add(1)
				if n > int64(b.N) {
					return
				}
				_, err := s.Accept(ctx, []edge.Submission{{
					Event:  edge.Event{ID: fmt.Sprint(n), Source: "/bench", Type: "bench.made", Data: payload},
					Routes: []edge.Routed{{Route: "r", Handler: "h", Key: fmt.Sprint(n % 10000)}},
				}})
				if err != nil {
					panic(err)
				}
			}
		}()
	}
	wg.Wait()
	<-fin
	b.ReportMetric(float64(b.N)/time.Since(t0).Seconds(), "deliveries/s")
	b.ReportMetric(float64((cpu()-c0).Microseconds())/float64(b.N), "cpu-us/delivery")
	b.ReportMetric(float64(b.N)/float64(s.Commits()), "deliveries/commit")
	cancel()
}

// BenchmarkSideFile commits one event after another to two stores by turns, one
// with the side file and the ring and one without, and reports the ratio.
func BenchmarkSideFile(b *testing.B) {
	stores := [2]*sqlite.Store{}
	for i, o := range []sqlite.Options{sqlite.UnmarkedForTest(sqlite.Options{}), {}} {
		s, err := sqlite.Open(filepath.Join(b.TempDir(), "b.db"), o)
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		stores[i] = s
	}
	payload := make([]byte, 300)
	var took, used [2]time.Duration
	b.ResetTimer()
	for n := range b.N {
		for k := range 2 {
			i := (n + k) % 2
			from, before := time.Now(), cpu()
			_, err := stores[i].Accept(context.Background(), []edge.Submission{{
				Event:  edge.Event{ID: fmt.Sprint(n), Source: "/bench", Type: "bench.made", Data: payload},
				Routes: []edge.Routed{{Route: "r", Handler: "h", Key: fmt.Sprint(n % 1000)}},
			}})
			if err != nil {
				b.Fatal(err)
			}
			took[i] += time.Since(from)
			used[i] += cpu() - before
		}
	}
	b.ReportMetric(float64(took[1])/float64(took[0]), "time-with/without")
	b.ReportMetric(float64(used[1])/float64(used[0]), "cpu-with/without")
	b.ReportMetric(float64(took[1].Microseconds())/float64(b.N), "us/commit-with")
}
