package expression_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/expression"
)

// event is the event of the examples in docs/expressions.md.
func event(data string) *edge.Event {
	return &edge.Event{
		ID: "e1", Source: "/shop/1", Type: "order.paid", Subject: "order-7", ContentType: "application/json",
		Extensions: map[string]string{"region": "north", "partitionkey": "till-3"},
		Data:       []byte(data),
	}
}

// value is the value of an expression as JSON.
func value(e *edge.Event, source string) (string, error) {
	t, err := expression.CompileTemplate("${json("+source+")}", expression.Plain)
	if err != nil {
		return "", err
	}
	return t.Render(expression.NewEnv(e))
}

func condition(e *edge.Event, source string) (bool, error) {
	x, err := expression.CompileCondition(source)
	if err != nil {
		return false, err
	}
	return x.Bool(expression.NewEnv(e))
}

const order = `{"amount": 120, "price": 19.90, "big": 9007199254740993, "huge": 1e400, "paid": true, "note": null,
	"customer": {"name": "Ana", "vip": true}, "tags": ["a", "b"], "empty": "", "none": [],
	"items": [{"sku": "x", "price": 5, "n": 2}, {"sku": "y", "price": 1.5, "n": 1}], "id": "7", "not-a-name": 1}`

func TestValues(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`id + source + type + subject`:         `"e1/shop/1order.paidorder-7"`,
		`ext.region`:                           `"north"`,
		`ext?.zone`:                            `null`,
		`ext.zone ?? "none"`:                   `"none"`,
		`time ?? "never"`:                      `"never"`,
		`datacontenttype`:                      `"application/json"`,
		`data.customer.name`:                   `"Ana"`,
		`data["not-a-name"]`:                   `1`,
		`data.items[0].sku`:                    `"x"`,
		`data.items[-1].sku`:                   `"y"`,
		`data.items[7]?.sku`:                   `null`,
		`data.items[7].sku ?? "z"`:             `"z"`,
		`data.a.b.c ?? "z"`:                    `"z"`,
		`data?.a?.b?.c`:                        `null`,
		`data.a?.b.c ?? 1`:                     `1`,
		`data.note`:                            `null`,
		`data.note ?? "n"`:                     `"n"`,
		`lower(data.missing) ?? "d"`:           `"d"`,
		`data.price`:                           `19.90`,
		`data.price + 0`:                       `19.9`,
		`0.1 + 0.2`:                            `0.3`,
		`1 / 3`:                                `0.3333333333333333333333333333333333`,
		`2 / 3`:                                `0.6666666666666666666666666666666667`,
		`-1 / 8`:                               `-0.125`,
		`0 / 3`:                                `0`,
		`7 % 3`:                                `1`,
		`-7 % 3`:                               `-1`,
		`-data.amount`:                         `-120`,
		`- -5`:                                 `5`,
		`2 * 3 - 4`:                            `2`,
		`0x10 + 1_000`:                         `1016`,
		`5. + .5 ?? 0`:                         `5.5`,
		`data.amount > 100 ? "big" : "small"`:  `"big"`,
		`if data.paid { 1 } else { 2 }`:        `1`,
		`let n = data.amount; n + n`:           `240`,
		`[1, "a", nil, true]`:                  `[1,"a",null,true]`,
		`{b: 1, "a": {c: 2}}`:                  `{"a":{"c":2},"b":1}`,
		`data.tags[0:1]`:                       `["a"]`,
		`data.customer.name[1:]`:               `"na"`,
		`"grüße"[2:4]`:                         `"üß"`,
		`"abc"[-2:]`:                           `"bc"`,
		`"abc"[2:1]`:                           `""`,
		`len("grüße")`:                         `5`,
		`len(data.items) + len(data.customer)`: `4`,
		`upper("aé")`:                          `"AÉ"`,
		`trim("  a ") + trim("xax", "x")`:      `"aa"`,
		`trimPrefix("v1", "v") + trimSuffix("a.b", ".b")`: `"1a"`,
		`split("a,b", ",")`:                  `["a","b"]`,
		`join(data.tags, "-")`:               `"a-b"`,
		`replace("aXbX", "X", "--")`:         `"a--b--"`,
		`indexOf("übel", "b")`:               `1`,
		`keys(data.customer)`:                `["name","vip"]`,
		`values({b: 1, a: 2})`:               `[2,1]`,
		`first(data.tags) + last(data.tags)`: `"ab"`,
		`first(data.none) ?? 0`:              `0`,
		`min(3, 1, 2) + max([1, 5])`:         `6`,
		`abs(-1.5)`:                          `1.5`,
		`[floor(-1.5), ceil(-1.5), round(-1.5), round(0.49), int(-1.9), int("12")]`: `[-2,-1,-2,0,-1,12]`,
		`[floor(-0.001), ceil(1e-900), round(2.5)]`:                                 `[-1,1,3]`,
		`number("1e3") + 1`:         `1001`,
		`string(12) + string(true)`: `"12true"`,
		`json(data.customer)`:       `"{\"name\":\"Ana\",\"vip\":true}"`,
		`type(data.tags) + type(data) + type(nil) + type(1) + type("") + type(true)`: `"arraymapnilnumberstringbool"`,
		`all(data.items, .price > 1)`:                          `true`,
		`any(data.items, .sku == "y")`:                         `true`,
		`none(data.items, .sku == "y")`:                        `false`,
		`one(data.items, .sku == "y")`:                         `true`,
		`count(data.items, .n > 1)`:                            `1`,
		`sum(data.items, .price * .n)`:                         `11.5`,
		`sum([1, 2.5])`:                                        `3.5`,
		`map(data.items, {#.sku + string(#index)})`:            `["x0","y1"]`,
		`filter(data.items, .price < 2)[0].sku`:                `"y"`,
		`find(data.items, .n == 1).sku`:                        `"y"`,
		`map(filter(data.items, any([1, 2], # == 2)), len(#))`: `[3,3]`,
		`data.items | map(.n) | sum()`:                         `3`,
	} {
		got, err := value(event(order), source)
		require.NoError(t, err, source)
		require.Equal(t, want, got, source)
	}
}

func TestConditions(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]bool{
		`data.amount > 100 and data.customer.vip`:   true,
		`data.amount > 100 && !data.paid`:           false,
		`data.amount < 100 or data.paid`:            true,
		`not (data.amount < 100)`:                   true,
		`subject startsWith "order-"`:               true,
		`subject endsWith "-8"`:                     false,
		`subject not contains "x"`:                  true,
		`type matches "^order\\.(paid|open)$"`:      true,
		`"a" in data.tags`:                          true,
		`"vip" in data.customer`:                    true,
		`"zip" not in data.customer`:                true,
		`1 in ["1", 2]`:                             false,
		`data.customer == {name: "Ana", vip: true}`: true,
		`data.tags == ["a"]`:                        false,
		`data.tags == ["a", 1]`:                     false,
		`data.note == nil`:                          true,
		`data?.vip == true`:                         false,
		`(data.vip ?? true)`:                        true,
		`1 < 2 < 3`:                                 true,
		`"b" > "a"`:                                 true,
		`1.0 == 1`:                                  true,
		`-0 == 0`:                                   true,
		`false and data.missing`:                    false,
		`data.items == data.items`:                  true,
		`data.customer.name /* a comment */ == "Ana" // and one more`: true,
	} {
		got, err := condition(event(order), source)
		require.NoError(t, err, source)
		require.Equal(t, want, got, source)
	}
}

// Numbers keep every digit, compared and shown.
func TestNumbersAreExact(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		data, source string
		want         bool
	}{
		{`9007199254740993`, `data > 9007199254740992`, true},
		{`9007199254740993`, `data == 9007199254740992`, false},
		{`9007199254740993`, `data == 9007199254740993`, true},
		{`9223372036854775808`, `data > 9223372036854775807`, true},
		{`9223372036854775809`, `data == 9223372036854775808`, false},
		{`9223372036854775809`, `data - 1 == 9223372036854775808`, true},
		{`-9223372036854775809`, `data < -9223372036854775808`, true},
		{`18446744073709551616`, `data == 18446744073709551615 + 1`, true},
		{`1e400`, `data > 1e399`, true},
		{`1e400`, `data == 10e399`, true},
		{`1e400`, `data > 100`, true},
		{`-1e400`, `data < 100`, true},
		{`1e-400`, `data > 0`, true},
		{`1e-400`, `data == 0`, false},
		{`1e999999`, `data > 1e999998`, true},
		{`0.1`, `data + 0.2 == 0.3`, true},
		{`0.10`, `data == 0.1`, true},
		{`123456789012345678901234567890.5`, `data > 123456789012345678901234567890.4`, true},
		{`100`, `data > 99.99999999999999999999999999`, true},
		{`0`, `data == -0.0`, true},
		{`0e5`, `data < 1`, true},
		{`5`, `data in [4, 5.0]`, true},
	} {
		got, err := condition(event(tc.data), tc.source)
		require.NoError(t, err, "%s: %s", tc.data, tc.source)
		require.Equal(t, tc.want, got, "%s: %s", tc.data, tc.source)
	}
	for _, n := range []string{
		"9007199254740993", "9223372036854775808", "-9223372036854775809", "1e400", "1E+400", "0.10", "-0", "1e-7", "1.50",
		"0.1000000000000000055511151231257827", "340282366920938463463374607431768211457",
	} {
		for _, shown := range []string{"${data.n}", "${string(data.n)}", "${json(data.n)}", "${first(map([data], .n))}"} {
			tm, err := expression.CompileTemplate(shown, expression.Plain)
			require.NoError(t, err)
			got, err := tm.Render(expression.NewEnv(event(`{"n": ` + n + `}`)))
			require.NoError(t, err)
			require.Equal(t, n, got, shown)
		}
	}
}

func TestCalculationKeepsDigits(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`9007199254740993 + 0`:                          `9007199254740993`,
		`9223372036854775807 + 1`:                       `9223372036854775808`,
		`9223372036854775807 * 9223372036854775807`:     `85070591730234615847396907784232501249`,
		`1e400 * 1e400`:                                 `1` + strings.Repeat("0", 800),
		`1e600 * 1e600`:                                 `1e1200`,
		`1e-600 * 1e-600`:                               `1e-1200`,
		`1e30 + 1e-30`:                                  `1` + strings.Repeat("0", 30) + `.` + strings.Repeat("0", 29) + `1`,
		`0 + 1e900000`:                                  `1e900000`,
		`1e900000 - 1e900000`:                           `0`,
		`123456789012345678901234567890 % 97`:           `52`,
		`1e40 / 1e39`:                                   `10`,
		`10000000000000000000000000000000000000001 / 1`: `10000000000000000000000000000000000000001`,
		`-2 / 3`: `-0.6666666666666666666666666666666667`,
	} {
		got, err := value(event(`1`), source)
		require.NoError(t, err, source)
		require.Equal(t, want, got, source)
	}
}

// An error is not false, and names no data.
func TestErrorsAreNotFalse(t *testing.T) {
	t.Parallel()
	const secret = "canary-4711"
	data := `{"s": "` + secret + `", "n": 1, "l": ["` + secret + `"], "o": {"k": "` + secret + `"}, "b": true, "z": null, "long": ` + strings.Repeat("7", 1001) + `}`
	for source, problem := range map[string]string{
		`data.missing`:               "data.missing is missing",
		`data.missing == "x"`:        "data.missing is missing",
		`data.missing.deep == 1`:     "data.missing is missing",
		`data.z.deep == 1`:           "data.z.deep is missing: what should hold it is null",
		`data.n.deep == 1`:           "a number has nothing inside it",
		`data.s[0] == 1`:             "a text has nothing inside it",
		`data.l[5] == 1`:             "data.l[5] is missing: the list has 1",
		`data.l["a"] == 1`:           "must be a number",
		`data.o[1] == 1`:             "must be a text",
		`data.l[0.5] == 1`:           "whole number",
		`data.s > 1`:                 "have no order",
		`data.z > 1`:                 "null and a number have no order",
		`data.l < data.l`:            "have no order",
		`data.s == 1`:                "a text is compared with a number",
		`data.o != data.l`:           "an object is compared with a list",
		`data.s`:                     "it gives a text; a condition gives true or false",
		`data.z`:                     "it gives null",
		`data.n and true`:            "a number stands where true or false must",
		`not data.s`:                 "a text stands where",
		`data.s ? true : false`:      "a text stands where",
		`data.s + data.n == 1`:       "+ wants",
		`data.s - 1 == 1`:            "- wants numbers",
		`-data.s == 1`:               "a text is no number",
		`data.n / 0 == 1`:            "division by zero",
		`data.n % 0 == 1`:            "division by zero",
		`data.n % 0.5 == 1`:          "whole numbers",
		`data.n in data.s`:           "not into a text",
		`data.n in ["1", "2"]`:       "a number is looked for in a list that has none",
		`data.n in [nil]`:            "a number is looked for in a list that has none",
		`data.n in data.o`:           "a text, not a number",
		`data.n contains "x"`:        "contains wants texts",
		`data.n matches "x"`:         "matches wants a text",
		`lower(data.n) == "x"`:       "lower wants a text, not a number",
		`len(data.n) == 1`:           "has no length",
		`join(data.n) == ""`:         "join wants",
		`join([data.l]) == ""`:       "has no text",
		`number(data.s) == 1`:        "the text is no number",
		`number(data.b) == 1`:        "no number",
		`int(data.s) == 1`:           "no number",
		`string(data.o) == ""`:       "an object has no text",
		`string(data.z) == ""`:       "it is null",
		`first([]) == 1`:             "the list is empty",
		`max(data.l) == 1`:           "max wants numbers",
		`sum(data.l) == 1`:           "+ wants numbers",
		`all(data.n, true)`:          "all wants a list",
		`all(data.l, #)`:             "a text stands where",
		`any(data.l, .k == 1)`:       "a text has nothing inside it",
		`find(data.l, # == "") == 1`: "no item is such",
		`data.long > 1`:              "1001 digits",
		`data.n > 1e1000000000`:      "exponent",
		`1e1000 + 1e-1000 == 1`:      "more than 1000 digits",
		`1e2000 + 1e-2000 == 1`:      "more than 1000 digits",
		`time == "x"`:                "the event has no time",
		`ext.zone == "x"`:            "ext.zone is missing",
		`(data.n.deep ?? 1) == 1`:    "a number has nothing inside it",
		`(data.n?.deep ?? 1) == 1`:   "a number has nothing inside it",
		`{(data.n): 1} == {}`:        "must be a text",
		`data.o[data.l] == 1`:        "must be a text",
		`trim("x", data.s + data.s + data.s + data.s + data.s + data.s) == ""`: "at most 64",
	} {
		got, err := condition(event(data), source)
		require.Error(t, err, "%s gave %v", source, got)
		require.NotErrorIs(t, err, edge.ErrInvalid, source)
		require.ErrorContains(t, err, problem, source)
		require.NotContains(t, err.Error(), secret, source)
	}
}

func TestFaultsOfTheText(t *testing.T) {
	t.Parallel()
	for source, problem := range map[string]string{
		``:                             "empty",
		" \n":                          "empty",
		`data.amount >`:                "ends too early",
		`data.amount > 1 1`:            "column 17",
		"true and\n  data.x @ 1":       "line 2, column 10",
		`amount > 1`:                   "column 1: amount is not known; the names are id, source, type",
		`$env.data == 1`:               "$env is not known",
		`data.f() == 1`:                "no methods",
		`now() > 1`:                    "reads no clock",
		`env("HOME") == ""`:            "the function env is not known here; docs/expressions.md",
		`repeat("x", 9) == ""`:         "the function repeat is not known here",
		`1..3 == []`:                   "the operator .. is not known here",
		`2 ** 3 == 8`:                  "the operator ** is not known here",
		`1; true`:                      "without ;",
		`b"x" == "x"`:                  "bytes",
		`data.amount + 1`:              "it gives a number; a condition gives true or false",
		`"true"`:                       "it gives a text",
		`nil`:                          "it gives null",
		`type == 1`:                    "column 6: a text is compared with a number",
		`type > 1`:                     "have no order",
		`ext + 1 == 1`:                 "+ wants",
		`-type == 1`:                   "- wants a number, and this is a text",
		`not type`:                     "not wants true or false",
		`type and true`:                "and wants true or false",
		`type ? true : false`:          "a condition wants",
		`type.x == 1`:                  "a text has nothing inside it",
		`1 in type`:                    "in looks into",
		`len() == 1`:                   "len has 0 arguments, not 1",
		`lower(1) == ""`:               "lower wants a text, and this is a number",
		`trim("a", "b", "c") == ""`:    "not 1 to 2",
		`min() == 1`:                   "at least 1",
		`type matches data.p`:          "must be a text that stands here",
		`type matches "("`:             "pattern",
		`type matches "a{5000}"`:       "pattern",
		`all(data.l, 1)`:               "all wants true or false",
		`#.x == 1`:                     "column",
		`all(data.l, #acc)`:            "#acc is not known",
		`let data = 1; data == 1`:      "data has a meaning already",
		`let x = 1; y == 1`:            "y is not known",
		`reduce(data.l, #acc) == 1`:    "reduce is not known",
		`startsWith(type, "x")`:        "startsWith",
		`hasPrefix(type, "x")`:         "write a startsWith b",
		`0x1_0000_0000_0000_0000 == 1`: "hex",
		"type == \"a\xff\"":            "UTF-8",
		`type == "` + strings.Repeat("x", 4096) + `"`: "4106 bytes, the limit is 4096",
	} {
		_, err := expression.CompileCondition(source)
		require.ErrorIs(t, err, edge.ErrInvalid, source)
		require.ErrorContains(t, err, problem, source)
		require.NotContains(t, err.Error(), "\n")
	}
}

// Hostile expressions and hostile data end, with an error or an answer.
func TestHostileExpressionsEnd(t *testing.T) {
	t.Parallel()
	list := `[` + strings.Repeat("1,", 19_999) + `1]`
	text := `"` + strings.Repeat("a", 1<<20-2) + `"`
	nested := strings.Repeat("all(data, ", 12) + "true" + strings.Repeat(")", 12)
	double := "let a0 = data; "
	for i := range 60 {
		double += fmt.Sprintf("let a%d = a%d + a%d; ", i+1, i, i)
	}
	lists := "let a0 = data; "
	for i := range 60 {
		lists += fmt.Sprintf("let a%d = [a%d, a%d]; ", i+1, i, i)
	}
	square := "let a0 = 7; "
	for i := range 60 {
		square += fmt.Sprintf("let a%d = a%d * a%d; ", i+1, i, i)
	}
	chain := "data"
	for range 300 {
		chain = "(" + chain + ")?:true"
	}
	compared := "data"
	for range 300 {
		compared = "1<(" + compared + "??1)<9 ? 2 : 3"
	}
	for name, tc := range map[string]struct{ source, data, problem string }{
		"nested all":            {nested, list, "steps"},
		"nested map":            {`len(map(data, map(data, map(data, #)))) > 0`, list, "bytes"},
		"nested filter":         {`len(filter(data, any(filter(data, # > 5), # > 7))) > 0`, list, "steps"},
		"nested sum":            {`sum(data, sum(data, sum(data, #))) > 0`, list, "steps"},
		"doubled text":          {double + "len(a60) > 0", text, "bytes"},
		"doubled list, as JSON": {lists + "len(json(a60)) > 0", "1", "steps"},
		"doubled list, equal":   {lists + "a60 == a60", "1", "steps"},
		"squares":               {square + "a60 > 0", "1", "1000 digits"},
		"replace by much":       {`len(replace(data, "a", data)) > 0`, text, "bytes"},
		"replace of nothing":    {`len(replace(data, "", data)) > 0`, text, "bytes"},
		"split to characters":   {`len(split(data, "")) > 0`, text, "bytes"},
		"joined":                {`len(join(map(split(data[0:9999], ""), data), data)) > 0`, text, "bytes"},
		"a pattern":             {`data matches "(a|aa|aaa)*(a{1,99})*(b|c){50}$"`, text, "steps"},
		"comparisons in a loop": {`all(data, "` + strings.Repeat("x", 2000) + `" contains "y" or true) and all(data, data == data)`, list, "steps"},
		"a chain of chains":     {chain, "true", "steps"},
		"comparisons within":    {compared + " > 0", "1", ""},
		"brackets":              {strings.Repeat("(", 2000) + "true" + strings.Repeat(")", 2000), "1", ""},
		"nots":                  {strings.Repeat("!", 4000) + "true", "1", ""},
		"minuses":               {strings.Repeat("-", 4000) + "1 > 0", "1", ""},
		"missing in a loop":     {`all(data, (data` + strings.Repeat("?.a", 500) + ` ?? 1) == 1) and all(data, all(data, true))`, list, ""},
		"deep data":             {`data == 1`, strings.Repeat("[", 65) + strings.Repeat("]", 65), "nested more than 64"},
		"very deep data":        {`data == 1`, strings.Repeat("[", 1<<19) + strings.Repeat("]", 1<<19), "nested more than 64"},
		"much data":             {`data == 1`, "[" + strings.Repeat("[],", 1_000_000) + "1]", "1000000 values"},
		"digits":                {`data > 1`, strings.Repeat("9", 1<<20), "digits"},
		"an exponent":           {`data > 1`, "1e99999999999999999999", "exponent"},
		"powers":                {`data * data * data > 1`, "1e999999", "exponent"},
		"broken JSON":           {`data == 1`, `{"a": `, "not valid JSON"},
		"two documents":         {`data == 1`, `1 2`, "something follows"},
		"bad UTF-8":             {`data == 1`, "\"\xff\"", "not valid UTF-8"},
		"nothing":               {`data == 1`, "", "the event has no data"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := condition(event(tc.data), tc.source)
			if tc.problem != "" {
				require.ErrorContains(t, err, tc.problem)
				require.Less(t, len(err.Error()), 512)
			}
		})
	}
}

// All expressions on one event have one purse, so that many routes are no way
// round the limit of one.
func TestTheStepsOfAnEventAreBounded(t *testing.T) {
	t.Parallel()
	env := expression.NewEnv(event(`[` + strings.Repeat("1,", 99_999) + `1]`))
	x, err := expression.CompileCondition(`all(data, # == 1)`)
	require.NoError(t, err)
	n := 0
	for ; n < 1000; n++ {
		if _, err = x.Bool(env); err != nil {
			break
		}
	}
	require.ErrorContains(t, err, "the expressions on this event take more than 10000000 steps together")
	require.Positive(t, n)
	ok, err := x.Bool(expression.NewEnv(event(`[1]`)))
	require.NoError(t, err)
	require.True(t, ok)
}

func TestDataByContentType(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ contentType, data, want string }{
		{"application/json", `{"a":1}`, `{"a":1}`},
		{"application/json; charset=utf-8", ` [1] `, `[1]`},
		{"Application/JSON", `1`, `1`},
		{"application/cloudevents+json", `"x"`, `"x"`},
		{"", `{"a":1}`, `{"a":1}`},
		{"text/plain", `{"a":1}`, `"{\"a\":1}"`},
		{"application/xml; broken=\"", `1`, `"1"`},
		{"application/json; broken=\"", `1`, `1`},
	} {
		e := event(tc.data)
		e.ContentType = tc.contentType
		got, err := value(e, "data")
		require.NoError(t, err, tc.contentType)
		require.Equal(t, tc.want, got, tc.contentType)
	}
}

// An expression that does not ask for the data does not pay for it.
func TestDataIsDecodedWhenAskedFor(t *testing.T) { // not parallel: it counts allocations
	e := event(`not JSON`)
	ok, err := condition(e, `type == "order.paid" or data.x`)
	require.NoError(t, err)
	require.True(t, ok)
	large := event(`[` + strings.Repeat("1,", 400_000) + `1]`)
	x, err := expression.CompileCondition(`type == "order.paid" or data.x`)
	require.NoError(t, err)
	require.Less(t, testing.AllocsPerRun(10, func() { _, _ = x.Bool(expression.NewEnv(large)) }), 20.0)
}

// Equal events give equal texts, whatever the order of a map in memory.
func TestRenderingIsPure(t *testing.T) {
	t.Parallel()
	tm, err := expression.CompileTemplate(`{"all": ${data}, "ext": ${ext}, "keys": ${keys(data)}, "m": "${json(data)}"}`, expression.JSON)
	require.NoError(t, err)
	first, err := tm.Render(expression.NewEnv(event(order)))
	require.NoError(t, err)
	for range 200 {
		again, err := tm.Render(expression.NewEnv(event(order)))
		require.NoError(t, err)
		require.Equal(t, first, again)
	}
}
