package config

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// table is one table of the file while it is read. Each of its methods reads one
// key: it notes a fault and returns false when the value is wrong, and false
// when the key is absent.
type table struct {
	doc    *document
	path   string
	values map[string]any
	known  []string // keys that were asked for
}

// fault notes a fault of a key; "" is the table itself.
func (t *table) fault(key, problem, allowed string) {
	t.doc.add(t.at(key), problem, allowed)
}

func (t *table) at(key string) string {
	if key == "" {
		return t.path
	}
	return childPath(t.path, key)
}

// has reports whether the key is given.
func (t *table) has(key string) bool {
	_, ok := t.values[key]
	return ok
}

func (t *table) get(key string) (any, bool) {
	t.known = append(t.known, key)
	v, ok := t.values[key]
	return v, ok
}

// typed reads a key of one Go type of the decoder.
func typed[T any](t *table, key, want string) (v T, ok bool) {
	raw, given := t.get(key)
	if !given {
		return v, false
	}
	if v, ok = raw.(T); !ok {
		t.fault(key, "is "+typeName(raw), "must be "+want)
	}
	return v, ok
}

// text reads a string that check accepts; check returns what is wrong and what
// is allowed.
func (t *table) text(key string, check func(string) (problem, allowed string)) (string, bool) {
	s, ok := typed[string](t, key, "a string")
	if !ok {
		return "", false
	}
	if problem, allowed := check(s); problem != "" {
		t.fault(key, problem, allowed)
		return "", false
	}
	return s, true
}

// oneOf reads a string that must be one of a few.
func (t *table) oneOf(key string, allowed ...string) (string, bool) {
	return t.text(key, func(s string) (string, string) {
		if slices.Contains(allowed, s) {
			return "", ""
		}
		return "unknown value", "one of " + quoteAll(allowed)
	})
}

func (t *table) boolean(key string) (bool, bool) {
	return typed[bool](t, key, "true or false")
}

func (t *table) number(key string, low, high int64) (int, bool) {
	n, ok := typed[int64](t, key, "a whole number")
	if !ok {
		return 0, false
	}
	if n < low || n > high {
		t.fault(key, fmt.Sprintf("%d is out of range", n), fmt.Sprintf("%d to %d", low, high))
		return 0, false
	}
	return int(n), true
}

// duration reads a number of units.
func (t *table) duration(key string, unit time.Duration, low, high int64) (time.Duration, bool) {
	n, ok := t.number(key, low, high)
	return time.Duration(n) * unit, ok
}

// texts reads a list of strings, each accepted by check.
func (t *table) texts(key string, limit int, check func(string) (problem, allowed string)) ([]string, bool) {
	return list(t, key, limit, "a string", func(at, s string) (string, bool) {
		problem, allowed := check(s)
		if problem != "" {
			t.doc.add(at, problem, allowed)
		}
		return s, problem == ""
	})
}

// numbers reads a list of whole numbers, none twice if unique.
func (t *table) numbers(key string, low, high int64, unique bool) ([]int, bool) {
	seen := map[int64]bool{}
	return list(t, key, MaxListItems, "a whole number", func(at string, n int64) (int, bool) {
		switch {
		case n < low || n > high:
			t.doc.add(at, fmt.Sprintf("%d is out of range", n), fmt.Sprintf("%d to %d", low, high))
			return 0, false
		case unique && seen[n]:
			t.doc.add(at, fmt.Sprintf("%d is given twice", n), "give each number once")
			return 0, false
		}
		seen[n] = true
		return int(n), true
	})
}

// list reads a list of T, each turned into an R by read, which notes faults at
// the path it is given. An empty list is valid.
func list[T, R any](t *table, key string, limit int, want string, read func(at string, v T) (R, bool)) ([]R, bool) {
	raw, ok := typed[[]any](t, key, "a list")
	if !ok {
		return nil, false
	}
	if len(raw) > limit {
		t.fault(key, fmt.Sprintf("has %d items", len(raw)), fmt.Sprintf("at most %d", limit))
		return nil, false
	}
	out := make([]R, 0, len(raw))
	for i, v := range raw {
		at := elemPath(t.at(key), i+1)
		item, right := v.(T)
		if !right {
			t.doc.add(at, "is "+typeName(v), "must be "+want)
			ok = false
			continue
		}
		r, right := read(at, item)
		if !right {
			ok = false
			continue
		}
		out = append(out, r)
	}
	return out, ok
}

// mapOf reads a table of strings; read is called in the order of the names.
func (t *table) mapOf(key string, limit int, read func(name, at, v string)) {
	raw, ok := typed[map[string]any](t, key, "a table of strings")
	if !ok {
		return
	}
	if len(raw) > limit {
		t.fault(key, fmt.Sprintf("has %d entries", len(raw)), fmt.Sprintf("at most %d", limit))
		return
	}
	for _, name := range sortedKeys(raw) {
		at := childPath(t.at(key), name)
		s, ok := raw[name].(string)
		if !ok {
			t.doc.add(at, "is "+typeName(raw[name]), "must be a string")
			continue
		}
		read(name, at, s)
	}
}

// section reads a [section], if it is given.
func (t *table) section(key string, read func(*table)) {
	v, given := t.get(key)
	if !given {
		return
	}
	m, ok := v.(map[string]any)
	if !ok {
		t.fault(key, "is "+typeName(v), "must be one table, written ["+key+"]")
		return
	}
	sub := &table{doc: t.doc, path: t.at(key), values: m}
	read(sub)
	sub.unknown()
}

// each reads every [[section]]; read must itself ask for unknown keys.
func (t *table) each(key string, limit int, read func(*table)) {
	v, given := t.get(key)
	if !given {
		return
	}
	form := "must be a list of tables, each written [[" + key + "]]"
	items, ok := v.([]any)
	if !ok {
		t.fault(key, "is "+typeName(v), form)
		return
	}
	if len(items) > limit {
		t.fault(key, fmt.Sprintf("there are %d", len(items)), fmt.Sprintf("at most %d", limit))
		return
	}
	for i, item := range items {
		at := elemPath(t.at(key), i+1)
		m, ok := item.(map[string]any)
		if !ok {
			t.doc.add(at, "is "+typeName(item), form)
			continue
		}
		read(&table{doc: t.doc, path: at, values: m})
	}
}

// unknown notes every key that was not asked for.
func (t *table) unknown() {
	for _, key := range sortedKeys(t.values) {
		if slices.Contains(t.known, key) {
			continue
		}
		if len(t.doc.faults) > MaxFaults {
			t.fault(key, "unknown key", "see config.example.toml") // a search for each would take long
			continue
		}
		if home := homesOf(key); home != "" {
			t.fault(key, "unknown key", "it is a key of "+home)
			continue
		}
		if near := nearest(key, t.known); near != "" {
			t.fault(key, "unknown key", "did you mean "+near+"?")
			continue
		}
		sort.Strings(t.known)
		t.fault(key, "unknown key", "known are "+strings.Join(slices.Compact(t.known), ", "))
	}
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func quoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(w)
	}
	return strings.Join(quoted, ", ")
}

// typeName is what people call the type of a decoded value.
func typeName(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case int64:
		return "a whole number"
	case float64:
		return "a number with a fraction"
	case bool:
		return "true or false"
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	}
	return "a date or time"
}
