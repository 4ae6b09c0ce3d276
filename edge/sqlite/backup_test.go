package sqlite_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

// childUpgrade opens a database and kills itself at a step of the upgrade.
func childUpgrade(path, at string) {
	kill := func(step string) {
		if step == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	s, err := sqlite.Open(path, sqlite.StepsForTest(sqlite.Options{Clock: edge.ManualClock(fixtureMS)}, kill))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = s.Close()
}

// childRestore restores and kills itself at a step.
func childRestore(path, from, at string) {
	o := sqlite.RestoreOptions{Decided: edge.Decided{By: "test", Reason: "test"}, Clock: edge.ManualClock(fixtureMS)}
	_, err := sqlite.Restore(context.Background(), path, from, sqlite.RestoreStepsForTest(o, func(step string) {
		if step == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestP11_R79_BackupsUnderLoad makes backups while four producers write. Each is
// whole, and holds all that was acknowledged before it began. FENCEPOST_BACKUPS
// makes it longer.
func TestP11_R79_BackupsUnderLoad(t *testing.T) {
	t.Parallel()
	rounds, err := strconv.Atoi(getenv("FENCEPOST_BACKUPS", "5"))
	require.NoError(t, err)
	dir := t.TempDir()
	s, err := sqlite.Open(filepath.Join(dir, "db"), sqlite.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	register(t, s, edge.Registration{Name: "hook"})

	var acked, worst atomic.Int64
	stop := make(chan struct{})
	turns := make(chan struct{}, 200) // a round's: without a bound each backup takes a tenth longer than the one before
	var producers sync.WaitGroup
	for p := range 4 {
		producers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-turns:
				}
				sub := submission(fmt.Sprint(p, "-", n), fmt.Sprint(n%50), "hook")
				sub.Event.Data = []byte(strings.Repeat("x", 2000))
				from := time.Now()
				if _, err := s.Accept(context.Background(), []edge.Submission{sub}); err != nil {
					panic(err)
				}
				for d := int64(time.Since(from)); ; {
					if was := worst.Load(); d <= was || worst.CompareAndSwap(was, d) {
						break
					}
				}
				acked.Add(1)
			}
		})
	}
	var grown []int64
	for n := range rounds {
		for len(turns) < cap(turns) {
			turns <- struct{}{}
		}
		for acked.Load() < int64(100*(n+1)) {
			<-time.After(time.Millisecond)
		}
		before := acked.Load()
		path := filepath.Join(dir, fmt.Sprint("copy", n))
		r, err := s.Backup(t.Context(), path)
		require.NoError(t, err)
		require.GreaterOrEqual(t, r.Commit, r.FromNo)
		fi, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), fi.Mode().Perm())
		require.Equal(t, r.Bytes, fi.Size())
		db := raw(t, path)
		has := number(t, db, `SELECT count(*) FROM events`)
		require.GreaterOrEqual(t, has, before, "all that was acknowledged before it began")
		require.Equal(t, r.Commit, number(t, db, `SELECT commit_no FROM sequences`))
		var ok string
		require.NoError(t, db.QueryRow(`PRAGMA integrity_check`).Scan(&ok))
		require.Equal(t, "ok", ok)
		require.NoError(t, db.Close())
		grown = append(grown, acked.Load()-before)
		require.NoError(t, os.Remove(path))
	}
	close(stop)
	producers.Wait()
	require.Positive(t, slices.Max(grown), "the load went on during the backups")
	left, err := filepath.Glob(filepath.Join(dir, "*.part-*"))
	require.NoError(t, err)
	require.Empty(t, left)
	t.Logf("%d backups, %d events acknowledged, %d at least during each; the longest wait of a producer was %s, promised 250 ms",
		rounds, acked.Load(), slices.Min(grown), time.Duration(worst.Load()))
	if rounds >= 100 {
		require.Less(t, time.Duration(worst.Load()), 250*time.Millisecond)
	}
}

// TestP11_TheWriterIsNeverHeldUpForLong: a backup is many short steps, and commits
// come in between.
func TestP11_TheWriterIsNeverHeldUpForLong(t *testing.T) {
	t.Parallel()
	s := openAt(t, dbPath(t), sqlite.Options{Clock: edge.NewClock(nil)})
	for n := range 40 {
		sub := submission(fmt.Sprint("big", n), "x")
		sub.Event.Data = []byte(strings.Repeat("y", 200_000))
		_, err := s.Accept(t.Context(), []edge.Submission{sub})
		require.NoError(t, err)
	}
	done := make(chan error, 1)
	path := filepath.Join(t.TempDir(), "copy")
	go func() { _, err := s.Backup(t.Context(), path); done <- err }()
	n := 0
	for running := true; running; n++ {
		select {
		case err := <-done:
			require.NoError(t, err)
			running = false
		default:
			_, err := s.Accept(t.Context(), []edge.Submission{submission(fmt.Sprint("small", n), "x")})
			require.NoError(t, err)
		}
	}
	require.Greater(t, n, 5, "commits between the steps")
	require.FileExists(t, path)
}

// TestBackup_DangerousTargetsAreRefused, and nothing is left of a backup that was
// not made.
func TestBackup_DangerousTargetsAreRefused(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	s := openAt(t, path, sqlite.Options{})
	dir := t.TempDir()
	taken := filepath.Join(dir, "taken")
	require.NoError(t, os.WriteFile(taken, []byte("mine"), 0o600))
	require.NoError(t, os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "link")))
	alias := filepath.Join(t.TempDir(), "alias")
	require.NoError(t, os.Symlink(filepath.Dir(path), alias))
	for to, want := range map[string]error{
		filepath.Join(alias, filepath.Base(path)+"-journal"): edge.ErrInvalid,
		"relative":                       edge.ErrInvalid,
		path:                             edge.ErrInvalid,
		path + "-wal":                    edge.ErrInvalid,
		path + "-journal":                edge.ErrInvalid,
		path + ".mark":                   edge.ErrInvalid,
		path + ".owner-abc":              edge.ErrInvalid,
		filepath.Join(dir, "no", "copy"): edge.ErrInvalid,
		taken:                            edge.ErrConflict,
		filepath.Join(dir, "link"):       edge.ErrConflict,
	} {
		_, err := s.Backup(t.Context(), to)
		require.ErrorIs(t, err, want, to)
	}
	data, err := os.ReadFile(taken)
	require.NoError(t, err)
	require.Equal(t, "mine", string(data))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Backup(ctx, filepath.Join(dir, "cut"))
	require.Error(t, err)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2, "nothing half-written is left")
}

// TestBackup_ThatWouldFillTheDiskIsRefused before it takes any space: the node on
// that disk would take no more events.
func TestBackup_ThatWouldFillTheDiskIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openAt(t, dbPath(t), sqlite.FreeForTest(sqlite.Options{Clock: edge.ManualClock(fixtureMS)}, 1<<20))
	_, err := s.Backup(t.Context(), filepath.Join(dir, "copy"))
	require.ErrorIs(t, err, edge.ErrLowSpace)
	require.ErrorContains(t, err, "1 MiB are free in "+dir)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)

	const mib = 1 << 20
	o := sqlite.FreeForTest(sqlite.Options{Clock: edge.ManualClock(fixtureMS), Limits: sqlite.Limits{LowWaterBytes: 64 * mib}}, 40*mib)
	path := dbPath(t)
	s = openAt(t, path, o)
	_, err = s.Backup(t.Context(), path+".copy")
	require.ErrorIs(t, err, edge.ErrLowSpace, "what the node must keep free is kept free")
}

// TestDecisions_AreBound: whoever decides, through a node or on the file.
func TestDecisions_AreBound(t *testing.T) {
	t.Parallel()
	p, copied := backedUp(t)
	long := strings.Repeat("x", edge.MaxDecisionBytes+1)
	s := openAt(t, dbPath(t), sqlite.Options{})
	for _, d := range []edge.Decided{{By: "ann"}, {By: "ann", Reason: long}, {By: long, Reason: "looked"}, {Reason: "\xff"}} {
		_, err := s.AcceptLoss(t.Context(), d)
		require.ErrorIs(t, err, edge.ErrInvalid)
		_, err = s.Resume(t.Context(), d)
		require.ErrorIs(t, err, edge.ErrInvalid)
		_, err = sqlite.Restore(t.Context(), p.path, copied, sqlite.RestoreOptions{Decided: d})
		require.ErrorIs(t, err, edge.ErrInvalid)
	}
}

// TestBackup_EndsWithTheStore: a close waits for it, and none is left.
func TestBackup_EndsWithTheStore(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	s, err := sqlite.Open(path, sqlite.Options{})
	require.NoError(t, err)
	to := filepath.Join(t.TempDir(), "copy")
	var both sync.WaitGroup
	for range 4 {
		both.Go(func() { _, _ = s.Backup(context.Background(), to) })
	}
	require.NoError(t, s.Close())
	both.Wait()
	_, err = s.Backup(t.Context(), to+"2")
	require.ErrorIs(t, err, edge.ErrClosed)
}

func restoreOptions() sqlite.RestoreOptions {
	return sqlite.RestoreOptions{Decided: edge.Decided{By: "ann", Reason: "the disk died"}, Clock: edge.ManualClock(1_700_000_000_000)}
}

// backedUp is a place with a backup of its first events, and more since.
func backedUp(t *testing.T) (p *place, copied string) {
	t.Helper()
	p = newPlace(t)
	s, err := sqlite.Open(p.path, sqlite.Options{})
	require.NoError(t, err)
	register(t, s, edge.Registration{Name: "hook"})
	p.work(s, 10)
	copied = filepath.Join(t.TempDir(), "copy")
	_, err = s.Backup(t.Context(), copied)
	require.NoError(t, err)
	p.work(s, 10)
	require.NoError(t, s.Close())
	return p, copied
}

func TestRestore_IsOnHoldAndGivesNoIdTwice(t *testing.T) {
	t.Parallel()
	p, copied := backedUp(t)
	old := p.take()
	r, err := sqlite.Restore(t.Context(), p.path, copied, restoreOptions())
	require.NoError(t, err)
	require.False(t, r.Renamed, "it is the same place")
	require.EqualValues(t, 10, r.ExpectedNo-r.Commit)
	require.Equal(t, []string{p.path + ".replaced-1", p.path + ".replaced-1.mark"}, r.Aside)
	aside, err := os.ReadFile(r.Aside[0])
	require.NoError(t, err)
	require.Equal(t, old[""], aside)

	s := openAt(t, p.path, sqlite.Options{OnLoss: sqlite.LossRefuse})
	require.NotNil(t, s.Hold())
	require.Equal(t, edge.LossRestored, s.Hold().Kind)
	require.Equal(t, "the disk died", s.Hold().AcceptedReason)
	register(t, s, edge.Registration{Name: "hook"})
	require.Empty(t, claims(t, s))
	p.n = 100
	p.work(s, 1)
	require.Greater(t, number(t, raw(t, p.path), `SELECT max(id) FROM events`), int64(20+1<<20), "past what the replaced one gave out")
	_, err = s.Resume(t.Context(), edge.Decided{By: "ann", Reason: "looked"})
	require.NoError(t, err)
	require.NotEmpty(t, claims(t, s))
}

func TestRestore_ToANewPlaceBearsANewName(t *testing.T) {
	t.Parallel()
	_, copied := backedUp(t)
	path := dbPath(t)
	r, err := sqlite.Restore(t.Context(), path, copied, restoreOptions())
	require.NoError(t, err)
	require.True(t, r.Renamed)
	require.Empty(t, r.Aside)
	s := openAt(t, path, sqlite.Options{OnLoss: sqlite.LossRefuse})
	require.Equal(t, r.Node, s.Node())
	require.Len(t, s.Names(), 2)
}

func TestRestore_WhatIsNotSoundIsRefused(t *testing.T) {
	t.Parallel()
	p, copied := backedUp(t)
	good, err := os.ReadFile(copied)
	require.NoError(t, err)
	before := p.take()
	refuse := func(name string, data []byte) {
		t.Helper()
		bad := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(bad, data, 0o600))
		_, err := sqlite.Restore(t.Context(), p.path, bad, restoreOptions())
		require.ErrorIs(t, err, edge.ErrInvalid, name)
		require.Equal(t, before, p.take(), name)
	}
	refuse("cut", good[:len(good)/2])
	refuse("empty", nil)
	refuse("text", []byte("not a database"))
	flipped := slices.Clone(good)
	flipped[strings.LastIndex(string(good), "data of w")] ^= 1 // of a body
	refuse("flipped", flipped)
	_, err = sqlite.Restore(t.Context(), p.path, p.path, restoreOptions())
	require.ErrorIs(t, err, edge.ErrInvalid)
	_, err = sqlite.Restore(t.Context(), p.path, copied+"x", restoreOptions())
	require.ErrorIs(t, err, edge.ErrNotFound)
	o := restoreOptions()
	o.Reason = ""
	_, err = sqlite.Restore(t.Context(), p.path, copied, o)
	require.ErrorIs(t, err, edge.ErrInvalid)
	s := openAt(t, p.path, sqlite.Options{})
	_, err = sqlite.Restore(t.Context(), p.path, copied, restoreOptions())
	require.ErrorIs(t, err, edge.ErrConflict, "a node works on it")
	require.Nil(t, s.Hold())
	left, err := filepath.Glob(p.path + ".part-*")
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestRestore_KilledAtEachStep: then the old database is there, or a start refuses,
// and a second restore goes through.
func TestRestore_KilledAtEachStep(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"copied", "prepared", "moved", "moved-wal", "mark", "done"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			p, copied := backedUp(t)
			p.killed(3) // so that there is a log to move
			c := childCommand(t, "restore", p.path, copied, step)
			require.Error(t, c.Run())
			require.Equal(t, syscall.SIGKILL, c.ProcessState.Sys().(syscall.WaitStatus).Signal(), "it was killed where it should be")
			s, err := sqlite.Open(p.path, sqlite.Options{OnLoss: sqlite.LossRefuse})
			switch step {
			case "copied", "prepared":
				require.NoError(t, err)
				require.Nil(t, s.Hold(), "the old one")
			case "done":
				require.NoError(t, err)
				require.Equal(t, edge.LossRestored, s.Hold().Kind)
			default:
				require.ErrorIs(t, err, edge.ErrInvalid)
				require.NoFileExists(t, p.path)
			}
			if err == nil {
				require.NoError(t, s.Close())
			}
			_, err = sqlite.Restore(t.Context(), p.path, copied, restoreOptions())
			require.NoError(t, err)
			s = openAt(t, p.path, sqlite.Options{OnLoss: sqlite.LossRefuse})
			require.NotNil(t, s.Hold())
		})
	}
}

// TestP28_AnUpgradeIsKilledAtEachStep: the schema is the one of before or of after
// a step, and the next start goes through with every row.
func TestP28_AnUpgradeIsKilledAtEachStep(t *testing.T) {
	t.Parallel()
	steps := []string{"copy", "copied", "proved", "kept", "migrated"}
	for n := 2; n <= sqlite.SchemaVersion(); n++ {
		steps = append(steps, fmt.Sprint("migrate ", n))
	}
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			path := unpack(t, 1)
			db := raw(t, path)
			before := rowCounts(t, db)
			require.NoError(t, db.Close())
			c := childCommand(t, "upgrade", path, step)
			require.Error(t, c.Run())
			require.Equal(t, syscall.SIGKILL, c.ProcessState.Sys().(syscall.WaitStatus).Signal(), "it was killed where it should be")
			db = raw(t, path)
			version := number(t, db, `PRAGMA user_version`)
			require.NoError(t, db.Close())
			switch n, isStep := strings.CutPrefix(step, "migrate "); {
			case isStep:
				require.Equal(t, n, fmt.Sprint(version+1))
			case step == "migrated":
				require.EqualValues(t, sqlite.SchemaVersion(), version)
			default:
				require.EqualValues(t, 1, version)
			}
			s := openAt(t, path, sqlite.Options{Clock: edge.ManualClock(fixtureMS), OnLoss: sqlite.LossRefuse})
			require.Nil(t, s.Hold())
			require.Equal(t, before, rowCounts(t, raw(t, path)))
			left, err := filepath.Glob(path + "*.part-*")
			require.NoError(t, err)
			require.Empty(t, left)
			kept := raw(t, path+".schema-1")
			require.EqualValues(t, 1, number(t, kept, `PRAGMA user_version`))
			require.Equal(t, before, rowCounts(t, kept))
		})
	}
}

// TestR86_AnUpgradeWithoutSpaceChangesNothing.
func TestR86_AnUpgradeWithoutSpaceChangesNothing(t *testing.T) {
	t.Parallel()
	path := unpack(t, 1)
	_, err := sqlite.Open(path, sqlite.FreeForTest(sqlite.Options{Clock: edge.ManualClock(fixtureMS)}, 1<<20))
	require.ErrorIs(t, err, edge.ErrLowSpace)
	require.ErrorContains(t, err, "nothing was changed")
	require.NoFileExists(t, path+".schema-1")
	require.EqualValues(t, 1, number(t, raw(t, path), `PRAGMA user_version`))
	s, err := sqlite.Open(path, sqlite.FreeForTest(sqlite.Options{Clock: edge.ManualClock(fixtureMS)}, 1<<30))
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.FileExists(t, path+".schema-1")
}

// TestUpgrade_ForeignCopyIsNotTouched: something else under the name of the copy.
func TestUpgrade_ForeignCopyIsNotTouched(t *testing.T) {
	t.Parallel()
	path := unpack(t, 1)
	require.NoError(t, os.WriteFile(path+".schema-1", []byte("mine"), 0o600))
	_, err := sqlite.Open(path, sqlite.Options{Clock: edge.ManualClock(fixtureMS)})
	require.ErrorIs(t, err, edge.ErrConflict)
	data, err := os.ReadFile(path + ".schema-1")
	require.NoError(t, err)
	require.Equal(t, "mine", string(data))
	require.NotErrorIs(t, err, os.ErrNotExist)
}
