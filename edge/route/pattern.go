package route

import (
	"errors"
	"fmt"
	"strings"

	"fencepost/edge"
)

// pattern is a compiled pattern: the literal pieces between its stars.
type pattern struct {
	text   string // as it was written
	pieces []string
	stars  bool // there is at least one star
}

// CheckPattern says what is wrong with a pattern; nil when nothing is. The error
// does not show the pattern.
func CheckPattern(s string) error {
	if s == "" {
		return errors.New("the pattern is empty")
	}
	if len(s) > edge.MaxNameBytes {
		return fmt.Errorf("the pattern has %d bytes", len(s))
	}
	return checkText(s)
}

func compile(s string) pattern {
	parts := strings.Split(s, "*")
	p := pattern{text: s, stars: len(parts) > 1}
	for i, part := range parts {
		// Of the pieces between stars the empty ones say nothing; the first
		// and the last are anchors.
		if part != "" || i == 0 || i == len(parts)-1 {
			p.pieces = append(p.pieces, part)
		}
	}
	return p
}

// match reports whether all of s fits. The leftmost place of each piece leaves
// the most for those after it, so nothing is ever tried twice: the time is that
// of one strings.Index over s for each piece, which is linear.
func (p pattern) match(s string) bool {
	if !p.stars {
		return s == p.pieces[0]
	}
	last := len(p.pieces) - 1
	s, ok := strings.CutPrefix(s, p.pieces[0])
	if !ok {
		return false
	}
	for _, piece := range p.pieces[1:last] {
		_, after, found := strings.Cut(s, piece)
		if !found {
			return false
		}
		s = after
	}
	return strings.HasSuffix(s, p.pieces[last])
}

// checkText refuses what no attribute of a valid event can hold.
func checkText(s string) error {
	for _, r := range s {
		if r < ' ' || r >= 0x7f && r <= 0x9f || r == '\uFFFD' {
			return fmt.Errorf("holds the character %U, which no attribute can hold", r)
		}
	}
	return nil
}
