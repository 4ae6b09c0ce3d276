package expression_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/expression"
)

// uses are the templates of docs/expressions.md by the word after ```.
var uses = map[string]expression.Use{
	"template": expression.Plain, "json-body": expression.JSON, "argument": expression.Argument,
}

// documented is the event of docs/expressions.md.
func documented(t *testing.T, page string) *edge.Event {
	t.Helper()
	m := regexp.MustCompile("(?s)```json\n(.*?)```").FindStringSubmatch(page)
	require.NotNil(t, m)
	var e struct {
		ID, Source, Type, Subject, Region, DataContentType string
		Data                                               json.RawMessage
	}
	require.NoError(t, json.Unmarshal([]byte(m[1]), &e))
	return &edge.Event{
		ID: e.ID, Source: e.Source, Type: e.Type, Subject: e.Subject, ContentType: e.DataContentType,
		Extensions: map[string]string{"region": e.Region}, Data: e.Data,
	}
}

// Every example of the page gives what the page says.
func TestDocumentedExamples(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../docs/expressions.md")
	require.NoError(t, err)
	page := string(b)
	e := documented(t, page)
	ran := map[string]int{}
	for _, block := range regexp.MustCompile("(?s)```([a-z-]+)\n(.*?)```").FindAllStringSubmatch(page, -1) {
		use, isTemplate := uses[block[1]]
		if !isTemplate && block[1] != "expr" {
			continue
		}
		for _, line := range strings.Split(strings.TrimSpace(block[2]), "\n") {
			ran[block[1]]++
			source, want, found := strings.Cut(line, "=>")
			require.True(t, found, line)
			source, want = strings.TrimSpace(source), strings.TrimSpace(want)
			got, err := example(e, source, use, isTemplate)
			if problem, isError := strings.CutPrefix(want, "error: "); isError {
				require.Error(t, err, line)
				require.Equal(t, problem, strings.TrimPrefix(err.Error(), "invalid: "), line)
				continue
			}
			require.NoError(t, err, line)
			require.Equal(t, want, got, line)
		}
	}
	require.Greater(t, ran["expr"], 30)
	for block := range uses {
		require.Positive(t, ran[block], block)
	}
}

func example(e *edge.Event, source string, use expression.Use, isTemplate bool) (string, error) {
	if !isTemplate {
		got, err := value(e, source)
		if err != nil {
			return "", unwrapped(err)
		}
		return got, nil
	}
	tm, err := expression.CompileTemplate(source, use)
	if err != nil {
		return "", err
	}
	return tm.Render(expression.NewEnv(e))
}

// unwrapped is the fault of an expression without the place in the template that
// value puts around it.
func unwrapped(err error) error {
	if _, text, found := strings.Cut(err.Error(), "number 1: "); found {
		return plainError(text)
	}
	return err
}

type plainError string

func (e plainError) Error() string { return string(e) }

// Every function of the page is known, and every one that is known is on it.
func TestDocumentedFunctions(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../docs/expressions.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(b), "## Functions")
	section, _, _ = strings.Cut(section, "```")
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-zA-Z]+)(\\(|`)").FindAllStringSubmatch(section, -1) {
		documented[m[1]] = true
	}
	require.Equal(t, expression.Functions(), slices.Sorted(maps.Keys(documented)))
}
