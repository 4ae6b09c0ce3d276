package expression

import (
	"fmt"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// eval gives the value of one part of an expression.
type eval func(*frame) (any, error)

// code is a compiled part.
type code struct {
	run  eval
	kind kind
	// fixed is the value of a literal.
	fixed   any
	literal bool
}

func constant(v any) code {
	return code{run: func(*frame) (any, error) { return v, nil }, kind: kindOf(v), fixed: v, literal: true}
}

// compiler makes functions of the parser's tree.
type compiler struct {
	source []rune
	scope  []local
	slots  int
	done   map[ast.Node]code // a part that stands in two places is compiled once
}

// local is a name of let, or an item of a list ("#", "#index").
type local struct {
	name string
	slot int
	kind kind
}

func (c *compiler) declare(name string, k kind) int {
	slot := c.slots
	c.slots++
	c.scope = append(c.scope, local{name, slot, k})
	return slot
}

func (c *compiler) lookup(name string) (local, bool) {
	for i := len(c.scope) - 1; i >= 0; i-- {
		if c.scope[i].name == name {
			return c.scope[i], true
		}
	}
	return local{}, false
}

// fault is an error at the place of a node.
func (c *compiler) fault(n ast.Node, format string, args ...any) error {
	line, column := 1, 1
	for _, r := range c.source[:min(n.Location().From, len(c.source))] {
		column++
		if r == '\n' {
			line, column = line+1, 1
		}
	}
	return at(line, column, plain(fmt.Sprintf(format, args...)))
}

// node compiles one node and lets each evaluation of it cost a step.
func (c *compiler) node(n ast.Node) (code, error) {
	if done, ok := c.done[n]; ok {
		return done, nil
	}
	made, err := c.make(n)
	if err != nil {
		return code{}, err
	}
	if run := made.run; !made.literal {
		made.run = func(f *frame) (any, error) {
			if err := f.step(1); err != nil {
				return nil, err
			}
			return run(f)
		}
	}
	c.done[n] = made
	return made, nil
}

func (c *compiler) make(n ast.Node) (code, error) {
	switch n := n.(type) {
	case *ast.NilNode:
		return constant(nil), nil
	case *ast.BoolNode:
		return constant(n.Value), nil
	case *ast.StringNode:
		return constant(n.Value), nil
	case *ast.IntegerNode, *ast.FloatNode:
		return c.number(n)
	case *ast.IdentifierNode:
		return c.identifier(n)
	case *ast.PointerNode:
		return c.pointer(n)
	case *ast.UnaryNode:
		return c.unary(n)
	case *ast.BinaryNode:
		return c.binary(n)
	case *ast.ConditionalNode:
		return c.conditional(n)
	case *ast.MemberNode:
		return c.member(n)
	case *ast.ChainNode:
		return c.node(n.Node)
	case *ast.SliceNode:
		return c.slice(n)
	case *ast.ArrayNode:
		return c.list(n)
	case *ast.MapNode:
		return c.object(n)
	case *ast.VariableDeclaratorNode:
		return c.let(n)
	case *ast.BuiltinNode:
		return c.call(n, n.Name, n.Arguments)
	case *ast.CallNode:
		if callee, ok := n.Callee.(*ast.IdentifierNode); ok {
			return c.call(n, callee.Value, n.Arguments)
		}
		return code{}, c.fault(n, "a value has no methods")
	case *ast.SequenceNode:
		return code{}, c.fault(n, "one expression, without ; between two")
	case *ast.BytesNode:
		return code{}, c.fault(n, "bytes are not known here; write a text")
	}
	return code{}, c.fault(n, "not known here")
}

// number reads a literal in the source: the parser's own value may have lost
// digits.
func (c *compiler) number(n ast.Node) (code, error) {
	loc := n.Location()
	if loc.From >= 0 && loc.From < loc.To && loc.To <= len(c.source) {
		if v, ok := literalNumber(string(c.source[loc.From:loc.To])); ok {
			return constant(v), nil
		}
	}
	return code{}, c.fault(n, "not a number of a known form")
}

func (c *compiler) identifier(n *ast.IdentifierNode) (code, error) {
	if l, ok := c.lookup(n.Value); ok {
		return code{run: func(f *frame) (any, error) { return f.slots[l.slot], nil }, kind: l.kind}, nil
	}
	name, k := n.Value, kindText
	switch name {
	case "id", "source", "type", "subject", "time", "datacontenttype":
	case "ext":
		k = kindObject
	case "data":
		k = kindAny
	default:
		return code{}, c.fault(n, "%s is not known; the names are %s", name, Names)
	}
	return code{run: func(f *frame) (any, error) { return f.env.attribute(name) }, kind: k}, nil
}

func (c *compiler) pointer(n *ast.PointerNode) (code, error) {
	l, ok := c.lookup("#" + n.Name)
	if !ok {
		return code{}, c.fault(n, "#%s is not known here; # is the item, #index its position", n.Name)
	}
	return code{run: func(f *frame) (any, error) { return f.slots[l.slot], nil }, kind: l.kind}, nil
}

func (c *compiler) let(n *ast.VariableDeclaratorNode) (code, error) {
	if strings.Contains(", "+strings.ReplaceAll(Names, " and ", ", ")+",", ", "+n.Name+",") {
		return code{}, c.fault(n, "%s has a meaning already; choose another name", n.Name)
	}
	value, err := c.node(n.Value)
	if err != nil {
		return code{}, err
	}
	slot := c.declare(n.Name, value.kind)
	body, err := c.node(n.Expr)
	c.scope = c.scope[:len(c.scope)-1]
	if err != nil {
		return code{}, err
	}
	return code{kind: body.kind, run: func(f *frame) (any, error) {
		v, err := value.run(f)
		if err != nil {
			return nil, err
		}
		f.slots[slot] = v
		return body.run(f)
	}}, nil
}

func (c *compiler) conditional(n *ast.ConditionalNode) (code, error) {
	parts, err := c.all(n.Cond, n.Exp1, n.Exp2)
	if err != nil {
		return code{}, err
	}
	if err := c.want(n.Cond, parts[0], kindBool, "a condition"); err != nil {
		return code{}, err
	}
	k := kindAny
	if parts[1].kind == parts[2].kind {
		k = parts[1].kind
	}
	cond, then, other := parts[0].run, parts[1].run, parts[2].run
	return code{kind: k, run: func(f *frame) (any, error) {
		b, err := condition(f, cond)
		if err != nil {
			return nil, err
		}
		if b {
			return then(f)
		}
		return other(f)
	}}, nil
}

func condition(f *frame, run eval) (bool, error) {
	v, err := run(f)
	if err != nil {
		return false, err
	}
	b, ok := v.(bool)
	if !ok {
		return false, faultf("%s stands where true or false must", kindOf(v))
	}
	return b, nil
}

// all compiles several nodes.
func (c *compiler) all(nodes ...ast.Node) ([]code, error) {
	out := make([]code, len(nodes))
	for i, n := range nodes {
		var err error
		if out[i], err = c.node(n); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// want is a fault when a part is known to be of another kind.
func (c *compiler) want(n ast.Node, got code, k kind, what string) error {
	if got.kind != kindAny && got.kind != k {
		return c.fault(n, "%s wants %s, and this is %s", what, k, got.kind)
	}
	return nil
}

func (c *compiler) list(n *ast.ArrayNode) (code, error) {
	items, err := c.all(n.Nodes...)
	if err != nil {
		return code{}, err
	}
	return code{kind: kindList, run: func(f *frame) (any, error) {
		out := make([]any, len(items))
		if err := f.made(len(items) * wordBytes); err != nil {
			return nil, err
		}
		for i := range items {
			if out[i], err = items[i].run(f); err != nil {
				return nil, err
			}
		}
		return out, nil
	}}, nil
}

// wordBytes is what one item of a list, or one field of an object, counts for.
const wordBytes = 16

func (c *compiler) object(n *ast.MapNode) (code, error) {
	keys, values := make([]code, len(n.Pairs)), make([]code, len(n.Pairs))
	for i, p := range n.Pairs {
		pair, ok := p.(*ast.PairNode)
		if !ok {
			return code{}, c.fault(p, "not known here")
		}
		both, err := c.all(pair.Key, pair.Value)
		if err != nil {
			return code{}, err
		}
		if err := c.want(pair.Key, both[0], kindText, "a name"); err != nil {
			return code{}, err
		}
		keys[i], values[i] = both[0], both[1]
	}
	return code{kind: kindObject, run: func(f *frame) (any, error) {
		out := make(map[string]any, len(keys))
		for i := range keys {
			k, err := keys[i].run(f)
			if err != nil {
				return nil, err
			}
			name, ok := k.(string)
			if !ok {
				return nil, faultf("a name in an object must be a text, not %s", kindOf(k))
			}
			if out[name], err = values[i].run(f); err != nil {
				return nil, err
			}
			if err := f.made(3 * wordBytes); err != nil {
				return nil, err
			}
		}
		return out, nil
	}}, nil
}
