package config_test

import (
	"errors"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge/config"
)

const referenceFile = "../../docs/configuration.md"

// row is a key as the reference documents it.
type row struct {
	line                           int
	section, kind                  string // kind "" = every one
	key, typ, allowed, dflt, takes string
}

var (
	sectionHeading = regexp.MustCompile(`^## (\[+[a-z_]+\]+)$`)
	kindHeading    = regexp.MustCompile(`^### kind = "([a-z]+)"$`)
	keyCell        = regexp.MustCompile("^`([a-z0-9_]+)`$")
	rangeCell      = regexp.MustCompile(`^(0, or )?(\d+) to (\d+)\b`)
	wordsCell      = regexp.MustCompile("^(`\"[a-z_]+\"`(, )?)+$")
)

// readReference reads the tables of keys.
func readReference(t *testing.T) []row {
	t.Helper()
	b, err := os.ReadFile(referenceFile)
	require.NoError(t, err)
	var rows []row
	var section, kind string
	for i, line := range strings.Split(string(b), "\n") {
		if strings.HasPrefix(line, "## ") {
			section, kind = "", ""
		}
		if m := sectionHeading.FindStringSubmatch(line); m != nil {
			section = m[1]
		} else if m := kindHeading.FindStringSubmatch(line); m != nil {
			kind = m[1]
		}
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		m := keyCell.FindStringSubmatch(strings.TrimSpace(cells[0]))
		if section == "" || m == nil || !strings.HasPrefix(line, "|") {
			continue
		}
		require.Len(t, cells, 6, "line %d: key, type, allowed, default, takes effect, meaning", i+1)
		require.Greater(t, len(strings.TrimSpace(cells[5])), 10, "line %d: what does it mean?", i+1)
		rows = append(rows, row{line: i + 1, section: section, kind: kind, key: m[1], typ: cells[1], allowed: cells[2], dflt: cells[3], takes: cells[4]})
	}
	require.Greater(t, len(rows), 40)
	return rows
}

// The reference and the program know the same keys, and say the same of when a
// change takes effect.
func TestReferenceHasEveryKey(t *testing.T) {
	t.Parallel()
	type entry struct {
		section, key string
		takes        string
	}
	var documented, known []entry
	for _, r := range readReference(t) {
		documented = append(documented, entry{r.section, r.key, r.takes})
	}
	for _, k := range config.Keys() {
		require.NotEmpty(t, k.When, "%s: keys.go does not say when a change takes effect", k.Path())
		known = append(known, entry{k.Section, k.Name, string(k.When)})
	}
	require.ElementsMatch(t, known, documented)
}

// context is a valid file that ends in the table of the row.
func (r row) context(kind string) string {
	extra := map[string]string{"webhook": "url = \"http://a.example/\"\n", "command": "argv = [\"/bin/true\"]\n"}[kind]
	text := "[[handler]]\nname = \"h\"\nkind = \"" + kind + "\"\n" + extra
	switch r.section {
	case "[[handler]]":
		return text
	case "[[uplink]]":
		return "[[uplink]]\nname = \"u\"\nprobe = \"a.example:443\"\n"
	case "[[route]]":
		return text + "[[route]]\nname = \"r\"\nhandler = \"h\"\n"
	}
	return r.section + "\n"
}

// with is the context with the key at value; a required key is replaced.
func (r row) with(kind, value string) string {
	text := r.context(kind)
	if old := regexp.MustCompile(`(?m)^` + r.key + ` = .*\n`); r.dflt == "required" {
		at := old.FindAllStringIndex(text, -1)
		last := at[len(at)-1]
		text = text[:last[0]] + text[last[1]:]
	}
	return text + r.key + " = " + value + "\n"
}

// kinds are the kinds of handlers that the row holds for.
func (r row) kinds() []string {
	switch {
	case r.section != "[[handler]]":
		return []string{"log"}
	case r.kind != "":
		return []string{r.kind}
	}
	return []string{"webhook", "command", "log"}
}

// defaults are what the row says is the default of each kind.
func (r row) defaults(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, part := range strings.Split(r.dflt, "; ") {
		kinds, value, several := strings.Cut(part, " ")
		for several && strings.HasSuffix(kinds, ",") {
			next, rest, _ := strings.Cut(value, " ")
			kinds, value = kinds+" "+next, rest
		}
		if part[0] == '`' || part == "none" || part == "required" {
			for _, k := range r.kinds() {
				out[k] = part
			}
			continue
		}
		for _, k := range strings.Split(kinds, ", ") {
			out[k] = value
		}
	}
	require.Len(t, out, len(r.kinds()), "line %d: a default for each kind: %v", r.line, out)
	return out
}

// To write a key at its documented default changes nothing.
func TestReferenceHasTheDefaults(t *testing.T) {
	t.Parallel()
	for _, r := range readReference(t) {
		for kind, value := range r.defaults(t) {
			switch value {
			case "none":
				continue
			case "required":
				text := r.with(kind, "0")
				text = text[:strings.LastIndex(text, r.key)]
				_, err := config.Parse("x.toml", []byte(text))
				require.Error(t, err, "line %d: %s is not required", r.line, r.key)
				continue
			case "cores":
				value = "`" + strconv.Itoa(runtime.NumCPU()) + "`"
			}
			require.Regexp(t, "^`.*`$", value, "line %d", r.line)
			want := mustParse(t, r.context(kind))
			got := mustParse(t, r.with(kind, strings.Trim(value, "`")))
			require.True(t, reflect.DeepEqual(want, got), "line %d: %s = %s is not the default of %s", r.line, r.key, value, kind)
		}
	}
}

// A wrong type, and what is just outside of what is allowed, are faults in the
// words of the reference.
func TestReferenceHasTypesAndRanges(t *testing.T) {
	t.Parallel()
	fault := func(r row, kind, value string) config.Fault {
		_, err := config.Parse("x.toml", []byte(r.with(kind, value)))
		var errs config.Errors
		require.ErrorAs(t, err, &errs, "line %d: %s = %s", r.line, r.key, value)
		for _, f := range errs {
			if strings.Contains(f.Key, "."+r.key) {
				return f
			}
		}
		require.Fail(t, "no fault of the key", "line %d: %v", r.line, errs)
		return config.Fault{}
	}
	ranges, words := 0, 0
	for _, r := range readReference(t) {
		kind := r.kinds()[0]
		want := map[string]string{
			"string": "must be a string", "whole number": "must be a whole number", "number": "must be a number", "true or false": "must be true or false",
			"list of strings": "must be a list", "list of whole numbers": "must be a list", "table of strings": "must be a table of strings",
		}[r.typ]
		require.NotEmpty(t, want, "line %d: type %q", r.line, r.typ)
		require.Equal(t, want, fault(r, kind, "1979-05-27").Allowed, "line %d", r.line)
		of, isList := strings.CutPrefix(r.typ, "list of ")
		if isList {
			require.Equal(t, "must be a "+strings.TrimSuffix(of, "s"), fault(r, kind, "[1979-05-27]").Allowed, "line %d", r.line)
		}
		if m := rangeCell.FindStringSubmatch(r.allowed); m != nil && strings.Contains(r.typ, "number") {
			ranges++
			low, _ := strconv.Atoi(m[2])
			high, _ := strconv.Atoi(m[3])
			if m[1] != "" {
				_, err := config.Parse("x.toml", []byte(r.with(kind, "0")))
				require.NoError(t, err, "line %d", r.line)
				require.Regexp(t, "0 .*or at least "+m[2], fault(r, kind, strconv.Itoa(low-1)).Allowed, "line %d", r.line)
				low = 0
			}
			for _, n := range []int{low - 1, high + 1} {
				value := strconv.Itoa(n)
				if isList {
					value = "[" + value + "]"
				}
				require.Equal(t, m[0], fault(r, kind, value).Allowed, "line %d", r.line)
			}
		}
		if wordsCell.MatchString(r.allowed) {
			words++
			require.Equal(t, "one of "+strings.ReplaceAll(r.allowed, "`", ""), fault(r, kind, `"qqqq"`).Allowed, "line %d", r.line)
		}
	}
	require.Greater(t, ranges, 15)
	require.Greater(t, words, 5)
}

// A whole number has a range, and a key of a few words lists them: else nothing
// above would look at it.
func TestReferenceSaysWhatIsAllowed(t *testing.T) {
	t.Parallel()
	for _, r := range readReference(t) {
		if strings.Contains(r.typ, "whole number") {
			require.Regexp(t, rangeCell, r.allowed, "line %d", r.line)
		}
		if r.typ != "string" {
			continue
		}
		_, err := config.Parse("x.toml", []byte(r.with(r.kinds()[0], "\"\\u0001\"")))
		var errs config.Errors
		if errors.As(err, &errs) && strings.HasPrefix(errs[0].Allowed, "one of ") {
			require.Regexp(t, wordsCell, r.allowed, "line %d", r.line)
		}
	}
}
