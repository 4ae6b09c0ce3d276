package sqlite_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

// A place is a database with the files beside it, which can be taken down and put
// back into the very same files, as a restore in place does.
type place struct {
	t    *testing.T
	path string
	n    int
}

// files are the bytes by suffix; nil = there is no such file.
type files map[string][]byte

func newPlace(t *testing.T) *place { return &place{t: t, path: dbPath(t)} }

func (p *place) take() files {
	p.t.Helper()
	f := files{}
	for _, suffix := range []string{"", "-wal", ".mark"} {
		data, err := os.ReadFile(p.path + suffix)
		if !errors.Is(err, os.ErrNotExist) {
			require.NoError(p.t, err)
			f[suffix] = data
		}
	}
	return f
}

// put writes f over what is there. The shared memory goes, as after a crash.
func (p *place) put(f files) {
	p.t.Helper()
	_ = os.Remove(p.path + "-shm")
	for _, suffix := range []string{"", "-wal", ".mark"} {
		data := f[suffix]
		if data == nil {
			_ = os.Remove(p.path + suffix)
			continue
		}
		require.NoError(p.t, os.WriteFile(p.path+suffix, data, 0o600))
	}
}

func (f files) with(suffix string, data []byte) files {
	g := files{}
	for s, d := range f {
		g[s] = d
	}
	g[suffix] = data
	return g
}

// work accepts n events, one commit each.
func (p *place) work(s *sqlite.Store, n int) {
	p.t.Helper()
	for range n {
		p.n++
		_, err := s.Accept(p.t.Context(), []edge.Submission{submission(fmt.Sprint("w", p.n), fmt.Sprint(p.n), "hook")})
		require.NoError(p.t, err)
	}
}

// worked opens the database, works, and closes it in good order.
func (p *place) worked(o sqlite.Options, n int) {
	p.t.Helper()
	if o.Clock == nil {
		o.Clock = edge.ManualClock(1_700_000_000_000)
	}
	s, err := sqlite.Open(p.path, o)
	require.NoError(p.t, err)
	register(p.t, s, edge.Registration{Name: "hook"})
	p.work(s, n)
	require.NoError(p.t, s.Close())
}

// killed lets a real process work and kills it.
func (p *place) killed(n int) {
	p.t.Helper()
	c := opened(p.t, p.path, false)
	c.must(order{Do: "register", Regs: []edge.Registration{{Name: "hook", Effect: edge.Idempotent, Slots: 1, Limit: 8}}, LeaseMS: 60_000})
	for range n {
		p.n++
		c.must(order{Do: "accept", Subs: []edge.Submission{submission(fmt.Sprint("w", p.n), fmt.Sprint(p.n), "hook")}})
	}
	c.kill()
}

// finds opens with on_loss = refuse and returns the kind of what is found; "" when
// the database opens. A refusal changes nothing.
func (p *place) finds(o sqlite.Options) edge.LossKind {
	p.t.Helper()
	before := p.take()
	o.OnLoss = sqlite.LossRefuse
	s, err := sqlite.Open(p.path, o)
	if err == nil {
		require.NoError(p.t, s.Close())
		return ""
	}
	var loss *sqlite.LossError
	require.ErrorAs(p.t, err, &loss)
	require.ErrorIs(p.t, err, edge.ErrStorage)
	require.ErrorContains(p.t, err, p.path)
	require.Equal(p.t, before[""], p.take()[""], "a refusal leaves the database as it is")
	require.Equal(p.t, before[".mark"], p.take()[".mark"], "and the side file")
	return loss.Loss.Kind
}

// frames is how many bytes of a log belong to its present generation.
func frames(t *testing.T, wal []byte) int {
	t.Helper()
	const head, frame = 32, 24 + 4096
	end := head
	for end+frame <= len(wal) && bytes.Equal(wal[end+8:end+16], wal[16:24]) {
		end += frame
	}
	require.Greater(t, end, head+100*frame, "the log holds many frames")
	return end
}

// TestP7_EveryFlippedBitOfTheLogIsNoticed flips single bits of the log that a
// killed process left. SQLite replays the log up to the damage and calls the rest
// its end; the control shows how often it says so, and what is gone then.
func TestP7_EveryFlippedBitOfTheLogIsNoticed(t *testing.T) {
	t.Parallel()
	flips, err := strconv.Atoi(getenv("FENCEPOST_MUTATIONS", "100"))
	require.NoError(t, err)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	p := newPlace(t)
	p.killed(60)
	left := p.take()
	require.Empty(t, p.finds(sqlite.Options{}), "the control without damage")
	p.put(left)
	intact := raw(t, p.path)
	all := number(t, intact, `SELECT count(*) FROM events`)
	require.NoError(t, intact.Close())
	end := frames(t, left["-wal"])
	missed, lost := 0, int64(0)
	for n := range flips {
		wal := bytes.Clone(left["-wal"])
		wal[rng.IntN(end)] ^= 1 << rng.IntN(8)
		p.put(left.with("-wal", wal))
		require.Equal(t, edge.LossBehind, p.finds(sqlite.Options{}), "flip %d", n)
		p.put(left.with("-wal", wal))
		db := raw(t, p.path)
		var ok string
		require.NoError(t, db.QueryRow(`PRAGMA integrity_check`).Scan(&ok))
		var has int64
		if db.QueryRow(`SELECT count(*) FROM events`).Scan(&has) == nil && ok == "ok" && has < all {
			missed++
			lost = max(lost, all-has)
		}
		require.NoError(t, db.Close())
	}
	t.Logf("%d of %d flips noticed; SQLite alone called %d of them ok, with up to %d of %d acknowledged events gone", flips, flips, missed, lost, all)
	require.Positive(t, missed, "the damage is of the kind that SQLite does not tell")
}

func getenv(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// TestP7_WhatIsNotTheFileThatWasLeftIsNoticed: the other mutations.
func TestP7_WhatIsNotTheFileThatWasLeftIsNoticed(t *testing.T) {
	t.Parallel()
	killed := func(t *testing.T) (*place, files, files) {
		p := newPlace(t)
		p.killed(20)
		old := p.take()
		p.killed(20)
		return p, old, p.take()
	}
	t.Run("the log is missing", func(t *testing.T) {
		t.Parallel()
		p, _, now := killed(t)
		p.put(now.with("-wal", nil))
		require.Equal(t, edge.LossBehind, p.finds(sqlite.Options{}))
	})
	t.Run("an older copy", func(t *testing.T) {
		t.Parallel()
		p, old, now := killed(t)
		p.put(old.with(".mark", now[".mark"]))
		require.Equal(t, edge.LossBehind, p.finds(sqlite.Options{}))
	})
	t.Run("the side file is missing", func(t *testing.T) {
		t.Parallel()
		p, _, now := killed(t)
		p.put(now.with(".mark", nil))
		require.Equal(t, edge.LossUnmarked, p.finds(sqlite.Options{}))
	})
	t.Run("the side file is damaged", func(t *testing.T) {
		t.Parallel()
		p, _, now := killed(t)
		bad := bytes.Clone(now[".mark"])
		bad[40] ^= 1
		bad[4096+40] ^= 1
		p.put(now.with(".mark", bad))
		require.Equal(t, edge.LossUnmarked, p.finds(sqlite.Options{}))
	})
	t.Run("another node's database, further on", func(t *testing.T) {
		t.Parallel()
		p, _, now := killed(t)
		q := newPlace(t)
		q.worked(sqlite.Options{}, 100)
		other := q.take()
		p.put(other.with(".mark", now[".mark"]))
		require.Equal(t, edge.LossForeign, p.finds(sqlite.Options{}))
	})
	t.Run("a copy that went another way, further on", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		p.worked(sqlite.Options{}, 10)
		fork := p.take()
		p.worked(sqlite.Options{}, 10)
		here := p.take()
		p.put(fork)
		p.worked(sqlite.Options{}, 50)
		there := p.take()
		p.put(there.with(".mark", here[".mark"]))
		require.Equal(t, edge.LossForked, p.finds(sqlite.Options{}))
	})
	t.Run("the same file, worked on elsewhere", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		p.worked(sqlite.Options{}, 10)
		mark := p.take()[".mark"]
		p.worked(sqlite.Options{}, 50)
		p.put(p.take().with(".mark", mark))
		require.Equal(t, edge.LossAhead, p.finds(sqlite.Options{}))
	})
	t.Run("a copy in its place, with its side file", func(t *testing.T) {
		t.Parallel()
		p, old, _ := killed(t)
		for _, suffix := range []string{"", "-wal", ".mark"} {
			require.NoError(t, os.WriteFile(p.path+suffix+".copy", old[suffix], 0o600))
			require.NoError(t, os.Rename(p.path+suffix+".copy", p.path+suffix))
		}
		_ = os.Remove(p.path + "-shm")
		require.Equal(t, edge.LossCopied, p.finds(sqlite.Options{}))
	})
	t.Run("another machine", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		p.worked(sqlite.HostForTest(sqlite.Options{}, 1, 1), 10)
		require.Equal(t, edge.LossMoved, p.finds(sqlite.HostForTest(sqlite.Options{}, 2, 2)))
		now := p.take()
		p.put(now.with(".mark", nil))
		require.Equal(t, edge.LossUnmarked, p.finds(sqlite.HostForTest(sqlite.Options{}, 2, 2)))
	})
	t.Run("the database is gone", func(t *testing.T) {
		t.Parallel()
		p, _, now := killed(t)
		p.put(files{".mark": now[".mark"]})
		_, err := sqlite.Open(p.path, sqlite.Options{})
		require.ErrorIs(t, err, edge.ErrInvalid)
		require.ErrorContains(t, err, "is gone: by "+p.path+".mark it had")
		require.NoFileExists(t, p.path)
	})
}

// TestP7_NoFalseAlarm: what a kill, a good end, an upgrade and a power loss leave
// is taken as it is.
func TestP7_NoFalseAlarm(t *testing.T) {
	t.Parallel()
	t.Run("kills", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		for n := range 12 {
			p.killed(n)
			require.Empty(t, p.finds(sqlite.Options{}))
		}
	})
	t.Run("a kill between commit and side file", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		p.killed(10)
		older := olderSlot(t, p.take())
		p.put(older)
		require.Empty(t, p.finds(sqlite.Options{}))
	})
	t.Run("power loss", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		first := sqlite.HostForTest(sqlite.Options{}, 1, 1)
		s, err := sqlite.Open(p.path, first)
		require.NoError(t, err)
		register(t, s, edge.Registration{Name: "hook"})
		p.work(s, 5)
		mark := p.take()[".mark"] // what was synced last
		p.work(s, 500)
		after := p.take().with(".mark", mark)
		require.NoError(t, s.Close())
		p.put(after)
		require.Equal(t, edge.LossAhead, p.finds(first), "on the same start of the machine that cannot be")
		p.put(after)
		require.Empty(t, p.finds(sqlite.HostForTest(sqlite.Options{}, 1, 2)))
	})
	t.Run("a file of before", func(t *testing.T) {
		t.Parallel()
		path := unpack(t, 1)
		s := openAt(t, path, sqlite.Options{OnLoss: sqlite.LossRefuse})
		require.Nil(t, s.Hold())
		require.FileExists(t, path+".mark")
	})
	t.Run("a creation that was cut short", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		p.worked(sqlite.Options{}, 0)
		now := p.take()
		p.put(files{"": now[""]}) // before the side file was made... but for the registration
		require.Equal(t, edge.LossUnmarked, p.finds(sqlite.Options{}))
		q := newPlace(t)
		s, err := sqlite.Open(q.path, sqlite.Options{})
		require.NoError(t, err)
		require.NoError(t, s.Close())
		q.put(files{"": q.take()[""]})
		require.Empty(t, q.finds(sqlite.Options{}), "no commit was made yet")
		q.put(files{".mark": q.take()[".mark"]})
		require.Empty(t, q.finds(sqlite.Options{}), "a side file that vouches for nothing")
	})
	t.Run("sharers", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		a, b := opened(t, p.path, true), opened(t, p.path, true)
		for n := range 20 {
			c := []*child{a, b}[n%2]
			c.must(order{Do: "accept", Subs: []edge.Submission{submission(fmt.Sprint("s", n), "x")}})
		}
		at, err := sqlite.MarkForTest(p.path)
		require.NoError(t, err)
		require.EqualValues(t, 20, at-2, "each commit is in the side file, the two openings too")
		a.kill()
		b.kill()
		require.Empty(t, p.finds(sqlite.Options{}))
	})
}

// olderSlot makes the side file say what it said one write before.
func olderSlot(t *testing.T, f files) files {
	t.Helper()
	mark := bytes.Clone(f[".mark"])
	turns := [2]uint64{binary.LittleEndian.Uint64(mark[8:]), binary.LittleEndian.Uint64(mark[4096+8:])}
	newer := 0
	if turns[1] > turns[0] {
		newer = 1
	}
	require.NotEqual(t, turns[0], turns[1])
	clear(mark[newer*4096 : newer*4096+192])
	return f.with(".mark", mark)
}

// TestHold_EventsAreTakenAndNothingIsDispatched, until people have said so twice.
func TestHold_EventsAreTakenAndNothingIsDispatched(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.killed(10)
	now := p.take()
	p.put(now.with("-wal", now["-wal"][:frames2(now["-wal"])]))
	s := openAt(t, p.path, sqlite.Options{})
	hold := s.Hold()
	require.NotNil(t, hold)
	require.Equal(t, edge.LossBehind, hold.Kind)
	require.True(t, hold.Lost)
	register(t, s, edge.Registration{Name: "hook"})
	before := number(t, raw(t, p.path), `SELECT max(id) FROM events`)

	as, err := s.Accept(t.Context(), []edge.Submission{submission("new", "bob", "hook")})
	require.NoError(t, err)
	require.Greater(t, int64(as[0].Event), int64(1<<20), "no id is given out twice")
	require.Less(t, before, int64(1<<20))
	for _, seq := range []string{"event", "delivery", "execution", "target"} {
		require.GreaterOrEqual(t, number(t, raw(t, p.path), `SELECT `+seq+` FROM sequences`), int64(1<<20), seq)
	}
	require.Empty(t, claims(t, s))
	_, err = s.Acquire(t.Context(), edge.Target{Handler: "hook", Key: "z"})
	require.ErrorIs(t, err, edge.ErrConflict)
	f, err := s.Facts(t.Context(), as[0].Deliveries[0].ID)
	require.NoError(t, err)
	require.Contains(t, edge.Explain(f, 0), "on hold")

	vs, err := s.Check(t.Context(), false)
	require.NoError(t, err)
	require.Len(t, vs, 1)
	require.Equal(t, "loss_is_accepted", vs[0].Rule)

	// The hold outlives the process.
	require.NoError(t, s.Close())
	s = openAt(t, p.path, sqlite.Options{OnLoss: sqlite.LossRefuse})
	require.NotNil(t, s.Hold())
	register(t, s, edge.Registration{Name: "hook"})
	require.Empty(t, claims(t, s))

	_, err = s.Resume(t.Context(), edge.Decided{By: "ann", Reason: "go"})
	require.ErrorIs(t, err, edge.ErrConflict, "a loss is accepted first")
	_, err = s.AcceptLoss(t.Context(), edge.Decided{By: "ann"})
	require.ErrorIs(t, err, edge.ErrInvalid)
	l, err := s.AcceptLoss(t.Context(), edge.Decided{By: "ann", Reason: "producers send again"})
	require.NoError(t, err)
	require.True(t, l.Hold)
	require.Empty(t, claims(t, s))
	l, err = s.Resume(t.Context(), edge.Decided{By: "bea", Reason: "looked"})
	require.NoError(t, err)
	require.Nil(t, s.Hold())
	require.False(t, l.Hold)
	require.NotEmpty(t, claims(t, s))
	ls, err := s.Losses(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, ls, 1)
	require.Equal(t, "ann producers send again bea looked", ls[0].AcceptedBy+" "+ls[0].AcceptedReason+" "+ls[0].ResumedBy+" "+ls[0].ResumedReason)
}

// frames2 cuts a log in its middle.
func frames2(wal []byte) int { return 32 + (len(wal)-32)/(2*4120)*4120 }

func claims(t *testing.T, s *sqlite.Store) []edge.Claimed {
	t.Helper()
	cs, err := s.Claim(t.Context(), 8)
	require.NoError(t, err)
	return cs
}

// TestHold_EndsForADispatchThatWaits: resume wakes it.
func TestHold_EndsForADispatchThatWaits(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.worked(sqlite.HostForTest(sqlite.Options{}, 1, 1), 3)
	s := openAt(t, p.path, sqlite.HostForTest(sqlite.Options{}, 2, 1))
	register(t, s, edge.Registration{Name: "hook"})
	got := make(chan edge.Claimed, 8)
	go func() {
		_ = s.Dispatch(t.Context(), func(cs []edge.Claimed) {
			for _, c := range cs {
				got <- c
			}
		})
	}()
	for !s.DispatchesForTest(t.Context()) {
		runtime.Gosched()
	}
	// To a target of its own, so that nothing but the hold keeps it from being
	// begun in the commit that accepts it.
	as, err := s.Accept(t.Context(), []edge.Submission{submission("new", "a-target-of-its-own", "hook")})
	require.NoError(t, err)
	require.Equal(t, edge.Pending, as[0].Deliveries[0].State)
	require.Zero(t, number(t, raw(t, p.path), `SELECT count(*) FROM executions`))
	require.Empty(t, got)
	l, err := s.Resume(t.Context(), edge.Decided{By: "ann", Reason: "the other machine is off"})
	require.NoError(t, err, "nothing was lost, so there is nothing to accept")
	require.Equal(t, edge.LossMoved, l.Kind)
	for range 4 {
		<-got
	}
}

// TestClone_NewRowsBearANewName: what was numbered before the copy keeps its
// public ids and its idempotency keys.
func TestClone_NewRowsBearANewName(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.worked(sqlite.HostForTest(sqlite.Options{}, 1, 1), 2)
	there := sqlite.HostForTest(sqlite.Options{}, 2, 2)
	s := openAt(t, p.path, there)
	names := s.Names()
	require.Len(t, names, 2)
	old, fresh := names[0].Node, s.Node()
	require.NotEqual(t, old, fresh)
	register(t, s, edge.Registration{Name: "hook"})
	p.work(s, 1)
	_, err := s.Resume(t.Context(), edge.Decided{By: "ann", Reason: "go"})
	require.NoError(t, err)
	cs := claims(t, s)
	require.Len(t, cs, 3)
	require.Equal(t, edge.FormatID(edge.KindDelivery, old, 1), cs[0].DeliveryID)
	require.Equal(t, cs[0].DeliveryID, cs[0].Key)
	require.Equal(t, edge.FormatID(edge.KindEvent, old, 2), cs[1].EventID)
	require.Equal(t, edge.FormatID(edge.KindDelivery, fresh, int64(cs[2].Delivery)), cs[2].DeliveryID)
	require.Greater(t, int64(cs[2].Delivery), int64(1<<20))
	for _, c := range cs {
		n, err := names.Parse(edge.KindDelivery, c.DeliveryID)
		require.NoError(t, err)
		require.Equal(t, int64(c.Delivery), n)
	}
	_, err = names.Parse(edge.KindDelivery, edge.FormatID(edge.KindDelivery, old, 3))
	require.ErrorIs(t, err, edge.ErrNotFound, "the first machine may have given that to other work")
	for _, c := range cs {
		_, err := s.Settle(t.Context(), settlement(c, edge.OutcomeSucceeded))
		require.NoError(t, err)
	}
	// It is this machine's now.
	require.NoError(t, s.Close())
	require.Empty(t, p.finds(there))
	s = openAt(t, p.path, there)
	require.Equal(t, names, s.Names())
}

// TestNormal_APowerLossInsideTheWindowIsRecorded, and work goes on; one that goes
// further is a loss like any other.
func TestNormal_APowerLossInsideTheWindowIsRecorded(t *testing.T) {
	t.Parallel()
	clock := edge.ManualClock(1_700_000_000_000)
	at := func(boot byte) sqlite.Options {
		return sqlite.HostForTest(sqlite.Options{Durability: sqlite.DurabilityNormal, Clock: clock}, 1, boot)
	}
	p := newPlace(t)
	s, err := sqlite.Open(p.path, at(1))
	require.NoError(t, err)
	register(t, s, edge.Registration{Name: "hook"})
	p.work(s, 3)
	unsynced := p.take()
	clock.Advance(2e9)
	p.work(s, 1) // syncs what was committed
	synced := p.take()
	p.work(s, 5)
	left := p.take()
	require.NoError(t, s.Close())

	p.put(synced.with(".mark", left[".mark"])) // the power took what was not synced
	s = openAt(t, p.path, at(2))
	require.Nil(t, s.Hold())
	ls, err := s.Losses(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, ls, 1)
	require.Equal(t, edge.LossWindow, ls[0].Kind)
	require.EqualValues(t, 5, ls[0].ExpectedNo-ls[0].FoundNo)
	as, err := s.Accept(t.Context(), []edge.Submission{submission("new", "bob")})
	require.NoError(t, err)
	require.Greater(t, int64(as[0].Event), int64(1<<20))
	require.NoError(t, s.Close())

	p.put(synced) // and the side file went back too: what was lost cannot be told, that it may be is
	s = openAt(t, p.path, at(2))
	require.Nil(t, s.Hold())
	ls, err = s.Losses(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, ls, 1)
	require.Equal(t, edge.LossWindow, ls[0].Kind)
	require.Contains(t, ls[0].Detail, "or a later one")
	require.False(t, ls[0].Lost)
	require.NoError(t, s.Close())
	s = openAt(t, p.path, at(3)) // a clean stop says nothing of the kind
	ls, err = s.Losses(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, ls, 1)
	require.NoError(t, s.Close())

	p.put(synced.with(".mark", left[".mark"]))
	require.Equal(t, edge.LossBehind, p.finds(at(1)), "a crash of the process takes nothing")
	p.put(unsynced.with(".mark", left[".mark"]))
	require.Equal(t, edge.LossBehind, p.finds(at(2)), "what was synced is never taken by a power loss")
}

// TestFindingIsRecordedOnce, however often the start that found it is cut short.
func TestFindingIsRecordedOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.worked(sqlite.Options{}, 3)
	require.NoError(t, os.Remove(p.path+".mark"))
	for range 3 {
		s, err := sqlite.Open(p.path, sqlite.Options{})
		require.NoError(t, err)
		require.Equal(t, edge.LossUnmarked, s.Hold().Kind)
		require.NoError(t, s.Close())
		require.NoError(t, os.Remove(p.path+".mark"))
	}
	require.EqualValues(t, 1, number(t, raw(t, p.path), `SELECT count(*) FROM losses`))
}

// TestLook_ChangesNothing: a check of a file on which a start would hold says so
// and decides nothing.
func TestLook_ChangesNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.worked(sqlite.Options{}, 3)
	require.NoError(t, os.Remove(p.path+".mark"))
	s, err := sqlite.Open(p.path, sqlite.Options{OnLoss: sqlite.LossLook})
	require.NoError(t, err)
	vs, err := s.Check(t.Context(), true)
	require.NoError(t, err)
	require.Len(t, vs, 1)
	require.Equal(t, "side_file", vs[0].Rule)
	require.NoError(t, s.Close())
	require.NoFileExists(t, p.path+".mark")
	require.Zero(t, number(t, raw(t, p.path), `SELECT count(*) FROM losses`))
}
