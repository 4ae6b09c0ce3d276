package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"fencepost/edge"

	"github.com/gofrs/flock"
)

// A database has one lock file beside it. One opening holds it exclusively; with
// Share several hold it together. Each opening also holds a lock file of its
// own, named after its owner id, which proves that it lives: the system drops
// the lock when the process dies, however it dies.
type locks struct {
	path  string
	file  *flock.Flock
	owner *flock.Flock
}

type holder struct {
	PID   int    `json:"pid"`
	Owner string `json:"owner"`
}

func lockPath(db string) string { return db + ".lock" }

func ownerLockPath(db, owner string) string { return db + ".owner-" + owner }

// takeLocks takes both locks or returns an error that names the holder.
func takeLocks(db, owner string, share bool) (*locks, error) {
	defer umask077()()
	l := &locks{path: db}
	for _, path := range []string{lockPath(db), ownerLockPath(db, owner)} {
		if err := privateFile(path); err != nil {
			return nil, refused(err)
		}
	}
	l.file = flock.New(lockPath(db), flock.SetPermissions(0o600))
	take := l.file.TryLock
	if share {
		take = l.file.TryRLock
	}
	ok, err := takePatiently(db, take)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", lockPath(db), err)
	}
	if !ok {
		return nil, fmt.Errorf("%w: %s is in use by %s; stop it first, or use the command line beside it", edge.ErrConflict, db, holderOf(db))
	}
	if l.owner, err = lockOwner(ownerLockPath(db, owner)); err != nil {
		_ = l.file.Unlock()
		return nil, err
	}
	text, err := json.Marshal(holder{os.Getpid(), owner})
	if err == nil {
		// For people only; the lock itself is what counts.
		err = os.WriteFile(lockPath(db), append(text, '\n'), 0o600)
	}
	if err != nil {
		l.release()
		return nil, err
	}
	return l, nil
}

// lockOwner takes the lock that proves an opening alive. A process that tidies up
// may remove the file between its making and its locking. Then it is made again:
// a lock on a file that has lost its name proves nothing.
func lockOwner(path string) (*flock.Flock, error) {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		f := flock.New(path, flock.SetPermissions(0o600))
		if _, err := f.TryLockContext(ctx, time.Millisecond); err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if named(f) {
			return f, nil
		}
		_ = f.Unlock()
	}
}

// named reports whether the file that f has locked still has its name.
func named(f *flock.Flock) bool {
	locked, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(f.Path())
	return err == nil && os.SameFile(locked, there)
}

// lookPatience bounds the wait for a process that looks at a database on which
// none works.
const lookPatience = 5 * time.Second

// takePatiently takes the lock of a database. An opening that lives is not waited
// for; when the lock is held and the one that it names is gone, somebody looks at
// the file (see OpenReadOnly), which soon ends.
func takePatiently(db string, take func() (bool, error)) (bool, error) {
	const step = 5 * time.Millisecond
	for waited := time.Duration(0); ; waited += step {
		ok, err := take()
		if ok || err != nil || waited >= lookPatience {
			return ok, err
		}
		if _, lives := readHolder(db); lives {
			return false, nil
		}
		pause(step)
	}
}

// readHolder is the opening that the lock file names, in words, and whether it
// lives. One that does not is not who holds the lock.
func readHolder(db string) (who string, lives bool) {
	text, err := os.ReadFile(lockPath(db))
	var h holder
	if err != nil || json.Unmarshal(text, &h) != nil || h.PID == 0 || filepath.Base(h.Owner) != h.Owner {
		return anotherProcess, false
	}
	f := flock.New(ownerLockPath(db, h.Owner), flock.SetFlag(os.O_RDONLY))
	free, err := f.TryRLock()
	if free {
		_ = f.Unlock()
	}
	if free || err != nil {
		return anotherProcess, false
	}
	return fmt.Sprintf("process %d (owner %s)", h.PID, h.Owner), true
}

func holderOf(db string) string {
	who, _ := readHolder(db)
	return who
}

const anotherProcess = "another process"

func (l *locks) release() {
	if l.owner != nil {
		_ = os.Remove(l.owner.Path())
		_ = l.owner.Unlock()
	}
	if l.file != nil {
		_ = l.file.Unlock()
	}
}

// ownerIsDead reports whether the opening that used this owner id is gone: its
// lock can be taken, or its lock file has been removed.
func ownerIsDead(db, owner string) bool {
	path := ownerLockPath(db, owner)
	for {
		if _, err := os.Lstat(path); os.IsNotExist(err) {
			return true
		}
		f := flock.New(path, flock.SetPermissions(0o600))
		ok, err := f.TryLock()
		if err != nil || !ok {
			return false
		}
		if named(f) {
			_ = os.Remove(path)
			_ = f.Unlock()
			return true
		}
		// What was locked has been removed meanwhile; the name may be another's.
		_ = f.Unlock()
	}
}

// removeStaleOwnerLocks removes the lock files of dead owners.
func removeStaleOwnerLocks(db, self string) {
	paths, err := filepath.Glob(ownerLockPath(globEscape(db), "*"))
	if err != nil {
		return
	}
	prefix := ownerLockPath(db, "")
	for _, p := range paths {
		if owner := strings.TrimPrefix(p, prefix); owner != self && privateFile(p) == nil {
			ownerIsDead(db, owner)
		}
	}
}

func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}
