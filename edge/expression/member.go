package expression

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
)

// member compiles a.b, a["b"] and a[0]. What is not there is a missing fault;
// with ?. it is null, and so is the member of what is missing or null.
func (c *compiler) member(n *ast.MemberNode) (code, error) {
	if n.Method {
		return code{}, c.fault(n, "a value has no methods")
	}
	parts, err := c.all(n.Node, n.Property)
	if err != nil {
		return code{}, err
	}
	switch k := parts[0].kind; k {
	case kindAny, kindObject, kindList, kindNil:
	default:
		return code{}, c.fault(n, "%s has nothing inside it", k)
	}
	base, property, optional, name := parts[0].run, parts[1].run, n.Optional, plain(path(n, maxPath))
	root, ok := n.Node.(*ast.IdentifierNode)
	ofData := ok && root.Value == "data"
	return code{kind: kindAny, run: func(f *frame) (any, error) {
		v, err := base(f)
		if optional && (err == nil && v == nil || isMissing(err)) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		p, err := property(f)
		if err != nil {
			return nil, err
		}
		if _, isText := v.(string); isText && ofData && !isJSON(f.env.event.ContentType) {
			return nil, faultf("%s: data is a text, as its content type is %s; send JSON as application/json", name, plain(f.env.event.ContentType))
		}
		v, err = inside(v, p, name)
		if optional && isMissing(err) {
			return nil, nil
		}
		return v, err
	}}, nil
}

// maxPath is how many names a fault shows of a long path, the last ones.
const maxPath = 8

// path is how the expression names a member, as far as that is plain.
func path(n ast.Node, limit int) string {
	if limit < 0 {
		return "..."
	}
	switch n := n.(type) {
	case *ast.IdentifierNode:
		return n.Value
	case *ast.PointerNode:
		return "#" + n.Name
	case *ast.ChainNode:
		return path(n.Node, limit)
	case *ast.MemberNode:
		return path(n.Node, limit-1) + place(n.Property)
	}
	return "(...)"
}

func place(property ast.Node) string {
	switch p := property.(type) {
	case *ast.StringNode:
		return "." + p.Value
	case *ast.IntegerNode:
		return "[" + strconv.Itoa(p.Value) + "]"
	}
	return "[...]"
}

// inside is the member of v that p names; path is how the expression says it.
func inside(v, p any, path string) (any, error) {
	switch x := v.(type) {
	case nil:
		return nil, missingf("%s is missing: what should hold it is null", path)
	case map[string]any:
		name, ok := p.(string)
		if !ok {
			return nil, faultf("%s: a name must be a text, not %s", path, kindOf(p))
		}
		item, there := x[name]
		if !there {
			return nil, missingf("%s is missing", path)
		}
		return item, nil
	case []any:
		i, ok := p.(json.Number)
		if !ok {
			return nil, faultf("%s: a position in a list must be a number, not %s", path, kindOf(p))
		}
		at, err := index(i)
		if err != nil {
			return nil, err
		}
		if at < 0 {
			at += len(x)
		}
		if at < 0 || at >= len(x) {
			return nil, missingf("%s is missing: the list has %d", path, len(x))
		}
		return x[at], nil
	}
	return nil, faultf("%s: %s has nothing inside it", path, kindOf(v))
}

// slice compiles a[from:to] of a list, or of the characters of a text. Bounds
// beyond the end are the end, as in expr.
func (c *compiler) slice(n *ast.SliceNode) (code, error) {
	base, err := c.node(n.Node)
	if err != nil {
		return code{}, err
	}
	bounds := [2]eval{}
	for i, b := range []ast.Node{n.From, n.To} {
		if b == nil {
			continue
		}
		part, err := c.node(b)
		if err != nil {
			return code{}, err
		}
		if err := c.want(b, part, kindNumber, "a position"); err != nil {
			return code{}, err
		}
		bounds[i] = part.run
	}
	return code{kind: base.kind, run: func(f *frame) (any, error) {
		v, err := base.run(f)
		if err != nil {
			return nil, err
		}
		return f.slice(v, bounds)
	}}, nil
}

func (f *frame) slice(v any, bounds [2]eval) (any, error) {
	list, isList := v.([]any)
	s, isText := v.(string)
	n := len(list)
	switch {
	case isText:
		n = utf8.RuneCountInString(s)
		if err := f.made(len(s)); err != nil {
			return nil, err
		}
	case !isList:
		return nil, faultf("%s has no part; a list or a text has", kindOf(v))
	}
	from, err := f.bound(bounds[0], 0, n)
	if err != nil {
		return nil, err
	}
	to, err := f.bound(bounds[1], n, n)
	if err != nil {
		return nil, err
	}
	if from > to {
		from = to
	}
	if isList {
		return list[from:to:to], nil
	}
	return characters(s, from, to), nil
}

// bound is one end of a part of n; a negative one counts from the end.
func (f *frame) bound(run eval, none, n int) (int, error) {
	if run == nil {
		return none, nil
	}
	v, err := run(f)
	if err != nil {
		return 0, err
	}
	number, ok := v.(json.Number)
	if !ok {
		return 0, faultf("a position must be a number, not %s", kindOf(v))
	}
	i, err := index(number)
	if err != nil {
		return 0, err
	}
	if i < 0 {
		i += n
	}
	return max(0, min(i, n)), nil
}

// characters are those from one position to another.
func characters(s string, from, to int) string {
	start, end, at := len(s), len(s), 0
	for i := range s {
		if at == from {
			start = i
		}
		if at == to {
			end = i
			break
		}
		at++
	}
	return s[min(start, end):end]
}
