package edge

import (
	"errors"
	"fmt"
)

// Errors of input: nothing was stored or changed.
var (
	// ErrInvalid: a value is outside its rules; the text names field and limit.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound: there is no such thing in this store.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the thing is there, and its state or content forbids this.
	ErrConflict = errors.New("conflict")
)

// Errors of the fence: the caller lost and nothing was changed.
var (
	// ErrLeaseLost: the token no longer holds, or never held, the lease.
	ErrLeaseLost = errors.New("lease lost")
	// ErrBusy: another holds the target's lease (WithTarget).
	ErrBusy = errors.New("target is busy")
)

// Errors of the store and the engine.
var (
	// ErrClosed: the store or engine has been closed.
	ErrClosed = errors.New("closed")
	// ErrUnavailable: the store could not do it now (busy, disk full). Nothing
	// was acknowledged; the same call may be repeated.
	ErrUnavailable = errors.New("storage unavailable")
	// ErrStorage: the store has failed for good in this process (a sync error,
	// a damaged file). Nothing was acknowledged and nothing will be.
	ErrStorage = errors.New("storage fault")
)

// FieldError is a fault of one field of an input. It wraps [ErrInvalid].
type FieldError struct {
	Field  string // attribute name, such as subject; data; attributes
	Detail string // what is wrong with it, and the limit
}

func (e *FieldError) Error() string { return ErrInvalid.Error() + ": " + e.Field + ": " + e.Detail }

// Unwrap returns ErrInvalid.
func (e *FieldError) Unwrap() error { return ErrInvalid }

// TransitionError says that a move is illegal in the delivery's state. It wraps
// [ErrConflict].
type TransitionError struct {
	Delivery DeliveryID
	Event    Trigger // what was asked
	State    State   // the state that forbids it
	Version  int64   // the delivery's version, for a caller that named another
	Hint     string  // what to do instead, for people
}

func (e *TransitionError) Error() string {
	s := fmt.Sprintf("delivery %d is %s: %s is not possible", e.Delivery, e.State, e.Event)
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// Unwrap returns ErrConflict.
func (e *TransitionError) Unwrap() error { return ErrConflict }
