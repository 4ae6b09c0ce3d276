package expression

import (
	"encoding/json"
	"regexp"
	resyntax "regexp/syntax"
	"strings"

	"github.com/expr-lang/expr/ast"
)

func (c *compiler) unary(n *ast.UnaryNode) (code, error) {
	part, err := c.node(n.Node)
	if err != nil {
		return code{}, err
	}
	run := part.run
	switch n.Operator {
	case "not", "!":
		if err := c.want(n.Node, part, kindBool, n.Operator); err != nil {
			return code{}, err
		}
		return code{kind: kindBool, run: func(f *frame) (any, error) {
			b, err := condition(f, run)
			return !b, err
		}}, nil
	case "-", "+":
		if err := c.want(n.Node, part, kindNumber, n.Operator); err != nil {
			return code{}, err
		}
		negative := n.Operator == "-"
		return code{kind: kindNumber, run: func(f *frame) (any, error) {
			v, err := run(f)
			if err != nil {
				return nil, err
			}
			x, ok := v.(json.Number)
			switch {
			case !ok:
				return nil, faultf("%s is no number", kindOf(v))
			case !negative:
				return x, nil
			}
			if rest, was := strings.CutPrefix(string(x), "-"); was {
				return json.Number(rest), nil
			}
			return "-" + x, f.made(len(x))
		}}, nil
	}
	return code{}, c.fault(n, "the operator %s is not known here", n.Operator)
}

func (c *compiler) binary(n *ast.BinaryNode) (code, error) {
	if n.Operator == "matches" {
		return c.matches(n)
	}
	parts, err := c.all(n.Left, n.Right)
	if err != nil {
		return code{}, err
	}
	left, right := parts[0], parts[1]
	switch op := n.Operator; op {
	case "and", "&&", "or", "||":
		return c.logical(n, left, right)
	case "??":
		return coalesce(left, right), nil
	case "==", "!=":
		if left.kind != right.kind && !anyOf(left.kind, kindAny, kindNil) && !anyOf(right.kind, kindAny, kindNil) {
			return code{}, c.fault(n, "%s is compared with %s", left.kind, right.kind)
		}
		return c.operands(left, right, kindBool, func(f *frame, a, b any) (any, error) {
			same, err := f.equal(a, b)
			return same == (op == "=="), err
		}), nil
	case "<", "<=", ">", ">=":
		if !ordered(left.kind, right.kind) {
			return code{}, c.fault(n, "%s and %s have no order; two numbers or two texts have", left.kind, right.kind)
		}
		return c.operands(left, right, kindBool, func(f *frame, a, b any) (any, error) {
			d, err := f.order(a, b)
			return op == "<" && d < 0 || op == "<=" && d <= 0 || op == ">" && d > 0 || op == ">=" && d >= 0, err
		}), nil
	case "in":
		return c.in(n, left, right)
	case "contains", "startsWith", "endsWith":
		return c.search(n, left, right)
	case "+":
		return c.plus(n, left, right)
	case "-", "*", "/", "%":
		if err := c.both(n, left, right, kindNumber); err != nil {
			return code{}, err
		}
		return c.operands(left, right, kindNumber, func(f *frame, a, b any) (any, error) {
			return f.calculate(op, a, b)
		}), nil
	}
	return code{}, c.fault(n, "the operator %s is not known here", n.Operator)
}

// operands evaluates both sides and joins them.
func (c *compiler) operands(left, right code, k kind, join func(f *frame, a, b any) (any, error)) code {
	return code{kind: k, run: func(f *frame) (any, error) {
		a, err := left.run(f)
		if err != nil {
			return nil, err
		}
		b, err := right.run(f)
		if err != nil {
			return nil, err
		}
		return join(f, a, b)
	}}
}

func (c *compiler) logical(n *ast.BinaryNode, left, right code) (code, error) {
	if err := c.both(n, left, right, kindBool); err != nil {
		return code{}, err
	}
	or := n.Operator == "or" || n.Operator == "||"
	return code{kind: kindBool, run: func(f *frame) (any, error) {
		a, err := condition(f, left.run)
		if err != nil || a == or {
			return a, err
		}
		return condition(f, right.run)
	}}, nil
}

// coalesce takes the right side for one that is null, or missing; for no other
// fault.
func coalesce(left, right code) code {
	k := kindAny
	if left.kind == right.kind {
		k = left.kind
	}
	return code{kind: k, run: func(f *frame) (any, error) {
		v, err := left.run(f)
		if err == nil && v == nil || isMissing(err) {
			return right.run(f)
		}
		return v, err
	}}
}

func (c *compiler) both(n *ast.BinaryNode, left, right code, k kind) error {
	if err := c.want(n.Left, left, k, n.Operator); err != nil {
		return err
	}
	return c.want(n.Right, right, k, n.Operator)
}

func anyOf(k kind, of ...kind) bool {
	for _, o := range of {
		if k == o {
			return true
		}
	}
	return false
}

// ordered reports whether two kinds can have an order.
func ordered(a, b kind) bool {
	if a == kindAny {
		a = b
	}
	if b == kindAny {
		b = a
	}
	return a == b && anyOf(a, kindAny, kindNumber, kindText)
}

func (c *compiler) plus(n *ast.BinaryNode, left, right code) (code, error) {
	if !ordered(left.kind, right.kind) { // the same pairs
		return code{}, c.fault(n, "+ wants two numbers or two texts, and these are %s and %s", left.kind, right.kind)
	}
	k := left.kind
	if k == kindAny {
		k = right.kind
	}
	return c.operands(left, right, k, func(f *frame, a, b any) (any, error) {
		x, isText := a.(string)
		y, both := b.(string)
		if !isText && !both {
			return f.calculate("+", a, b)
		}
		if isText != both {
			return nil, faultf("+ wants two numbers or two texts, and these are %s and %s", kindOf(a), kindOf(b))
		}
		if err := f.made(len(x) + len(y)); err != nil {
			return nil, err
		}
		return x + y, nil
	}), nil
}

// calculationSteps is what a calculation costs beside its node.
const calculationSteps = 8

func (f *frame) calculate(op string, a, b any) (any, error) {
	x, ok := a.(json.Number)
	y, both := b.(json.Number)
	if !ok || !both {
		return nil, faultf("%s wants numbers, and these are %s and %s", op, kindOf(a), kindOf(b))
	}
	if err := f.made(len(x) + len(y)); err != nil {
		return nil, err
	}
	if err := f.step(calculationSteps + (len(x)+len(y))/4); err != nil {
		return nil, err
	}
	r, err := calculate(op, x, y)
	if err != nil {
		return nil, err
	}
	return r, f.made(len(r))
}

// in compiles the search for an item of a list, or a name of an object.
func (c *compiler) in(n *ast.BinaryNode, left, right code) (code, error) {
	if !anyOf(right.kind, kindAny, kindList, kindObject) {
		return code{}, c.fault(n, "in looks into a list or an object, and this is %s", right.kind)
	}
	return c.operands(left, right, kindBool, func(f *frame, a, b any) (any, error) {
		switch x := b.(type) {
		case []any:
			return f.among(a, x)
		case map[string]any:
			name, ok := a.(string)
			if !ok {
				return nil, faultf("a name in an object is a text, not %s", kindOf(a))
			}
			_, there := x[name]
			return there, nil
		}
		return nil, faultf("in looks into a list or an object, not into %s", kindOf(b))
	}), nil
}

// among looks for a value in a list. When none of the items is of its kind, nothing
// was compared, and that is no "false".
func (f *frame) among(v any, list []any) (any, error) {
	k, compared := kindOf(v), len(list) == 0 || v == nil
	for _, item := range list {
		if same, err := f.same(v, item); same || err != nil {
			return same, err
		}
		compared = compared || kindOf(item) == k
	}
	if !compared {
		return nil, faultf("%s is looked for in a list that has none", k)
	}
	return false, nil
}

func (c *compiler) search(n *ast.BinaryNode, left, right code) (code, error) {
	if err := c.both(n, left, right, kindText); err != nil {
		return code{}, err
	}
	op := n.Operator
	return c.operands(left, right, kindBool, func(f *frame, a, b any) (any, error) {
		x, ok := a.(string)
		y, both := b.(string)
		if !ok || !both {
			return nil, faultf("%s wants texts, and these are %s and %s", op, kindOf(a), kindOf(b))
		}
		if err := f.step((len(x) + len(y)) / bytesPerStep); err != nil {
			return nil, err
		}
		switch op {
		case "contains":
			return strings.Contains(x, y), nil
		case "startsWith":
			return strings.HasPrefix(x, y), nil
		}
		return strings.HasSuffix(x, y), nil
	}), nil
}

// matches compiles a search by a regular expression (RE2, which takes linear
// time). It must be a literal, so that its cost is known.
func (c *compiler) matches(n *ast.BinaryNode) (code, error) {
	parts, err := c.all(n.Left, n.Right)
	if err != nil {
		return code{}, err
	}
	pattern, ok := parts[1].fixed.(string)
	if !ok {
		return code{}, c.fault(n.Right, "the pattern of matches must be a text that stands here")
	}
	if err := c.want(n.Left, parts[0], kindText, "matches"); err != nil {
		return code{}, err
	}
	re, size, err := compilePattern(pattern)
	if err != nil {
		return code{}, c.fault(n.Right, "the pattern is not understood: %v", err)
	}
	left := parts[0].run
	return code{kind: kindBool, run: func(f *frame) (any, error) {
		v, err := left(f)
		if err != nil {
			return nil, err
		}
		s, ok := v.(string)
		if !ok {
			return nil, faultf("matches wants a text, not %s", kindOf(v))
		}
		if err := f.step(int(min(int64(len(s))*int64(size)/bytesPerStep, MaxEventSteps))); err != nil {
			return nil, err
		}
		return re.MatchString(s), nil
	}}, nil
}

// compilePattern gives the size of the program too.
func compilePattern(pattern string) (*regexp.Regexp, int, error) {
	parsed, err := resyntax.Parse(pattern, resyntax.Perl)
	if err != nil {
		return nil, 0, err
	}
	program, err := resyntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, 0, err
	}
	re, err := regexp.Compile(pattern)
	return re, len(program.Inst), err
}
