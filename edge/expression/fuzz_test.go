package expression_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/expression"
)

// Whatever the text and the data: no panic, an end, the same answer twice, and an
// error that is one short line.
func FuzzExpression(f *testing.F) {
	for _, source := range []string{
		`data.amount > 100 and ext.region == "north"`, `data.a?.b ?? "x"`, `all(data.items, .price * 2 > 1e400)`, `sum(map(data.items, .n)) / 3`,
		`let a = data; a + a`, `1 < 2 < 3`, `{a: [1, "b"], "c": nil}`, `type matches "^a+$"`, `data.s[1:-1] + replace(data.s, "a", "bb")`, `(data ?: 1) ?: 2`,
		`if data.b { int("1") } else { 0x1F }`, `filter(data.items, {# in [1]}) | len()`, `number("1e5") % 7 - -.5`, `json(data) contains "\u{41}"`, "`raw`[0:1]",
	} {
		f.Add(source, `{"amount": 9007199254740993, "items": [{"price": 1e400, "n": 1}], "s": "aé", "b": true}`)
	}
	f.Fuzz(func(t *testing.T, source, data string) {
		x, err := expression.Compile(source)
		short(t, err)
		if err != nil {
			require.ErrorIs(t, err, edge.ErrInvalid)
			return
		}
		e := event(data)
		first, err1 := x.Bool(expression.NewEnv(e))
		second, err2 := x.Bool(expression.NewEnv(e))
		short(t, err1)
		require.Equal(t, first, second)
		require.Equal(t, err1, err2)
		require.False(t, first && err1 != nil)
	})
}

func FuzzTemplate(f *testing.F) {
	for i, source := range []string{`{"a": "${data.s}", "b": ${data}}`, `a ${id} $${x} ${'}'}`, `--n=${data.s}`, `${data.s}`, "${json(data)}\t"} {
		f.Add(source, `{"s": "a\"\n-"}`, i)
	}
	f.Fuzz(func(t *testing.T, source, data string, use int) {
		u := expression.Use(uint(use) % 6)
		tm, err := expression.CompileTemplate(source, u)
		short(t, err)
		if err != nil {
			require.ErrorIs(t, err, edge.ErrInvalid)
			return
		}
		got, err := tm.Render(expression.NewEnv(event(data)))
		short(t, err)
		if err != nil {
			return
		}
		switch u {
		case expression.JSON:
			require.True(t, json.Valid([]byte(got)), "%q", got)
		case expression.Key:
			require.True(t, got != "" && len(got) <= edge.MaxNameBytes)
			require.NotRegexp(t, "[\x00-\x1f\x7f]", got)
		case expression.Header:
			require.NotRegexp(t, "[\x00-\x08\x0a-\x1f\x7f]", got)
		case expression.Argument, expression.Variable:
			require.NotContains(t, got, "\x00")
		}
	})
}

func short(t *testing.T, err error) {
	if err != nil {
		require.LessOrEqual(t, len(err.Error()), 600)
		require.True(t, utf8.ValidString(err.Error()))
		require.NotRegexp(t, "[\x00-\x1f\x7f]", err.Error())
	}
}
