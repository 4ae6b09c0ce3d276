package sqlite

import "database/sql"

// Pages that pruning frees are used again, and what is free beyond a share of the
// file is given back to the file system, a few pages at a time: moving one costs
// a read and two writes, under which other writers wait.
const (
	givePages = 64   // pages of one step
	sparePage = 2048 // free pages that are always left for use
	spareRate = 4    // and one in so many of the file
)

// giveBack gives up to givePages free pages back. It reports whether there are
// more to give. A file that was made before this was possible keeps its size.
func (tx *tx) giveBack() (more bool, err error) {
	var mode, free, all int64
	for _, p := range [...]struct {
		text string
		to   *int64
	}{{"PRAGMA auto_vacuum", &mode}, {"PRAGMA freelist_count", &free}, {"PRAGMA page_count", &all}} {
		if err := tx.row(p.text).Scan(p.to); err != nil {
			return false, err
		}
	}
	const incremental = 2
	spare := max(sparePage, all/spareRate)
	if mode != incremental || free <= spare {
		return false, nil
	}
	tx.wrote = true
	const vacuum = "PRAGMA incremental_vacuum(64)" // givePages; a pragma takes no parameter
	err = tx.each(vacuum, func(*sql.Rows) error { return nil })
	return free-givePages > spare, err
}
