package config

import (
	"bytes"
	"errors"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// document is a parsed file: its values, where each of them stands, and the
// faults found so far.
type document struct {
	file   string
	lines  []int // offset of the first byte of each line
	values map[string]any
	at     map[string]int // offset by path, as in handler[2].name; of a path met again the first
	paths  map[int]string // path by offset of its last key
	count  map[string]int // elements so far, by path of an array of tables
	keys   map[string]int // different keys so far, by path of a table
	faults Errors
}

// readDocument reads b as far as TOML itself goes.
func readDocument(file string, b []byte) (*document, Errors) {
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf")) // a mark that some editors write
	d := &document{file: file, lines: lineStarts(b), at: map[string]int{}, paths: map[int]string{}, count: map[string]int{}, keys: map[string]int{}}
	if len(b) > MaxFileBytes {
		return nil, Errors{{File: file, Problem: "the file is too large", Allowed: "at most " + strconv.Itoa(MaxFileBytes) + " bytes"}}
	}
	if i := invalidUTF8(b); i >= 0 {
		return nil, Errors{d.fault(i, "", "not valid UTF-8", "save the file as UTF-8")}
	}
	if errs := d.index(b); errs != nil {
		return nil, errs
	}
	if err := toml.Unmarshal(b, &d.values); err != nil {
		return nil, Errors{d.tomlFault(err)}
	}
	return d, nil
}

func invalidUTF8(b []byte) int {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

func lineStarts(b []byte) []int {
	starts := []int{0}
	for i, c := range b {
		if c == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}

// fault is a fault at an offset; a negative one means the file as a whole.
func (d *document) fault(offset int, key, problem, allowed string) Fault {
	f := Fault{File: d.file, Key: key, Problem: problem, Allowed: allowed}
	if offset >= 0 {
		n := sort.SearchInts(d.lines, offset+1) // lines that begin at or before it
		f.Line, f.Column = n, offset-d.lines[n-1]+1
	}
	return f
}

// add notes a fault at the place of path, or of the nearest part of it that has
// a place.
func (d *document) add(path, problem, allowed string) {
	d.faults = append(d.faults, d.fault(d.offset(path), path, problem, allowed))
}

func (d *document) offset(path string) int {
	for p := path; p != ""; p = parentPath(p) {
		if at, ok := d.at[p]; ok {
			return at
		}
	}
	return -1
}

// line is the line of path, 0 when it has none.
func (d *document) line(path string) int { return d.fault(d.offset(path), "", "", "").Line }

// syntaxAllowed is the way out of a syntax fault.
const syntaxAllowed = "see toml.io for the form of the file, config.example.toml for an example"

// tomlFault is a fault that the TOML decoder found: syntax, or a key or table
// given twice. Its text names keys and single characters, never a value.
func (d *document) tomlFault(err error) Fault {
	f := Fault{File: d.file, Problem: plainMessage(err.Error()), Allowed: syntaxAllowed}
	var de *toml.DecodeError
	if errors.As(err, &de) {
		f.Line, f.Column = de.Position()
		f.Key = d.paths[d.lines[f.Line-1]+f.Column-1]
	}
	if strings.Contains(f.Problem, "already") {
		f.Allowed = "give each key and table once"
	}
	return f
}

// plainMessage is a decoder's message without its prefix and without any text
// that could be a value.
func plainMessage(s string) string {
	s = strings.TrimPrefix(s, "toml: ")
	switch {
	case strings.Contains(s, "unable to parse"):
		s = "not a number of a known form"
	case strings.HasPrefix(s, "expected keyword"), strings.HasSuffix(s, "at start of value"):
		s = "not a value: a text is written in quotes, a truth value as true or false"
	}
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	const limit = 160
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "..."
	}
	return s
}

// Limits of the form of a file. They keep the reading of any file quick; no
// file that is valid comes near them.
const (
	maxKeys  = 1000      // of one table
	maxItems = MaxRoutes // of one list
)

// index notes where every key and list element stands.
func (d *document) index(b []byte) Errors {
	p := &unstable.Parser{}
	p.Reset(b)
	current := place{}
	for p.NextExpression() {
		var ok bool
		if e := p.Expression(); e.Kind == unstable.KeyValue {
			ok = d.indexKeyValue(current, e)
		} else {
			current, ok = d.indexHeader(e)
		}
		if !ok {
			return d.faults
		}
	}
	var pe *unstable.ParserError
	if err := p.Error(); errors.As(err, &pe) {
		return Errors{d.fault(int(p.Range(pe.Highlight).Offset), "", plainMessage(pe.Message), syntaxAllowed)}
	} else if err != nil {
		return Errors{{File: d.file, Problem: plainMessage(err.Error()), Allowed: syntaxAllowed}}
	}
	return nil
}

// place is where the index is: a path, its depth and its offset.
type place struct {
	path  string
	depth int
	at    int
}

// enter notes a key of the table at p, and goes there. It notes a fault and
// returns false when the file is too deep or the table has too many keys.
func (d *document) enter(p place, key *unstable.Node) (place, bool) {
	to := place{childPath(p.path, string(key.Data)), p.depth + 1, int(key.Raw.Offset)}
	d.paths[to.at] = to.path
	if _, known := d.at[to.path]; !known {
		d.at[to.path] = to.at
		d.keys[p.path]++
	}
	if d.keys[p.path] > maxKeys {
		d.faults = append(d.faults, d.fault(to.at, p.path, "the table has too many keys", "at most "+strconv.Itoa(maxKeys)))
		return to, false
	}
	return to, d.shallow(to)
}

// enterItem goes to item n of the list at p.
func (d *document) enterItem(p place, n, at int) (place, bool) {
	to := place{elemPath(p.path, n), p.depth, at}
	if _, known := d.at[to.path]; !known { // a header can come back to an item
		d.at[to.path] = to.at
	}
	if n > maxItems {
		d.faults = append(d.faults, d.fault(at, p.path, "the list has too many items", "at most "+strconv.Itoa(maxItems)))
		return to, false
	}
	return to, true
}

func (d *document) shallow(p place) bool {
	if p.depth > maxNesting {
		d.faults = append(d.faults, d.fault(p.at, "", "nested too deeply", "at most "+strconv.Itoa(maxNesting)+" levels; no section is so deep"))
	}
	return p.depth <= maxNesting
}

// indexHeader notes a table header and returns the place of the table.
func (d *document) indexHeader(e *unstable.Node) (p place, ok bool) {
	for it := e.Key(); it.Next(); {
		if p, ok = d.enter(p, it.Node()); !ok {
			return p, false
		}
		if e.Kind == unstable.ArrayTable && it.IsLast() {
			d.count[p.path]++
		}
		if n := d.count[p.path]; n > 0 {
			if p, ok = d.enterItem(p, n, p.at); !ok {
				return p, false
			}
		}
	}
	return p, true
}

func (d *document) indexKeyValue(p place, e *unstable.Node) (ok bool) {
	for it := e.Key(); it.Next(); {
		if p, ok = d.enter(p, it.Node()); !ok {
			return false
		}
	}
	return d.indexValue(p, e.Value())
}

// indexValue notes the elements of a list and the keys of an inline table.
func (d *document) indexValue(p place, v *unstable.Node) bool {
	if v.Kind == unstable.InlineTable {
		for it := v.Children(); it.Next(); {
			if !d.indexKeyValue(p, it.Node()) {
				return false
			}
		}
		return true
	}
	if v.Kind != unstable.Array {
		return true
	}
	p.depth++
	if !d.shallow(p) {
		return false
	}
	n := 0
	for it := v.Children(); it.Next(); {
		n++
		at := p.at
		if it.Node().Raw.Length > 0 {
			at = int(it.Node().Raw.Offset)
		}
		to, ok := d.enterItem(p, n, at)
		if !ok || !d.indexValue(to, it.Node()) {
			return false
		}
	}
	return true
}

// childPath is the path of a key of the table at path. A key that is not bare is
// quoted and cut, so that a fault can show it.
func childPath(path, key string) string {
	if !bareKey(key) {
		key = printable(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func elemPath(path string, n int) string { return path + "[" + strconv.Itoa(n) + "]" }

// parentPath cuts the last element or key of a path.
func parentPath(path string) string {
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}

func bareKey(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
