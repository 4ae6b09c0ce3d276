package schedule

import (
	"strconv"
	"strings"

	"github.com/robfig/cron/v3"
)

// starBit is how robfig/cron marks a field that does not restrict.
const starBit = uint64(1) << 63

// setParser knows six numeric fields and nothing else: neither zones nor
// descriptors reach it.
var setParser = cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// setFields turns lists that have passed into sets.
func (e *Expr) setFields(lists [len(fields)][]item) error {
	texts := make([]string, len(lists))
	for i, list := range lists {
		texts[i] = plain(list, fields[i].sunday)
	}
	parsed, err := setParser.Parse(strings.Join(texts, " "))
	if err != nil {
		return &Error{Problem: "the fields cannot be read: " + err.Error()}
	}
	s, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return &Error{Problem: "the fields cannot be read"}
	}
	e.AnyDom, e.AnyDow = s.Dom&starBit != 0, s.Dow&starBit != 0
	e.Second, e.Minute, e.Hour = s.Second&^starBit, s.Minute&^starBit, s.Hour&^starBit
	e.Dom, e.Month, e.Dow = s.Dom&^starBit, s.Month&^starBit, s.Dow&^starBit
	return nil
}

// plain writes a list in the words that robfig/cron knows: numbers, and 0 for
// the 7 that means Sunday.
func plain(list []item, sunday bool) string {
	const seven = 7
	var out []string
	for _, it := range list {
		step := max(it.step, 1)
		switch {
		case it.star:
			out = append(out, "*")
		case sunday && it.high == seven:
			for v := it.low; v <= it.high; v += step {
				out = append(out, strconv.Itoa(v%seven))
			}
		default:
			out = append(out, strconv.Itoa(it.low)+"-"+strconv.Itoa(it.high)+"/"+strconv.Itoa(step))
		}
	}
	return strings.Join(out, ",")
}
