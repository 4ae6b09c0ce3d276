package edge

import (
	"fmt"
	"unicode/utf8"
)

// LossKind says how a database and its side file disagreed when the database was
// opened.
type LossKind string

const (
	LossBehind   LossKind = "behind"   // commits are missing that the side file knows
	LossForked   LossKind = "forked"   // another history under the same commit numbers
	LossForeign  LossKind = "foreign"  // the database of another node
	LossAhead    LossKind = "ahead"    // commits that the side file should know and does not
	LossUnmarked LossKind = "unmarked" // the side file is missing or unreadable
	LossCopied   LossKind = "copied"   // nothing is missing, but it is another file
	LossMoved    LossKind = "moved"    // nothing is missing, but it is another machine
	LossRestored LossKind = "restored" // a backup was restored
	LossWindow   LossKind = "window"   // a power loss took commits that durability "normal" does not promise
)

// Loss is one disagreement between a database and its side file, as it is kept
// in the database, with what people decided.
type Loss struct {
	ID         int64
	Kind       LossKind
	FoundMS    int64 // milliseconds UTC
	ExpectedNo int64 // last commit by the side file; -1 = there was none
	FoundNo    int64 // last commit of the database
	Detail     string
	Lost       bool // acknowledged work may be gone: a person must accept it
	Hold       bool // nothing is dispatched until a person resumes

	AcceptedMS     int64 // 0 = not yet
	AcceptedBy     string
	AcceptedReason string
	ResumedMS      int64 // 0 = not yet
	ResumedBy      string
	ResumedReason  string
}

// Decided is a person's decision on losses.
type Decided struct {
	By     string // who
	Reason string // required
}

// MaxDecisionBytes bounds what is kept with a decision: who, and the reason.
const MaxDecisionBytes = 4 << 10

// Validate returns [ErrInvalid] for a decision that cannot be kept.
func (d Decided) Validate() error {
	switch {
	case d.Reason == "":
		return fmt.Errorf("%w: the reason must not be empty: it is kept with the decision", ErrInvalid)
	case len(d.Reason) > MaxDecisionBytes || len(d.By) > MaxDecisionBytes:
		return fmt.Errorf("%w: the reason has %d bytes and the name of who decides %d, the limit of each is %d", ErrInvalid, len(d.Reason), len(d.By), MaxDecisionBytes)
	case !utf8.ValidString(d.Reason) || !utf8.ValidString(d.By):
		return fmt.Errorf("%w: the reason or the name of who decides is not valid UTF-8", ErrInvalid)
	}
	return nil
}
