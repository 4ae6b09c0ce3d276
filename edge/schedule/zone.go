package schedule

import (
	"strings"
	"time"
	_ "time/tzdata" // zones are the same on every host
)

// HostZone is the word for the zone of the host.
const HostZone = "host"

const zoneForm = `an IANA name such as Europe/Berlin, UTC, or "host" for the zone of the host`

// CheckZone says what is wrong with the name of a zone; nil when nothing is.
// Fixed offsets and names that mean the host's zone without saying so are wrong.
// The error is an [*Error].
func CheckZone(name string) error {
	if fault := zoneFault(name); fault != nil {
		return fault
	}
	return nil
}

func zoneFault(name string) *Error {
	fault := func(problem string) *Error {
		return &Error{Field: "zone", Problem: problem, Allowed: zoneForm}
	}
	switch {
	case name == "":
		return fault("the name is empty")
	case name == HostZone:
		return nil
	case len(name) > 64:
		return fault("the name is too long")
	case strings.EqualFold(name, "Local"), strings.EqualFold(name, "localtime"), strings.EqualFold(name, "posixrules"):
		return fault("this name means another zone on each host")
	case strings.ContainsRune("+-0123456789", rune(name[0])):
		return fault("a fixed offset is not a zone: it knows no summer time")
	}
	if _, err := time.LoadLocation(name); err != nil {
		return fault("no zone has this name")
	}
	return nil
}

// takeZone reads the prefix, if there is one, and returns the other words.
func (e *Expr) takeZone(words []word) ([]word, error) {
	name, column, ok := zonePrefix(words[0])
	if !ok {
		return words, nil
	}
	if fault := zoneFault(name); fault != nil {
		fault.Column = column
		return nil, fault
	}
	e.Zone = name
	words = words[1:]
	if len(words) > 0 {
		if _, _, again := zonePrefix(words[0]); again {
			return nil, &Error{Field: "zone", Column: words[0].column, Problem: "there is a second zone", Allowed: "one prefix at most"}
		}
	}
	return words, nil
}

func zonePrefix(w word) (name string, column int, ok bool) {
	for _, prefix := range [...]string{"TZ=", "CRON_TZ="} {
		if rest, ok := strings.CutPrefix(w.text, prefix); ok {
			return rest, w.column + len(prefix), true
		}
	}
	return "", 0, false
}
