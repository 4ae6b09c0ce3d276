// Package schedule reads cron expressions.
//
// [Parse] takes one expression: five fields (minute, hour, day of month, month,
// day of week), six with the second in front, or a descriptor such as @daily or
// "@every 90s", with at most one TZ= or CRON_TZ= prefix. The package judges the
// text itself; robfig/cron only turns fields that have passed into sets.
package schedule

import (
	"strconv"
	"strings"
	"time"
)

// MaxTextBytes is the limit of an expression.
const MaxTextBytes = 1024

// Expr is a parsed expression. It never changes.
type Expr struct {
	Text string // as given
	Zone string // of the prefix: an IANA name, [HostZone], or "" when there is none
	// Every is the interval of "@every D", whole seconds; 0 for all others.
	// The sets below are empty when it is set.
	Every time.Duration
	// Sets of values: bit n says that value n matches. Sunday is 0.
	Second, Minute, Hour, Dom, Month, Dow uint64
	// AnyDom and AnyDow say that the day field is not restricted. When both
	// are restricted a day matches by either of them, else by both. A star
	// with a step above 1 restricts.
	AnyDom, AnyDow bool
	// Elapsed says that the hour field begins with a star: every real instant
	// whose local reading matches counts. Otherwise the expression means civil
	// times of day, each of which has one instant.
	Elapsed bool
	// Warnings say what is legal and probably not meant.
	Warnings []string
}

// Parse reads one expression. The error is an [*Error]. An expression that no
// day can ever match, such as 31 February, is an error.
func Parse(text string) (*Expr, error) {
	if len(text) > MaxTextBytes {
		return nil, &Error{Problem: "the expression is too long", Allowed: "at most 1024 bytes"}
	}
	words, err := split(text)
	if err != nil {
		return nil, err
	}
	e := &Expr{Text: text}
	if len(words) > 0 {
		if words, err = e.takeZone(words); err != nil {
			return nil, err
		}
	}
	if len(words) == 0 {
		return nil, &Error{Column: len(text) + 1, Problem: "there are no fields", Allowed: fieldCounts}
	}
	read := e.cron
	if strings.HasPrefix(words[0].text, "@") {
		read = e.descriptor
	}
	if err := read(words); err != nil {
		return nil, err
	}
	return e, nil
}

const fieldCounts = "five fields (minute hour day month weekday), six with the second first, or a descriptor such as @daily"

// word is a piece of the text between white space.
type word struct {
	text   string
	column int // from 1, in bytes
}

func split(text string) ([]word, error) {
	var words []word
	start := -1
	for i := 0; i <= len(text); i++ {
		blank := i == len(text) || text[i] == ' ' || text[i] == '\t'
		switch {
		case !blank && (text[i] < ' ' || text[i] >= 0x7f):
			return nil, &Error{Column: i + 1, Problem: "only letters, digits and signs of ASCII can stand here", Allowed: fieldCounts}
		case !blank && start < 0:
			start = i
		case blank && start >= 0:
			words = append(words, word{text[start:i], start + 1})
			start = -1
		}
	}
	return words, nil
}

// cron reads five or six fields.
func (e *Expr) cron(words []word) error {
	given := fields[:]
	if len(words) == len(fields)-1 {
		given = fields[1:]
	}
	if len(words) != len(given) {
		return &Error{Column: words[0].column, Problem: "there are " + strconv.Itoa(len(words)) + " fields", Allowed: fieldCounts}
	}
	lists := [len(fields)][]item{{{}}} // the second is 0 unless given
	for i, w := range words {
		list, err := given[i].parse(w)
		if err != nil {
			return err
		}
		lists[len(fields)-len(given)+i] = list
	}
	if err := e.setFields(lists); err != nil {
		return err
	}
	n := len(words)
	hour, dom, dow := words[n-4], words[n-3], words[n-1]
	e.Elapsed = strings.HasPrefix(hour.text, "*")
	if e.never() {
		return &Error{Field: "day of month", Column: dom.column, Problem: "no day ever matches: none of the months has such a day", Allowed: "a day that one of the months has, such as 28"}
	}
	e.warn(words, dom, dow)
	return nil
}

// never reports whether no day can match. A weekday field that is restricted
// makes a match by itself.
func (e *Expr) never() bool {
	if !e.AnyDow && !e.AnyDom {
		return false
	}
	longest := [...]int{0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}
	for month := 1; month <= 12; month++ {
		days := uint64(1)<<(longest[month]+1) - 1
		if e.Month&(1<<month) != 0 && e.Dom&days != 0 {
			return false
		}
	}
	return true
}

func (e *Expr) warn(words []word, dom, dow word) {
	if !e.AnyDom && !e.AnyDow && (strings.HasPrefix(dom.text, "*") || strings.HasPrefix(dow.text, "*")) {
		e.Warnings = append(e.Warnings, "day of month and day of week are both restricted, so either may match; other programs want both, because one begins with *")
	}
	if len(words) == len(fields) && words[0].text == "*" && words[1].text != "*" {
		e.Warnings = append(e.Warnings, "the first of six fields is the second: this fires every second of each minute that matches")
	}
}
