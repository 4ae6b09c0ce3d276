// Package sqlite is the durable store of fencepost: one SQLite file, one writer
// goroutine with group commit, a few read-only connections. It holds the only
// SQL of the program.
//
// Read schema.sql at the top of the repository first, then claim.go and
// settle.go: the two ends of an execution. writer.go has the group commit,
// target.go the one function that decides what is claimable. Each state change
// is in a file named after it, with its SQL beside it.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"fencepost/edge"

	"github.com/jmoiron/sqlx"
)

// Durability says what a commit survives.
type Durability string

const (
	// DurabilityFull: an acknowledged accept, start or settle survives power
	// loss. The default.
	DurabilityFull Durability = "full"
	// DurabilityNormal may lose about the last second at power loss, nothing
	// at a crash of the process. The start of once work is synced all the
	// same.
	DurabilityNormal Durability = "normal"
)

// Options of Open. The zero value is useful.
type Options struct {
	Clock      *edge.Clock  // nil means the system's clock
	Durability Durability   // "" means DurabilityFull
	Share      bool         // several processes work on one file; slower
	Config     string       // digest of the configuration; sharers must agree
	Logger     *slog.Logger // nil discards
	// MaxBatch is how many operations one commit may hold; 0 means 1024. 1
	// turns group commit off, which only a comparison wants.
	MaxBatch int
	// ReadTimeout bounds one read; 0 means 5 s.
	ReadTimeout time.Duration
	// OnLoss says what is done when commits have vanished; "" means LossHold.
	OnLoss OnLoss
	// Limits bound what waits and what the disk must have left.
	Limits Limits
	// ReserveBytes is the size of a file beside the database that takes room,
	// and gives it up when the disk is full, so that the ends of what is under
	// way can still be stored; 0 means none.
	ReserveBytes int64

	unmarked bool         // keep no side file and no ring, to measure what they cost
	free     *int64       // instead of the free bytes of the disk, in tests
	fake     *host        // instead of this machine, in tests
	restored *finding     // the database is a backup that is being restored
	step     func(string) // told of each step of an upgrade, in tests
}

// Store is the SQLite implementation of [edge.Store]. It is safe for use by many
// goroutines.
type Store struct {
	path   string
	o      Options
	names  edge.Names
	owner  string
	locks  *locks
	log    *slog.Logger
	w      *writer
	guard  *guard
	wdb    *sqlx.DB
	rdb    *sqlx.DB
	closed atomic.Bool
	once   sync.Once

	foreign foreignLeases
	limits  atomic.Pointer[Limits]
	space   *space
	readers readers
	bytes   bytesHeld
	refused atomic.Int64 // events refused: backlog or space
	bounds  listBounds

	copies       copies
	here         host      // this machine
	found        *finding  // what attend found, nil when all is well
	next         record    // of the side file
	before       sequences // ids before they jumped
	lastEnd      string
	machineKnown bool // the database names this machine
	hold         atomic.Pointer[edge.Loss]
}

var _ edge.Store = (*Store)(nil)

// Open opens the database at path and takes its lock, creating the file when
// there is none. An error that wraps edge.ErrInvalid means that the file was
// refused and is as it was; edge.ErrConflict that another process holds it;
// edge.ErrStorage that it is damaged; edge.ErrLowSpace that the disk is full: it
// can be opened when there is space.
func Open(path string, o Options) (*Store, error) {
	if err := processSettings(); err != nil {
		return nil, err
	}
	if o.Clock == nil {
		o.Clock = edge.NewClock(nil)
	}
	if o.MaxBatch <= 0 {
		o.MaxBatch = maxBatch
	}
	if o.Durability == "" {
		o.Durability = DurabilityFull
	}
	if o.OnLoss == "" {
		o.OnLoss = LossHold
	}
	if o.ReadTimeout <= 0 {
		o.ReadTimeout = 5 * time.Second
	}
	if o.Logger == nil {
		o.Logger = discard
	}
	s, err := openOnce(path, o)
	if err != nil && giveForOpening(path) {
		if s, err = openOnce(path, o); err == nil {
			s.space.full()
		}
	}
	if err != nil && diskIsFull(path) && forWantOfSpace(err) {
		return nil, fmt.Errorf("%w: the disk of %s is full, so it cannot be opened: %s", edge.ErrLowSpace, path, err.Error())
	}
	return s, err
}

var discard = slog.New(slog.DiscardHandler)

func openOnce(path string, o Options) (*Store, error) {
	s := &Store{path: path, o: o, owner: edge.NewName(), log: o.Logger, bounds: standardBounds}
	s.copies.ctx, s.copies.stop = context.WithCancel(context.Background())
	s.SetLimits(o.Limits)
	if err := s.open(context.Background()); err != nil {
		_ = s.closeHandles()
		if !errors.Is(err, edge.ErrInvalid) && classify(err) != notStorage {
			err = fmt.Errorf("%s: %w", path, publicError(err))
		}
		return nil, fmt.Errorf("open database: %w", err)
	}
	return s, nil
}

func (s *Store) open(ctx context.Context) error {
	if _, err := inspect(ctx, s.path); err != nil {
		return err
	}
	var err error
	if s.locks, err = takeLocks(s.path, s.owner, s.o.Share); err != nil {
		return err
	}
	exists, err := inspect(ctx, s.path)
	if err != nil {
		return err
	}
	if !exists {
		if err := create(ctx, s.path, s.o, s.o.Clock.NowMS()); err != nil {
			return err
		}
	}
	if err := s.attend(ctx); err != nil {
		return err
	}
	if err := s.openWriter(ctx); err != nil {
		return err
	}
	if err := s.openReaders(ctx); err != nil {
		return err
	}
	if err := s.keepMark(ctx); err != nil {
		return err
	}
	if s.guard, err = newGuard(s.w); err != nil {
		return err
	}
	removeStaleOwnerLocks(s.path, s.owner)
	if s.o.Share {
		if err := s.joinSharers(ctx); err != nil {
			return err
		}
	}
	s.space.watch()
	return nil
}

func (s *Store) openWriter(ctx context.Context) error {
	defer umask077()()
	var err error
	if s.wdb, err = openPool(s.path, s.o, false); err != nil {
		return err
	}
	s.wdb.SetMaxOpenConns(1)
	conn, err := s.wdb.Connx(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if s.w == nil {
			_ = conn.Close()
		}
	}()
	if err := s.upgrade(ctx, conn); err != nil {
		return err
	}
	// The latest time that this file knows to have passed.
	const seen = `SELECT max(
	    coalesce((SELECT accepted_ms FROM events ORDER BY id DESC LIMIT 1), 0),
	    coalesce((SELECT max(claimed_ms, coalesce(ended_ms, 0)) FROM executions ORDER BY id DESC LIMIT 1), 0),
	    coalesce((SELECT CAST(value AS INTEGER) FROM settings WHERE name = 'last_seen_ms'), 0))`
	var seenMS int64
	if err := conn.GetContext(ctx, &seenMS, seen); err != nil {
		return err
	}
	if s.o.Clock.NowMS() < seenMS-edge.StepDoubt.Milliseconds() {
		s.o.Clock.Doubt()
	}
	if s.space, err = newSpace(s); err != nil {
		return err
	}
	s.w, err = newWriter(ctx, s, conn)
	s.readers.left = func() { s.w.poke() }
	return err
}

// openReaders opens the pool of read-only connections. Two are enough: each
// busy reader takes the writer's core.
func (s *Store) openReaders(ctx context.Context) error {
	var err error
	if s.rdb, err = openPool(s.path, s.o, true); err != nil {
		return err
	}
	const readers = 2
	s.rdb.SetMaxOpenConns(readers)
	s.rdb.SetMaxIdleConns(readers)
	return s.rdb.PingContext(ctx)
}

// Node is the random id of the file.
func (s *Store) Node() string { return s.names.Node() }

// Names are the ids of the file, present and former; see [edge.Identity].
func (s *Store) Names() edge.Names { return s.names }

// Owner is the random id of this opening.
func (s *Store) Owner() string { return s.owner }

// Clock is the store's source of time.
func (s *Store) Clock() *edge.Clock { return s.o.Clock }

// Failed is closed when the store has failed for good.
func (s *Store) Failed() <-chan struct{} { return s.w.failed }

// Watch registers fn for committed changes; see [edge.Store].
func (s *Store) Watch(fn func([]edge.Change)) { s.w.watch(fn) }

// Close waits for the commit under way, ends the store and gives up its locks.
// Leases that are still held stay in the file, and the next opening finds their
// owner dead.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.copies.stop()
	s.copies.mu.Lock() // a copy gives the connection up before it goes
	defer s.copies.mu.Unlock()
	s.w.close()
	return s.closeHandles()
}

func (s *Store) closeHandles() error {
	var first error
	s.once.Do(func() {
		if s.space != nil {
			s.space.close()
		}
		if s.guard != nil {
			s.guard.close()
		}
		if s.rdb != nil {
			first = s.rdb.Close()
		}
		if s.w != nil {
			s.w.closeConn()
		}
		if s.wdb != nil {
			if err := s.wdb.Close(); first == nil {
				first = err
			}
		}
		if s.w != nil && s.w.mark != nil { // after the database: what it has not synced, the side file must not vouch for
			clean := first == nil && !s.o.Share && s.w.err() == nil
			if err := s.w.mark.close(clean); first == nil {
				first = err
			}
		}
		if s.locks != nil {
			s.locks.release()
		}
	})
	return first
}

// Commits is how many commits have written something since opening.
func (s *Store) Commits() int64 { return s.w.commits.Load() }

// Wakeups is how often the writer has woken since opening, whether or not it
// found something to do.
func (s *Store) Wakeups() int64 { return s.w.wakeups.Load() }
