package expression

import (
	"encoding/json"

	"github.com/expr-lang/expr/ast"
)

// predicates are the functions over the items of a list, and the kind of their
// value. In the second argument # is the item and #index its position.
var predicates = map[string]kind{
	"all": kindBool, "any": kindBool, "none": kindBool, "one": kindBool,
	"count": kindNumber, "sum": kindNumber, "filter": kindList, "map": kindList,
	"find": kindAny,
}

func (c *compiler) predicate(n ast.Node, name string, args []ast.Node) (code, error) {
	list, err := c.node(args[0])
	if err != nil {
		return code{}, err
	}
	if err := c.want(args[0], list, kindList, name); err != nil {
		return code{}, err
	}
	l := loop{name: name, list: list.run}
	if len(args) > 1 {
		p, ok := args[1].(*ast.PredicateNode)
		if !ok {
			return code{}, c.fault(n, "%s wants a list, and what to ask of each item", name)
		}
		l.item, l.index = c.declare("#", kindAny), c.declare("#index", kindNumber)
		body, err := c.node(p.Node)
		c.scope = c.scope[:len(c.scope)-2]
		if err != nil {
			return code{}, err
		}
		switch name {
		case "map":
		case "sum":
			err = c.want(p.Node, body, kindNumber, name)
		default:
			err = c.want(p.Node, body, kindBool, name)
		}
		if err != nil {
			return code{}, err
		}
		l.body = body.run
	}
	return code{kind: predicates[name], run: l.run}, nil
}

// loop is one call of a function over a list.
type loop struct {
	name        string
	list, body  eval // body is nil when the call has none
	item, index int  // slots
}

func (l loop) run(f *frame) (any, error) {
	v, err := l.list(f)
	if err != nil {
		return nil, err
	}
	list, ok := v.([]any)
	if !ok {
		return nil, faultf("%s wants a list, not %s", l.name, kindOf(v))
	}
	switch l.name {
	case "map":
		return l.mapped(f, list)
	case "sum":
		return l.sum(f, list)
	case "filter":
		return l.filtered(f, list)
	}
	return l.search(f, list)
}

// each is the body's value for an item, or the item itself.
func (l loop) each(f *frame, i int, item any) (any, error) {
	if err := f.step(1); err != nil {
		return nil, err
	}
	if l.body == nil {
		return item, nil
	}
	f.slots[l.item], f.slots[l.index] = item, count(i)
	return l.body(f)
}

func (l loop) ask(f *frame, i int, item any) (bool, error) {
	return condition(f, func(f *frame) (any, error) { return l.each(f, i, item) })
}

func (l loop) mapped(f *frame, list []any) (any, error) {
	if err := f.made(len(list) * wordBytes); err != nil {
		return nil, err
	}
	out := make([]any, len(list))
	for i, item := range list {
		v, err := l.each(f, i, item)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

func (l loop) filtered(f *frame, list []any) (any, error) {
	out := []any{}
	for i, item := range list {
		ok, err := l.ask(f, i, item)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if err := f.made(2 * wordBytes); err != nil {
			return nil, err
		}
		out = append(out, item)
	}
	return out, nil
}

func (l loop) sum(f *frame, list []any) (any, error) {
	var total any = json.Number("0")
	for i, item := range list {
		v, err := l.each(f, i, item)
		if err != nil {
			return nil, err
		}
		if total, err = f.calculate("+", total, v); err != nil {
			return nil, err
		}
	}
	return total, nil
}

// search is what asks each item and needs no list: all, any, none, one, count,
// find.
func (l loop) search(f *frame, list []any) (any, error) {
	found := 0
	for i, item := range list {
		ok, err := l.ask(f, i, item)
		if err != nil {
			return nil, err
		}
		if ok {
			found++
		}
		switch {
		case l.name == "all" && !ok, l.name == "none" && ok:
			return false, nil
		case l.name == "any" && ok:
			return true, nil
		case l.name == "find" && ok:
			return item, nil
		}
	}
	switch l.name {
	case "count":
		return count(found), nil
	case "one":
		return found == 1, nil
	case "any":
		return false, nil
	case "find":
		return nil, missingf("find: no item is such")
	}
	return true, nil
}
