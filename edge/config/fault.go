package config

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Fault is one thing that is wrong with a configuration.
type Fault struct {
	File    string
	Line    int    // from 1; 0 = the file as a whole
	Column  int    // from 1, in bytes; 0 = the line as a whole
	Key     string // as in handler[2].timeout_s (lists count from 1); "" = none
	Problem string // what is wrong
	Allowed string // what is allowed, the way out
}

// Error is file:line:column: key: what is wrong; what is allowed.
func (f Fault) Error() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		b.WriteString(":" + strconv.Itoa(f.Line))
		if f.Column > 0 {
			b.WriteString(":" + strconv.Itoa(f.Column))
		}
	}
	b.WriteString(": ")
	if f.Key != "" {
		b.WriteString(f.Key + ": ")
	}
	b.WriteString(f.Problem)
	if f.Allowed != "" {
		b.WriteString("; " + f.Allowed)
	}
	return b.String()
}

// Errors is all that is wrong with a configuration, in the order of the file;
// never empty. Of more than [MaxFaults] the first are listed and the rest is
// counted.
type Errors []Fault

// Error is one fault a line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, f := range e {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives errors.As each fault.
func (e Errors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, f := range e {
		errs[i] = f
	}
	return errs
}

// finish orders and bounds the faults; nil when there are none.
func (e Errors) finish(file string) error {
	if len(e) == 0 {
		return nil
	}
	sort.SliceStable(e, func(i, j int) bool {
		if e[i].Line != e[j].Line {
			return e[i].Line < e[j].Line
		}
		return e[i].Column < e[j].Column
	})
	if n := len(e) - MaxFaults; n > 0 {
		e = append(e[:MaxFaults:MaxFaults], Fault{
			File:    file,
			Problem: fmt.Sprintf("%d more faults are not listed", n),
			Allowed: "mend these first",
		})
	}
	return e
}

// printable is s for a fault: quoted, without control characters, cut.
func printable(s string) string {
	const limit = 64
	if len(s) > limit {
		cut := limit
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		return strconv.Quote(s[:cut]) + "..."
	}
	return strconv.Quote(s)
}
