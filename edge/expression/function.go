package expression

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
)

// function is one function of the language. All are pure.
type function struct {
	least, most int // arguments; most below 0: any number
	wants       kind
	gives       kind
	run         func(f *frame, args []any) (any, error)
}

// functions are those without a predicate. Names and meaning are expr's, where
// expr has them; json and number are ours.
var functions = map[string]function{
	"len":        {1, 1, kindAny, kindNumber, callLen},
	"lower":      {1, 1, kindText, kindText, ofText(strings.ToLower)},
	"upper":      {1, 1, kindText, kindText, ofText(strings.ToUpper)},
	"trim":       {1, 2, kindText, kindText, callTrim},
	"trimPrefix": {2, 2, kindText, kindText, ofTexts(strings.TrimPrefix)},
	"trimSuffix": {2, 2, kindText, kindText, ofTexts(strings.TrimSuffix)},
	"split":      {2, 2, kindText, kindList, callSplit},
	"join":       {1, 2, kindAny, kindText, callJoin},
	"replace":    {3, 3, kindText, kindText, callReplace},
	"indexOf":    {2, 2, kindText, kindNumber, callIndexOf},
	"keys":       {1, 1, kindObject, kindList, callKeys},
	"values":     {1, 1, kindObject, kindList, callValues},
	"first":      {1, 1, kindList, kindAny, end("first")},
	"last":       {1, 1, kindList, kindAny, end("last")},
	"min":        {1, -1, kindAny, kindNumber, extreme("min")},
	"max":        {1, -1, kindAny, kindNumber, extreme("max")},
	"abs":        {1, 1, kindNumber, kindNumber, callAbs},
	"floor":      {1, 1, kindNumber, kindNumber, rounding("floor")},
	"ceil":       {1, 1, kindNumber, kindNumber, rounding("ceil")},
	"round":      {1, 1, kindNumber, kindNumber, rounding("round")},
	"int":        {1, 1, kindAny, kindNumber, callInt},
	"number":     {1, 1, kindAny, kindNumber, callNumber},
	"string":     {1, 1, kindAny, kindText, callString},
	"json":       {1, 1, kindAny, kindText, callJSON},
	"type":       {1, 1, kindAny, kindText, callType},
}

// aliases are other names for the same.
var aliases = map[string]string{"toJSON": "json", "float": "number", "hasPrefix": "startsWith", "hasSuffix": "endsWith"}

// absent says what to write for some functions of expr that are not here.
var absent = map[string]string{
	"now": "an expression reads no clock; use time, the event's own", "date": "an expression reads no clock; time is the event's own, a text",
	"duration": "an expression reads no clock", "timezone": "an expression reads no clock",
	"repeat": "", "fromJSON": "data is decoded already", "get": "write a?.b, or a.b ?? default",
}

func (c *compiler) call(n ast.Node, name string, args []ast.Node) (code, error) {
	if other, ok := aliases[name]; ok {
		name = other
	}
	if name == "startsWith" || name == "endsWith" {
		return code{}, c.fault(n, "write a %s b", name)
	}
	if _, ok := predicates[name]; ok {
		return c.predicate(n, name, args)
	}
	fn, ok := functions[name]
	if !ok {
		if hint := absent[name]; hint != "" {
			return code{}, c.fault(n, "the function %s is not known here: %s", name, hint)
		}
		return code{}, c.fault(n, "the function %s is not known here; docs/expressions.md lists those that are", name)
	}
	if len(args) < fn.least || fn.most >= 0 && len(args) > fn.most {
		return code{}, c.fault(n, "%s has %d arguments, not %s", name, len(args), arity(fn))
	}
	parts, err := c.all(args...)
	if err != nil {
		return code{}, err
	}
	for i := range parts {
		if fn.wants != kindAny {
			if err := c.want(args[i], parts[i], fn.wants, name); err != nil {
				return code{}, err
			}
		}
	}
	return code{kind: fn.gives, run: callWith(name, fn, parts)}, nil
}

func arity(fn function) string {
	switch {
	case fn.most < 0:
		return "at least " + string(count(fn.least))
	case fn.most != fn.least:
		return string(count(fn.least)) + " to " + string(count(fn.most))
	}
	return string(count(fn.least))
}

func callWith(name string, fn function, parts []code) eval {
	return func(f *frame) (any, error) {
		args := make([]any, len(parts))
		for i := range parts {
			v, err := parts[i].run(f)
			if err != nil {
				return nil, err
			}
			if fn.wants != kindAny && kindOf(v) != fn.wants {
				return nil, faultf("%s wants %s, not %s", name, fn.wants, kindOf(v))
			}
			if s, ok := v.(string); ok {
				if err := f.step(len(s) / bytesPerStep); err != nil {
					return nil, err
				}
			}
			args[i] = v
		}
		return fn.run(f, args)
	}
}

// ofText is a function of one text whose result is about as long.
func ofText(fn func(string) string) func(*frame, []any) (any, error) {
	return func(f *frame, args []any) (any, error) {
		s := args[0].(string)
		return fn(s), f.made(2 * len(s))
	}
}

func ofTexts(fn func(a, b string) string) func(*frame, []any) (any, error) {
	return func(_ *frame, args []any) (any, error) { return fn(args[0].(string), args[1].(string)), nil }
}

func callLen(_ *frame, args []any) (any, error) {
	n, err := length(args[0])
	return count(n), err
}

func callTrim(_ *frame, args []any) (any, error) {
	if len(args) == 1 {
		return strings.TrimSpace(args[0].(string)), nil
	}
	const limit = 64
	if len(args[1].(string)) > limit {
		return nil, faultf("trim takes at most %d bytes of what to cut", limit)
	}
	return strings.Trim(args[0].(string), args[1].(string)), nil
}

func callSplit(f *frame, args []any) (any, error) {
	s, by := args[0].(string), args[1].(string)
	parts := strings.Count(s, by) + 1
	if err := f.made(parts * 2 * wordBytes); err != nil {
		return nil, err
	}
	out := make([]any, 0, parts)
	for _, p := range strings.Split(s, by) {
		out = append(out, p)
	}
	return out, f.step(parts)
}

func callJoin(f *frame, args []any) (any, error) {
	list, ok := args[0].([]any)
	by := ""
	if ok && len(args) == 2 {
		by, ok = args[1].(string)
	}
	if !ok {
		return nil, faultf("join wants a list and a text")
	}
	var b strings.Builder
	for i, v := range list {
		s, err := text(v)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			s = by + s
		}
		if err := f.made(len(s) + 1); err != nil {
			return nil, err
		}
		b.WriteString(s)
	}
	return b.String(), f.step(len(list))
}

func callReplace(f *frame, args []any) (any, error) {
	s, old, by := args[0].(string), args[1].(string), args[2].(string)
	size := int64(len(s)) + int64(strings.Count(s, old))*int64(len(by))
	if err := f.made(int(min(size, MaxMadeBytes+1))); err != nil {
		return nil, err
	}
	return strings.ReplaceAll(s, old, by), nil
}

func callIndexOf(_ *frame, args []any) (any, error) {
	s := args[0].(string)
	i := strings.Index(s, args[1].(string))
	if i < 0 {
		return count(-1), nil
	}
	return count(utf8.RuneCountInString(s[:i])), nil
}

func callKeys(f *frame, args []any) (any, error) {
	names, err := f.names(args[0].(map[string]any))
	if err != nil {
		return nil, err
	}
	out := make([]any, len(names))
	for i, name := range names {
		out[i] = name
	}
	return out, f.made(len(names) * wordBytes)
}

func callValues(f *frame, args []any) (any, error) {
	x := args[0].(map[string]any)
	names, err := f.names(x)
	if err != nil {
		return nil, err
	}
	out := make([]any, len(names))
	for i, name := range names {
		out[i] = x[name]
	}
	return out, f.made(len(names) * wordBytes)
}

// end is first or last.
func end(name string) func(*frame, []any) (any, error) {
	return func(_ *frame, args []any) (any, error) {
		list := args[0].([]any)
		switch {
		case len(list) == 0:
			return nil, missingf("%s: the list is empty", name)
		case name == "first":
			return list[0], nil
		}
		return list[len(list)-1], nil
	}
}

// extreme is min or max of numbers, given as arguments or as one list.
func extreme(name string) func(*frame, []any) (any, error) {
	return func(f *frame, args []any) (any, error) {
		if list, ok := args[0].([]any); ok && len(args) == 1 {
			args = list
		}
		if len(args) == 0 {
			return nil, missingf("%s: the list is empty", name)
		}
		var best json.Number
		for i, v := range args {
			n, ok := v.(json.Number)
			if !ok {
				return nil, faultf("%s wants numbers, not %s", name, kindOf(v))
			}
			if i == 0 {
				best = n
				continue
			}
			if err := f.step(1); err != nil {
				return nil, err
			}
			d, err := f.compareNumbers(n, best)
			if err != nil {
				return nil, err
			}
			if d < 0 && name == "min" || d > 0 && name == "max" {
				best = n
			}
		}
		return best, nil
	}
}

func callAbs(_ *frame, args []any) (any, error) {
	return json.Number(strings.TrimPrefix(string(args[0].(json.Number)), "-")), nil
}

func rounding(op string) func(*frame, []any) (any, error) {
	return func(f *frame, args []any) (any, error) { return f.whole(op, args[0].(json.Number)) }
}

func (f *frame) whole(op string, n json.Number) (any, error) {
	if err := f.made(len(n)); err != nil {
		return nil, err
	}
	if err := f.step(calculationSteps + len(n)/4); err != nil {
		return nil, err
	}
	d, err := parseDecimal(n)
	if err != nil {
		return nil, err
	}
	r, err := d.whole(op).number()
	if err != nil {
		return nil, err
	}
	return r, f.made(len(r))
}

func callInt(f *frame, args []any) (any, error) {
	v, err := callNumber(f, args)
	if err != nil {
		return nil, err
	}
	return f.whole("int", v.(json.Number))
}

// callNumber reads a text as a number: exactly the form that JSON has.
func callNumber(f *frame, args []any) (any, error) {
	switch x := args[0].(type) {
	case json.Number:
		return x, nil
	case string:
		s := strings.TrimSpace(x)
		if s != "" && strings.TrimLeft(s, "-0123456789.eE+") == "" && json.Valid([]byte(s)) {
			return json.Number(s), f.made(len(s))
		}
		return nil, faultf("the text is no number")
	}
	return nil, faultf("%s is no number", kindOf(args[0]))
}

func callString(_ *frame, args []any) (any, error) { return text(args[0]) }

func callJSON(f *frame, args []any) (any, error) {
	var b strings.Builder
	if err := f.writeJSON(&b, args[0]); err != nil {
		return nil, err
	}
	return b.String(), nil
}

// typeNames are what type(x) gives.
var typeNames = [...]string{kindNil: "nil", kindBool: "bool", kindText: "string", kindNumber: "number", kindList: "array", kindObject: "map"}

func callType(_ *frame, args []any) (any, error) { return typeNames[kindOf(args[0])], nil }
