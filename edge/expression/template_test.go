package expression_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/expression"
)

func render(e *edge.Event, source string, use expression.Use) (string, error) {
	t, err := expression.CompileTemplate(source, use)
	if err != nil {
		return "", err
	}
	return t.Render(expression.NewEnv(e))
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		``:                                       ``,
		`plain`:                                  `plain`,
		`$ {x} $x {}`:                            `$ {x} $x {}`,
		`$${id}`:                                 `${id}`,
		`$$${id}`:                                `$${id}`,
		`$${${id}}`:                              `${e1}`,
		`${id}${type}`:                           `e1order.paid`,
		`a ${ id } b`:                            `a e1 b`,
		`${"}"}`:                                 `}`,
		`${'}' + "\"}" + ` + "`}`" + `}`:         `}"}}`,
		`${ {a: {b: "}"}}.a.b }`:                 `}`,
		`${id /* } */}`:                          `e1`,
		"${id // }\n}":                           `e1`,
		`${map(data.items, {.sku})[0]}`:          `x`,
		`${data.paid} ${data.big} ${data.price}`: `true 9007199254740993 19.90`,
		`${data.empty}`:                          ``,
	} {
		got, err := render(event(order), source, expression.Plain)
		require.NoError(t, err, source)
		require.Equal(t, want, got, source)
	}
}

func TestFaultsOfTemplates(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		source  string
		use     expression.Use
		problem string
	}{
		{`${`, expression.Plain, "number 1 has no }"},
		{`${id} ${"}`, expression.Plain, "number 2 has no }"},
		{`${id /* }`, expression.Plain, "number 1 has no }"},
		{`${}`, expression.Plain, "number 1: the expression is empty"},
		{`${id} ${1 +}`, expression.Plain, "number 2: column 3: the expression ends too early"},
		{`${ext}`, expression.Plain, "number 1 gives an object"},
		{`${[1]}`, expression.Header, "number 1 gives a list"},
		{`${nil}`, expression.Argument, "number 1 gives null"},
		{"a\n${id}", expression.Header, "control character"},
		{"a\n${id}", expression.Key, "control character"},
		{"a\x00${id}", expression.Argument, "NUL"},
		{"a\x00${id}", expression.Variable, "NUL"},
		{`-${id}`, expression.Argument, "name of an option"},
		{`--${id}`, expression.Argument, "name of an option"},
		{`--na${id}=x`, expression.Argument, "name of an option"},
		{`-l${id}`, expression.Argument, "name of an option"},
		{strings.Repeat("x", 4097), expression.Plain, "4097 bytes, the limit is 4096"},
		{`{"a": "${id}`, expression.JSON, "it is not JSON"},
		{`{"a": 1${data.n}}`, expression.JSON, "it is not JSON"},
		{`{"a": ${data.n}${data.n}}`, expression.JSON, "it is not JSON"},
		{`{${data.n}: 1}`, expression.JSON, "it is not JSON"},
		{`{"a": "\u00${data.n}"}`, expression.JSON, "it is not JSON"},
		{`{"a": "\${data.n}"}`, expression.JSON, `a \ stands before`},
		{`{"a": "${ext}"}`, expression.JSON, "without the quotes"},
		{`hello ${id}`, expression.JSON, "it is not JSON"},
	} {
		_, err := expression.CompileTemplate(tc.source, tc.use)
		require.ErrorIs(t, err, edge.ErrInvalid, tc.source)
		require.ErrorContains(t, err, tc.problem, tc.source)
	}
}

// Replay of R71: what is missing is an error, never an empty text.
func TestMissingIsNeverEmpty_R71(t *testing.T) {
	t.Parallel()
	for _, use := range []expression.Use{expression.Plain, expression.Key, expression.Header, expression.Argument, expression.Variable, expression.JSON} {
		quote := ""
		if use == expression.JSON {
			quote = `"`
		}
		for _, name := range []string{"data.missing", "data.customer.missing", "data.items[9]", "data.note", "time", "ext.missing", "data?.missing"} {
			got, err := render(event(order), quote+"${"+name+"}"+quote, use)
			require.Error(t, err, "%s gave %q", name, got)
			got, err = render(event(order), quote+"${"+name+` ?? "default"}`+quote, use)
			require.NoError(t, err, name)
			require.Equal(t, quote+"default"+quote, got)
		}
	}
}

// hostile are texts of which none may become more than the one text that it is.
var hostile = []string{
	"", " ", "a b", `"`, `'`, `\`, `\"`, `","admin":true,"x":"`, "\n", "\r\n", "\x00", "\t", "\u2028", "\u0085", "\x7f", "é", "\U0001F600",
	"${id}", "$${id}", "</script>", "-o", "--", "-", "--name=x", "=", "a=b", "env:HOME", "file:/etc/passwd",
}

// A value in a JSON body is one value, whatever it holds.
func TestJSONBodies(t *testing.T) {
	t.Parallel()
	for _, s := range hostile {
		text, err := json.Marshal(s)
		require.NoError(t, err)
		got, err := render(event(`{"s": `+string(text)+`, "big": 9223372036854775808}`),
			`{"in": "<${data.s}>", "out": ${data.s}, "big": ${data.big}, "all": ${data}, "${data.s}k": null}`, expression.JSON)
		require.NoError(t, err)
		var back map[string]any
		d := json.NewDecoder(strings.NewReader(got))
		d.UseNumber()
		require.NoError(t, d.Decode(&back), got)
		require.Equal(t, map[string]any{
			"in": "<" + s + ">", "out": s, "big": json.Number("9223372036854775808"), s + "k": nil,
			"all": map[string]any{"s": s, "big": json.Number("9223372036854775808")},
		}, back)
	}
}

// An argument is one text, and an option only when the configuration says so.
func TestArguments(t *testing.T) {
	t.Parallel()
	for _, s := range hostile {
		text, err := json.Marshal(map[string]string{"s": s})
		require.NoError(t, err)
		for source, begins := range map[string]string{"${data.s}": "", `${""}${data.s}`: "", "--name=${data.s}": "--name=", "a${data.s}": "a", "-o=${data.s}": "-o="} {
			got, err := render(event(string(text)), source, expression.Argument)
			if strings.Contains(s, "\x00") || begins == "" && strings.HasPrefix(s, "-") {
				require.Error(t, err, "%q in %s gave %q", s, source, got)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, begins+s, got)
		}
	}
}

func TestLimitsOfTexts(t *testing.T) {
	t.Parallel()
	data := `"` + strings.Repeat("a", 1<<20-2) + `"`
	_, err := render(event(data), strings.Repeat("${data}", 3), expression.Plain)
	require.NoError(t, err)
	_, err = render(event(data), strings.Repeat("${data}", 5), expression.Plain)
	require.ErrorContains(t, err, "more than 4194304 bytes")
}
