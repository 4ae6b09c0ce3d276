package config

import (
	"slices"
	"strings"
)

// section is a table of the file, or a list of tables, as its reader knows it.
type section struct {
	form string // as it is written in the file
	read func(*table)
}

// sections are all tables of the file.
func sections() []section {
	return []section{
		{"[node]", func(t *table) { readNode(t) }},
		{"[http]", func(t *table) { readHTTP(t, &HTTP{}) }},
		{"[retention]", func(t *table) { readRetention(t) }},
		{"[storage]", func(t *table) { readStorage(t) }},
		{"[[uplink]]", func(t *table) { readUplink(t) }},
		{"[[handler]]", func(t *table) { readHandler(t) }},
		{"[[route]]", func(t *table) { readRoute(t) }},
	}
}

// homesOf names the sections that have a key, as they are written in the file; ""
// when none has it.
func homesOf(key string) string {
	var homes []string
	for _, s := range sections() {
		if slices.Contains(keysOf(s.read), key) || s.form == "[[handler]]" && handlerKey(key) {
			homes = append(homes, s.form)
		}
	}
	return strings.Join(homes, " and ")
}

// keysOf are the keys that a reader asks for, learnt from an empty table.
func keysOf(read func(*table)) []string {
	t := &table{doc: &document{}, values: map[string]any{}}
	read(t)
	return t.known
}

// handlerKey reports whether a key belongs to one kind of handler.
func handlerKey(key string) bool {
	for _, keys := range kindKeys {
		if slices.Contains(keys, key) {
			return true
		}
	}
	return false
}
