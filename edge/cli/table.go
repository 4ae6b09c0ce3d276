package cli

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"fencepost/edge/api"
)

// table prints rows in columns that fit their widest value; a value longer than
// its column's limit is cut in the middle of a word rather than wrapped.
type table struct {
	header []string
	limits []int // widest value of each column; 0 = no limit
	rows   [][]string
}

func (t *table) add(values ...string) {
	row := make([]string, len(values))
	for i, v := range values {
		row[i] = cut(safe(v), t.limits[i])
		if row[i] == "" {
			row[i] = "-"
		}
	}
	t.rows = append(t.rows, row)
}

func (t *table) print(w io.Writer) error {
	widths := make([]int, len(t.header))
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i, v := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(v))
		}
	}
	for _, row := range append([][]string{t.header}, t.rows...) {
		var b strings.Builder
		for i, v := range row {
			b.WriteString(v)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(v)+2))
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// cut shortens s to limit characters and marks that it did.
func cut(s string, limit int) string {
	if limit == 0 || utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:limit-1]) + "…"
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

// when is a time in the zone of the host; "" for none.
func when(s api.Stamp) string {
	if s == 0 {
		return ""
	}
	return time.UnixMilli(int64(s)).Local().Format("2006-01-02 15:04:05")
}

// short is when without the year, for tables.
func short(s api.Stamp) string {
	if s == 0 {
		return ""
	}
	return time.UnixMilli(int64(s)).Local().Format("01-02 15:04:05")
}

// number is the bare number of a public id.
func number(id string) string { return id[strings.LastIndexByte(id, '-')+1:] }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
