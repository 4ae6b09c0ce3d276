package schedule

import (
	"fmt"
	"strconv"
	"strings"
)

// field is the grammar of one field.
type field struct {
	name      string
	low, high int
	names     []string // of the values from low
	question  bool     // ? may stand for *
	sunday    bool     // 7 is 0
}

// fields are the six fields in order.
var fields = [6]field{
	{name: "second", high: 59},
	{name: "minute", high: 59},
	{name: "hour", high: 23},
	{name: "day of month", low: 1, high: 31, question: true},
	{name: "month", low: 1, high: 12, names: []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{name: "day of week", high: 6, names: []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}, question: true, sunday: true},
}

// item is one item of a field's list: the values from low to high by step. A
// step of 0 counts as 1.
type item struct {
	low, high, step int
	star            bool // * or ?, without a step above 1: does not restrict
}

// parse reads the list of a field.
func (f *field) parse(w word) ([]item, error) {
	var list []item
	column := w.column
	for _, text := range strings.Split(w.text, ",") {
		it, err := f.item(text, column)
		if err != nil {
			return nil, err
		}
		list = append(list, it)
		column += len(text) + 1
	}
	return list, nil
}

func (f *field) fault(column int, problem string) error {
	allowed := fmt.Sprintf("* or a list of values from %d to %d, ranges such as %d-%d, each with a step such as */2", f.low, f.high, f.low, f.high)
	return &Error{Field: f.name, Column: column, Problem: problem, Allowed: allowed}
}

// item reads one item: a star, a value or a range, and perhaps a step.
func (f *field) item(text string, column int) (it item, err error) {
	if text == "" {
		return it, f.fault(column, "an item of the list is empty")
	}
	span, stepText, stepped := strings.Cut(text, "/")
	stepColumn := column + len(span) + 1
	it.step = 1
	if stepped {
		if it.step, err = f.step(stepText, stepColumn); err != nil {
			return it, err
		}
	}
	switch {
	case span == "*":
		it.low, it.high, it.star = f.low, f.high, it.step == 1
		return it, nil
	case span == "?":
		if !f.question {
			return it, f.fault(column, "? can only stand in the two day fields")
		}
		if stepped {
			return it, f.fault(column, "? takes no step: write *")
		}
		it.low, it.high, it.star = f.low, f.high, true
		return it, nil
	}
	return it, f.span(&it, span, column, stepped)
}

// span reads a value or a range into it. A single value with a step runs to the
// end of the field.
func (f *field) span(it *item, span string, column int, stepped bool) (err error) {
	first, last, ranged := strings.Cut(span, "-")
	if it.low, err = f.value(first, column); err != nil {
		return err
	}
	it.high = it.low
	switch {
	case ranged:
		at := column + len(first) + 1
		if it.high, err = f.value(last, at); err != nil {
			return err
		}
		if it.high < it.low {
			return f.fault(column, fmt.Sprintf("the range is reversed: %d is after %d", it.low, it.high))
		}
	case stepped && it.low > f.high:
		return f.fault(column, "7 with a step: write 0")
	case stepped:
		it.high = f.high
	}
	return nil
}

func (f *field) step(text string, column int) (int, error) {
	n, ok := number(text)
	values := f.high - f.low + 1
	switch {
	case !ok:
		return 0, f.fault(column, "the step is not a whole number")
	case n == 0:
		return 0, f.fault(column, "the step is 0")
	case n > values:
		return 0, f.fault(column, fmt.Sprintf("the step %d is larger than the field, which has %d values", n, values))
	}
	return n, nil
}

func (f *field) value(text string, column int) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(text, name) {
			return f.low + i, nil
		}
	}
	if text == "" {
		return 0, f.fault(column, "a value is missing")
	}
	if text == "*" || text == "?" {
		return 0, f.fault(column, text+" cannot be the end of a range")
	}
	n, ok := number(text)
	if !ok {
		return 0, f.fault(column, "not a value: "+strconv.Quote(cut(text)))
	}
	high := f.high
	if f.sunday {
		high = 7
	}
	if n < f.low || n > high {
		return 0, f.fault(column, fmt.Sprintf("%d is out of range", n))
	}
	return n, nil
}

// number reads digits and nothing else.
func number(s string) (int, bool) {
	const most = 6 // digits; no value is so long
	if s == "" || len(s) > most {
		return 0, false
	}
	n := 0
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

func cut(s string) string {
	const limit = 20
	return s[:min(len(s), limit)]
}
