package schedule

import (
	"strings"
	"time"
)

// descriptors are the expressions that have a name.
var descriptors = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

const (
	knownDescriptors = "@yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly or @every with a duration"
	everyForm        = "@every with a whole number of seconds of at least 1 s, such as @every 90s or @every 1h30m"
	maxEvery         = 40 * 366 * 24 * time.Hour
)

func (e *Expr) descriptor(words []word) error {
	name := strings.ToLower(words[0].text)
	if name == "@every" {
		return e.every(words)
	}
	text, ok := descriptors[name]
	if !ok {
		return &Error{Field: "descriptor", Column: words[0].column, Problem: "unknown", Allowed: knownDescriptors}
	}
	if len(words) > 1 {
		return &Error{Field: "descriptor", Column: words[1].column, Problem: "nothing can follow " + name, Allowed: knownDescriptors}
	}
	fields, err := split(text)
	if err != nil {
		return err
	}
	return e.cron(fields)
}

func (e *Expr) every(words []word) error {
	fault := func(w word, problem string) error {
		return &Error{Field: "interval", Column: w.column, Problem: problem, Allowed: everyForm}
	}
	switch {
	case len(words) == 1:
		return fault(words[0], "the duration is missing")
	case len(words) > 2:
		return fault(words[2], "nothing can follow the duration")
	}
	d, err := time.ParseDuration(words[1].text)
	switch {
	case err != nil:
		return fault(words[1], "not a duration")
	case d < time.Second:
		return fault(words[1], "is shorter than one second")
	case d%time.Second != 0:
		return fault(words[1], "is not a whole number of seconds")
	case d > maxEvery:
		return fault(words[1], "is longer than 40 years")
	}
	e.Every, e.Elapsed = d, true
	return nil
}
