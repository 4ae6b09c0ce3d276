package sqlite

import (
	"errors"
	"fmt"

	"fencepost/edge"
)

// OnLoss says what Open does when database and side file disagree.
type OnLoss string

const (
	// LossHold takes events and dispatches nothing until a person has decided.
	// The default.
	LossHold OnLoss = "hold"
	// LossRefuse refuses to open.
	LossRefuse OnLoss = "refuse"
	// LossLook only looks: Check reports it, and nothing is decided. The store
	// must not be written to.
	LossLook OnLoss = "look"
)

// idJump is how far the ids jump when some may have been given out that the
// file does not know.
const idJump = 1 << 20

// finding is a disagreement between database and side file.
type finding struct {
	edge.Loss
	expectedChain int64
	foundChain    int64
	over          sequences    // ids that the side file has seen given out
	rename        bool         // what is numbered from now on bears a new name
	accepted      edge.Decided // of a restore, by whoever did it
	jump          bool         // ids may have been given out that the file does not know
}

// LossError says that a database was not opened because something was lost. It
// wraps [edge.ErrStorage].
type LossError struct {
	Path string
	Loss edge.Loss
}

func (e *LossError) Error() string {
	return fmt.Sprintf("%s: %s; on_loss is \"refuse\", so nothing was started and nothing changed. %s", e.Path, e.Loss.Detail, e.wayOut())
}

func (e *LossError) wayOut() string {
	if e.Loss.Lost {
		return "Restore a backup, or say that work goes on with what is there: fencepost accept-loss --reason TEXT"
	}
	return "Nothing is lost. Look whether another node works on a copy of this file, then: fencepost resume --reason TEXT"
}

// Unwrap returns edge.ErrStorage.
func (e *LossError) Unwrap() error { return edge.ErrStorage }

// fresh reports a database that no commit with a chain was made to: a new one,
// or one of a build that kept no side file.
func (st *fileState) fresh() bool { return st.seq.chain == 0 }

func (st *fileState) has(no, chain int64) bool {
	c, ok := st.ring[no]
	return ok && c == chain
}

// judge compares a database with its side file. It returns nil when the side
// file names a commit of the database that it may be at. alone says that no
// other process is at work on the file.
func judge(r record, markErr error, st *fileState, here host, alone bool) *finding {
	f := &finding{foundChain: st.seq.chain}
	f.ExpectedNo, f.FoundNo = -1, st.seq.commit
	moved := !here.sameMachine(host{machine: st.machine})
	if markErr != nil {
		if st.fresh() && errors.Is(markErr, errNoMark) {
			return nil
		}
		f.found(edge.LossUnmarked, fmt.Sprintf("%v, so whether something was lost since cannot be told; the database is at commit %d", markErr, st.seq.commit))
		f.rename = moved
		f.alsoMoved(moved, false)
		return f
	}
	f.ExpectedNo, f.expectedChain, f.over = r.no, r.chain, r.seq
	moved = moved || !here.sameMachine(r.host)
	copied := !moved && r.ino != 0 && r.ino != st.ino
	f.content(&r, st, here, alone)
	switch {
	case f.Kind != "" && f.Kind != edge.LossWindow:
		f.alsoMoved(moved, copied)
	case moved:
		f.found(edge.LossMoved, "database and side file are those of another machine: if that one still runs, both would deliver the same work")
	case copied:
		f.found(edge.LossCopied, "the database is not the file that the side file was written for, but a copy of it: if the first one still runs, both would deliver the same work")
	}
	f.rename = moved || copied
	if f.Kind == "" {
		if r.normal && !r.clean && alone { // what was given out since the last sync may be unknown here
			f.jump = true
			if !here.sameStart(r.host) { // the side file went back with the database
				f.Kind = edge.LossWindow
				f.Detail = fmt.Sprintf("expected commit %d or a later one, found commit %d: the machine went down without a clean stop, and what was acknowledged in about the last second before may be lost, as durability \"normal\" permits", r.no, st.seq.commit)
			}
			return f
		}
		return nil
	}
	f.jump = true
	return f
}

// content judges the commits.
func (f *finding) content(r *record, st *fileState, here host, alone bool) {
	node := r.nodeName()
	known := node == st.node
	for _, name := range st.former {
		known = known || name.Node == node
	}
	ahead := st.seq.commit - r.no
	switch {
	case !known:
		f.found(edge.LossForeign, fmt.Sprintf("expected the database of node %s at commit %d, found that of node %s at commit %d: another file was put in its place", node, r.no, st.node, st.seq.commit))
	case st.has(r.no, r.chain):
		if ahead > allowedAhead(r, here, alone) {
			f.found(edge.LossAhead, fmt.Sprintf("expected commit %d, found commit %d: %d commits were made that the side file does not know, as by another process or on another machine", r.no, st.seq.commit, ahead))
		}
	case ahead < 0 && r.normal && !r.clean && !here.sameStart(r.host) && st.seq.commit >= r.syncedNo && st.has(r.syncedNo, r.synced):
		f.FoundMS, f.Kind = 0, edge.LossWindow
		f.Detail = fmt.Sprintf("expected commit %d, found commit %d: the last %s lost with the power, inside what durability \"normal\" may lose", r.no, st.seq.commit, commits(-ahead))
	case ahead < 0:
		f.found(edge.LossBehind, fmt.Sprintf("expected commit %d, found commit %d: %s missing (a damaged or missing -wal, or an older copy)", r.no, st.seq.commit, commits(-ahead)))
	case ahead < ringSize:
		f.found(edge.LossForked, fmt.Sprintf("expected commit %d of one history, found commit %d of another, %d further: a copy that was worked on elsewhere, or a damaged -wal, was put in its place", r.no, st.seq.commit, ahead))
	default:
		f.found(edge.LossAhead, fmt.Sprintf("expected commit %d, found commit %d: %d commits were made that the side file does not know, more than the %d that are remembered, so it cannot be told whether they follow", r.no, st.seq.commit, ahead, ringSize))
	}
}

func commits(n int64) string {
	if n == 1 {
		return "1 commit is"
	}
	return fmt.Sprintf("%d commits are", n)
}

// found notes a disagreement that a person must look at.
func (f *finding) found(kind edge.LossKind, detail string) {
	f.Kind, f.Detail, f.Hold = kind, detail, true
	f.Lost = kind != edge.LossMoved && kind != edge.LossCopied
}

func (f *finding) alsoMoved(moved, copied bool) {
	switch {
	case moved:
		f.Detail += "; it is another machine, too"
	case copied:
		f.Detail += "; it is another file than before, too"
	}
}

// allowedAhead is how many commits the database may have that the side file does
// not name: none after a good end; one after a crash of the process, which may
// come between commit and side file; after a power loss what was not synced.
func allowedAhead(r *record, here host, alone bool) int64 {
	switch {
	case r.clean:
		return 0
	case here.sameStart(r.host) && alone && r.lone:
		return 1
	}
	return ringSize
}
