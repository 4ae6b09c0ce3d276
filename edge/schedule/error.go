package schedule

import (
	"strconv"
	"strings"

	"fencepost/edge"
)

// Error is the first thing that is wrong with an expression. It wraps
// [edge.ErrInvalid].
type Error struct {
	Field   string // minute, hour, ...; "" = the expression as a whole
	Column  int    // from 1, in bytes of the expression; 0 = all of it
	Problem string // what is wrong
	Allowed string // what is allowed
}

// Error is "cron: column 3: minute: what is wrong; what is allowed".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("cron: ")
	if e.Column > 0 {
		b.WriteString("column " + strconv.Itoa(e.Column) + ": ")
	}
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	b.WriteString(e.Problem)
	if e.Allowed != "" {
		b.WriteString("; " + e.Allowed)
	}
	return b.String()
}

// Unwrap returns [edge.ErrInvalid].
func (e *Error) Unwrap() error { return edge.ErrInvalid }
