package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fencepost/edge"

	"github.com/jmoiron/sqlx"
)

// phase is when an operation runs within its commit. Ends of executions come
// first, so that the target and the slot that they free are claimed again in
// the same commit; claims come before accepts, so that a newcomer does not
// overtake what is ready.
type phase int

const (
	phaseSettle phase = iota
	phaseClaim
	phaseAccept
	phases
)

// maxBatch bounds the operations of one commit unless Options say otherwise.
const maxBatch = 1024

// op is one operation. run works inside the writer's transaction. It checks its
// guards before its first write: when it returns an error that is not one of
// the database, it has written nothing that must not stay. It may be run again
// when a commit failed, so it sets its results anew each time.
type op struct {
	phase phase
	ends  bool  // it ends what is under way: stored on a full disk too
	bytes int64 // what it adds to the log at least
	run   func(tx *tx) error
	err   error
	done  chan struct{}
}

// writer owns the only write connection.
type writer struct {
	store *Store
	conn  *sqlx.Conn
	clock *edge.Clock
	owner int64 // owners.id of this opening, 0 until it first holds a lease

	mu     sync.Mutex
	inbox  []*op
	asides []*aside
	closed bool
	wake   chan struct{} // capacity 1
	ended  chan struct{}

	failOnce sync.Once
	failed   chan struct{}
	failErr  error

	watcher atomic.Pointer[func([]edge.Change)]
	given   atomic.Int64 // the latest execution whose claim its worker has been given

	// What follows belongs to the writer's goroutine.
	stmts      map[string]*sql.Stmt
	begin      *sql.Stmt
	commit     *sql.Stmt
	changeSeq  uint64
	cache      targetCache
	hands      handlers
	standing   *standing
	dataVer    int64
	present    *present
	mark       *mark // the side file; nil while the store only looks
	pruned     pruned
	backlog    backlog
	keeper     logKeeper
	calmUntil  time.Duration              // monotonic time until which the dispatch rests after a failed commit
	unsyncedAt time.Duration              // monotonic time of the first commit not yet synced (DurabilityNormal); 0 = none
	sinceLook  struct{ commits, ops int } // since the writer looked how long the log is
	wakeups    atomic.Int64               // passes of the loop, for the idle test
	commits    atomic.Int64
	operations atomic.Int64 // in those commits
}

// standing is the one registered Dispatch.
type standing struct {
	deliver func([]edge.Claimed)
}

func newWriter(ctx context.Context, s *Store, conn *sqlx.Conn) (*writer, error) {
	w := &writer{
		store:  s,
		conn:   conn,
		clock:  s.o.Clock,
		wake:   make(chan struct{}, 1),
		ended:  make(chan struct{}),
		failed: make(chan struct{}),
		stmts:  map[string]*sql.Stmt{},
	}
	w.keeper = logKeeper{bounds: standardLog, path: s.path + "-wal"}
	w.cache.reset()
	w.hands.init()
	var err error
	if w.present, err = newPresent(s.path); err != nil {
		return nil, err
	}
	if w.begin, err = conn.PrepareContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return nil, err
	}
	if w.commit, err = conn.PrepareContext(ctx, "COMMIT"); err != nil {
		return nil, err
	}
	go w.loop()
	return w, nil
}

func (w *writer) watch(fn func([]edge.Change)) {
	if fn == nil {
		w.watcher.Store(nil)
		return
	}
	w.watcher.Store(&fn)
}

// do runs one operation and returns after its commit. The wait does not end with
// ctx once the operation is queued: its outcome would be unknown.
func (w *writer) do(ctx context.Context, p phase, run func(tx *tx) error) error {
	return w.doOp(ctx, &op{phase: p, run: run})
}

// doEnd runs an operation that ends what is under way, or that writes nothing: it
// is run on a full disk too.
func (w *writer) doEnd(ctx context.Context, run func(tx *tx) error) error {
	return w.doOp(ctx, &op{phase: phaseSettle, ends: true, run: run})
}

func (w *writer) doOp(ctx context.Context, o *op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o.done = make(chan struct{})
	if err := w.enqueue(o); err != nil {
		return err
	}
	<-o.done
	return o.err
}

func (w *writer) enqueue(o *op) error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return edge.ErrClosed
	}
	w.inbox = append(w.inbox, o)
	w.mu.Unlock()
	w.poke()
	return nil
}

func (w *writer) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *writer) take(batch []*op) []*op {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.inbox), w.store.o.MaxBatch-len(batch))
	n = fitting(batch, w.inbox[:n])
	batch = append(batch, w.inbox[:n]...)
	if n == len(w.inbox) {
		w.inbox = nil
	} else {
		w.inbox = w.inbox[n:]
	}
	return batch
}

// maxBatchBytes bounds what one commit adds to the log: with it the log grows in
// steps that its keeper can follow.
const maxBatchBytes = 8 << 20

// fitting is how many of more may join batch; the first may always.
func fitting(batch, more []*op) int {
	sum := int64(0)
	for _, o := range batch {
		sum += o.bytes
	}
	for i, o := range more {
		if sum += o.bytes; sum > maxBatchBytes && len(batch)+i > 0 {
			return i
		}
	}
	return len(more)
}

// gather takes what waits, yields, and takes again until nothing more comes: the
// producers and workers that the last commit woke are given the time to come
// back, and an idle store still answers after one sync.
func (w *writer) gather() []*op {
	batch := w.take(nil)
	for {
		n := len(batch)
		if n == 0 || n >= w.store.o.MaxBatch {
			return batch
		}
		runtime.Gosched()
		if batch = w.take(batch); len(batch) == n {
			return batch
		}
	}
}

func (w *writer) loop() {
	defer close(w.ended)
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	for {
		w.runAsides()
		batch := w.gather()
		if len(batch) == 0 && !w.claimDue() && !w.syncDue() {
			if w.logDue() {
				w.tendLog()
				continue
			}
			if w.isClosed() {
				return
			}
			w.sleep(timer)
			w.wakeups.Add(1)
			continue
		}
		w.process(batch)
		w.tendLog()
	}
}

func (w *writer) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed && len(w.inbox) == 0 && len(w.asides) == 0
}

// sleep waits for an operation, or for the moment at which something becomes
// claimable. Nothing else wakes the writer.
func (w *writer) sleep(timer *time.Timer) {
	wait, ok := w.untilDue()
	if !ok {
		<-w.wake
		return
	}
	timer.Reset(wait)
	select {
	case <-w.wake:
	case <-timer.C:
	}
	timer.Stop()
}

// sharePoll is how often a sharing process looks for commits of others.
const sharePoll = 250 * time.Millisecond

// minTimer keeps a due time in the past from spinning the loop.
const minTimer = time.Millisecond

func (w *writer) untilDue() (time.Duration, bool) {
	wait, ok := time.Duration(0), false
	earlier := func(d time.Duration) {
		if d = max(d, minTimer); !ok || d < wait {
			wait, ok = d, true
		}
	}
	if w.err() != nil {
		return 0, false
	}
	if w.standing != nil {
		if ms := w.hands.nextDue(); ms > 0 && !w.store.space.low.Load() && w.store.Hold() == nil {
			earlier(time.Duration(ms-w.clock.NowMS()) * time.Millisecond)
			wait = max(wait, w.calmUntil-w.clock.Mono())
		}
		if w.store.o.Share {
			earlier(sharePoll)
		}
	}
	if w.unsyncedAt > 0 {
		earlier(w.unsyncedAt + unsyncedLimit - w.clock.Mono())
	}
	if w.keeper.retryAt > 0 {
		earlier(w.keeper.retryAt - w.clock.Mono())
	}
	return wait, ok
}

// unsyncedLimit bounds what DurabilityNormal may lose.
const unsyncedLimit = 900 * time.Millisecond

func (w *writer) syncDue() bool {
	return w.unsyncedAt > 0 && w.err() == nil && w.clock.Mono() >= w.unsyncedAt+unsyncedLimit
}

// claimDue reports whether the standing dispatch could claim something now.
func (w *writer) claimDue() bool {
	if w.standing == nil || w.isClosed() || w.err() != nil || w.clock.Mono() < w.calmUntil || w.store.space.low.Load() {
		return false
	}
	if w.store.o.Share && w.othersWrote() {
		return true
	}
	if w.store.Hold() != nil {
		return false
	}
	ms := w.hands.nextDue()
	return ms > 0 && ms <= w.clock.NowMS()
}

// othersWrote reports whether another process has committed, and forgets what
// was remembered of the file when one has.
func (w *writer) othersWrote() bool {
	var v int64
	row, err := w.stmt("PRAGMA data_version")
	if err != nil || row.QueryRow().Scan(&v) != nil {
		return false
	}
	if v == w.dataVer {
		return false
	}
	w.dataVer = v
	w.forget()
	if row, err = w.stmt(firstHold); err == nil {
		l, err := scanLoss(row.QueryRow())
		_ = w.store.keepHold(l, err)
	}
	return true
}

// forget drops what the writer remembers of the file: after a failed commit, or
// when another process wrote.
func (w *writer) forget() {
	w.cache.reset()
	w.hands.forget()
	w.pruned = pruned{}
	w.store.bytes.known = false
}

// process commits a batch and answers its operations.
func (w *writer) process(batch []*op) {
	if err := w.err(); err != nil {
		answer(batch, err)
		return
	}
	if batch = w.onlyEnds(batch); batch == nil {
		return
	}
	dispatching := w.standing != nil && w.clock.Mono() >= w.calmUntil && !w.store.space.low.Load()
	began, err := w.attempt(batch, dispatching)
	if err == nil {
		return
	}
	w.store.space.failed(err)
	if dispatching {
		// Do not let claims that cannot be stored spin the loop.
		w.calmUntil = w.clock.Mono() + calm
		w.store.log.Warn("commit failed; nothing of it was acknowledged", "err", err)
	}
	if w.err() != nil || !began {
		answer(batch, publicError(err))
		return
	}
	// The batch is void and nobody was answered. Run the operations again, one
	// per transaction, so that one that cannot be stored does not take the
	// others with it.
	for _, o := range w.onlyEnds(batch) {
		if _, err := w.attempt([]*op{o}, false); err != nil {
			w.store.space.failed(err)
			answer([]*op{o}, publicError(err))
		}
		if err := w.err(); err != nil {
			answer(batch, err)
			return
		}
	}
}

// calm is how long the standing dispatch rests after a commit that failed.
const calm = time.Second

// attempt runs a batch in one transaction and commits. On success it publishes
// and answers. On an error nothing is answered; began tells whether the
// transaction had begun.
func (w *writer) attempt(batch []*op, dispatching bool) (began bool, err error) {
	st := w.standing // an operation of the batch may end it, after something was claimed for it
	tx, err := w.beginTx()
	began = tx != nil
	if err == nil {
		if err = tx.runBatch(batch, dispatching); err == nil {
			err = tx.finish()
		}
	}
	if err == nil && tx.wrote {
		if gone := w.present.check(); gone != nil {
			w.fail(gone)
			err = w.err()
		} else {
			err = w.note(tx)
		}
	}
	if err == nil {
		err = w.bound(tx)
		if err == nil && tx.wrote {
			err = w.takeOver(len(batch))
		}
		if err == nil {
			w.publish(tx, st)
			if tx.wrote {
				w.operations.Add(int64(len(batch)))
			}
			answer(batch, nil)
			return true, nil
		}
	}
	if began {
		w.rollback(tx)
	}
	if classify(err) == terminal {
		if gone := w.present.check(); gone != nil { // what SQLite stumbled over has a cause that people can name
			err = gone
		}
		w.fail(err)
		err = w.err()
	}
	return began, err
}

// bound keeps the promise of DurabilityNormal: the log is synced at once when once
// work was started, and else within a second. The commit stands whatever comes
// of it; a sync that could not be done now is tried again with the next commit.
func (w *writer) bound(tx *tx) error {
	if w.store.o.Durability != DurabilityNormal {
		return nil
	}
	if w.unsyncedAt == 0 && tx.wrote {
		w.unsyncedAt = max(w.clock.Mono(), 1)
	}
	if !tx.onceRun && !w.syncDue() {
		return nil
	}
	err := w.sync()
	for range onceSyncs - 1 {
		if tx.onceRun && classify(err) == passing {
			err = w.sync()
		}
	}
	switch fault := classify(err); {
	case fault == terminal:
		return err
	case fault == passing && tx.onceRun:
		// The commit stands, but a handler must not begin on a start that
		// power loss could take back.
		w.fail(fmt.Errorf("start of once work could not be synced: %w", err))
		return err
	case fault == passing:
		w.unsyncedAt = max(w.clock.Mono(), 1)
		w.store.log.Warn("commits are not synced yet", "err", err)
		return nil
	}
	w.unsyncedAt = 0
	return w.markSynced()
}

// onceSyncs is how often the sync of a start of once work is tried. Each try waits
// for a busy database by itself.
const onceSyncs = 3

// sync makes what was committed so far survive power loss. A passive checkpoint
// does, but for what a reader keeps it from taking over: then SQLite may sync
// nothing, and a commit of its own at FULL does.
func (w *writer) sync() error {
	busy, pages, done, err := w.walCheckpoint("PASSIVE")
	if err != nil || !busy && done == pages {
		return err
	}
	ctx := context.Background()
	for _, text := range [...]string{
		`PRAGMA synchronous = FULL`,
		`BEGIN IMMEDIATE`,
		`UPDATE sequences SET syncs = syncs + 1 WHERE id = 1`, // what changes nothing writes nothing
		`COMMIT`,
	} {
		if _, err = w.conn.ExecContext(ctx, text); err != nil {
			_, _ = w.conn.ExecContext(ctx, "ROLLBACK")
			break
		}
	}
	if _, e := w.conn.ExecContext(ctx, `PRAGMA synchronous = NORMAL`); err == nil {
		err = e
	}
	return err
}

// publish hands out what a commit made known: changes, then claims.
func (w *writer) publish(tx *tx, st *standing) {
	if tx.wrote {
		w.commits.Add(1)
		w.store.bytes.committed(tx)
		w.backlog.committed(w.store)
	}
	for i := range tx.changes {
		w.changeSeq++
		tx.changes[i].Seq = w.changeSeq
	}
	if fn := w.watcher.Load(); fn != nil && len(tx.changes) > 0 {
		(*fn)(tx.changes)
	}
	if n := len(tx.claims); n > 0 {
		st.deliver(tx.claims)
		w.gave(tx.claims[n-1].Fence)
	}
}

// gave notes that a worker has been given its claim, and can name its lease when
// it renews.
func (w *writer) gave(id edge.ExecutionID) {
	for {
		last := w.given.Load()
		if int64(id) <= last || w.given.CompareAndSwap(last, int64(id)) {
			return
		}
	}
}

func answer(batch []*op, err error) {
	for _, o := range batch {
		if o.done == nil {
			continue
		}
		select {
		case <-o.done: // answered before; its caller may be reading err
			continue
		default:
		}
		if err != nil {
			o.err = err
		}
		close(o.done)
	}
}

func (w *writer) rollback(tx *tx) {
	_, _ = w.conn.ExecContext(context.Background(), "ROLLBACK") // no transaction is open when COMMIT ended it
	if tx != nil {
		tx.undoHeld()
		for _, undo := range slices.Backward(tx.undo) {
			undo()
		}
	}
	w.forget()
}

// fail ends the store for good. Nobody is acknowledged after it.
func (w *writer) fail(err error) {
	w.failOnce.Do(func() {
		w.failErr = fmt.Errorf("%w: %w", edge.ErrStorage, err)
		w.store.log.Error("storage fault: nothing more is stored by this process", "err", err)
		close(w.failed)
	})
}

func (w *writer) err() error {
	select {
	case <-w.failed:
		return w.failErr
	default:
		return nil
	}
}

func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.poke()
	<-w.ended
}

func (w *writer) closeConn() {
	select {
	case <-w.ended:
	default:
		w.close()
	}
	for _, s := range w.stmts {
		_ = s.Close()
	}
	_ = w.begin.Close()
	_ = w.commit.Close()
	_ = w.conn.Close()
}

// stmt returns the prepared statement for a constant SQL text.
func (w *writer) stmt(text string) (*sql.Stmt, error) {
	if s, ok := w.stmts[text]; ok {
		return s, nil
	}
	s, err := w.conn.PrepareContext(context.Background(), text)
	if err != nil {
		return nil, err
	}
	w.stmts[text] = s
	return s, nil
}

// ownerID returns the row of this opening in owners, making it at first use.
func (tx *tx) ownerID() (int64, error) {
	if tx.w.owner != 0 || tx.newOwner != 0 {
		return max(tx.w.owner, tx.newOwner), nil
	}
	const insert = `INSERT INTO owners (name, pid, config, opened_ms) VALUES (?, ?, ?, ?) RETURNING id`
	var id int64
	tx.wrote = true
	err := tx.row(insert, tx.w.store.owner, os.Getpid(), tx.w.store.o.Config, tx.now).Scan(&id)
	if err == nil {
		tx.newOwner = id
	}
	return id, err
}

var errNoRows = sql.ErrNoRows

func noRows(err error) bool { return errors.Is(err, errNoRows) }
