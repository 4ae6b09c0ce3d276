package sqlite

const (
	// longLog is how many pages the log may hold before the writer takes them
	// over into the database.
	longLog = 2000
	// lookCommits and lookOps are after how much the writer looks how long the
	// log has become: a small commit is some twenty pages.
	lookCommits = 16
	lookOps     = 64
)

// takeOver takes a long log over into the database, as far as readers let it.
// SQLite would do so by itself at the end of a commit, but says nothing when that
// fails, and tries again later. A sync that failed must not be tried again: the
// kernel may have dropped the pages and then calls the second one good, after
// which the log, the only whole copy, is overwritten. So the writer does it, and
// an error is judged like that of a commit. The commit before it stands.
func (w *writer) takeOver(ops int) error {
	w.sinceLook.commits++
	w.sinceLook.ops += ops
	if w.sinceLook.commits < lookCommits && w.sinceLook.ops < lookOps {
		return nil
	}
	w.sinceLook.commits, w.sinceLook.ops = 0, 0
	_, pages, _, err := w.walCheckpoint("NOOP")
	if err == nil && pages >= longLog {
		_, _, _, err = w.walCheckpoint("PASSIVE")
	}
	if classify(err) == terminal {
		return err
	}
	return nil // a busy database is not a fault: the next look tries again
}

// walCheckpoint runs a checkpoint. pages is how many the log has, done how many of
// them are in the database; a NOOP only counts.
func (w *writer) walCheckpoint(mode string) (busy bool, pages, done int, err error) {
	err = w.pragma("PRAGMA wal_checkpoint("+mode+")", &busy, &pages, &done)
	return busy, pages, done, err
}
