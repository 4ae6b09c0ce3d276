package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"fencepost/edge/api"
)

// table prints rows in columns that fit their widest value. On a terminal that is
// too narrow, the columns that may give way are shortened, the widest first;
// elsewhere nothing is cut, so that a script sees it all.
type table struct {
	header []string
	wide   []bool // columns that may give way; nil = none
	rows   [][]string
}

// newTable makes a table; a header that ends in … is a column that may give way.
func newTable(header ...string) *table {
	t := &table{}
	for _, h := range header {
		name, wide := strings.CutSuffix(h, "…")
		t.header = append(t.header, name)
		t.wide = append(t.wide, wide)
	}
	return t
}

func (t *table) add(values ...string) {
	row := make([]string, len(values))
	for i, v := range values {
		if row[i] = safe(v); row[i] == "" {
			row[i] = "-"
		}
	}
	t.rows = append(t.rows, row)
}

const (
	columnGap   = 2
	leastColumn = 8 // what a column that gives way keeps
)

// print writes the table for w.
func (t *table) print(w io.Writer) error { return t.printIn(w, widthOf(w)) }

func (t *table) printIn(w io.Writer, width int) error {
	widths := make([]int, len(t.header))
	all := append([][]string{t.header}, t.rows...)
	for _, row := range all {
		for i, v := range row {
			widths[i] = max(widths[i], columnsOf(v))
		}
	}
	if width > 0 {
		t.shrink(widths, width)
	}
	for _, row := range all {
		var b strings.Builder
		for i, v := range row {
			v = cut(v, widths[i])
			b.WriteString(v)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-columnsOf(v)+columnGap))
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// shrink takes columns from the widest that may give way until all fit.
func (t *table) shrink(widths []int, width int) {
	total := columnGap * (len(widths) - 1)
	for _, n := range widths {
		total += n
	}
	for ; total > width; total-- {
		widest := -1
		for i, n := range widths {
			if t.wide[i] && n > max(leastColumn, columnsOf(t.header[i])) && (widest < 0 || n > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

// facts prints names and values below each other; empty values are left out.
type facts struct {
	w   io.Writer
	err error
}

func (f *facts) line(name, value string) {
	if value == "" || f.err != nil {
		return
	}
	_, f.err = fmt.Fprintf(f.w, "%-18s %s\n", name, safe(value))
}

// when is a time in the zone of the host, which it names; "" for none.
func when(s api.Stamp) string {
	if s == 0 {
		return ""
	}
	return time.UnixMilli(int64(s)).Local().Format("2006-01-02 15:04:05 MST")
}

// zoned is the head of a column of times: it names the zone that they are in.
func zoned(name string) string { return name + " " + time.Now().Format("MST") }

// short is a time for a column: without the year when it is this one, and with
// its zone only when that is not the one at the head (summer time).
func short(s api.Stamp) string {
	if s == 0 {
		return ""
	}
	t, now := time.UnixMilli(int64(s)).Local(), time.Now()
	layout := "01-02 15:04:05"
	if t.Year() != now.Year() {
		layout = "2006-01-02 15:04:05"
	}
	if t.Format("MST") != now.Format("MST") {
		layout += " MST"
	}
	return t.Format(layout)
}

// ago is a span for people: two of its parts at most.
func ago(d time.Duration) string {
	d = d.Round(time.Second)
	switch days := d / (24 * time.Hour); {
	case d < 0:
		return "0s"
	case d < time.Hour:
		return d.String()
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%dd%dh", days, (d-days*24*time.Hour)/time.Hour)
	}
}

// number is the bare number of a public id.
func number(id string) string { return id[strings.LastIndexByte(id, '-')+1:] }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// shellWord writes s so that a shell takes it as one word, whatever is in it.
func shellWord(s string) string {
	plain := s != ""
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=@%+,", r)) {
			plain = false
		}
	}
	switch {
	case plain:
		return s
	case escape(s) == s && !strings.ContainsAny(s, "\n\t"):
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder // as bash and zsh read it
	for i := range len(s) {
		if c := s[i]; c > ' ' && c < 0x7f && c != '\'' && c != '\\' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, `\x%02x`, c)
		}
	}
	return "$'" + b.String() + "'"
}
