package expression

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/parser/lexer"

	"fencepost/edge"
)

// Expr is a compiled expression. It is immutable.
type Expr struct {
	run   eval
	kind  kind // of its value, as far as it is known
	slots int
}

// Compile compiles an expression. The error says where in it, by line and column
// from 1, and what is allowed; it wraps [edge.ErrInvalid].
func Compile(source string) (*Expr, error) {
	x, err := compile(source)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", edge.ErrInvalid, err)
	}
	return x, nil
}

// CompileCondition compiles an expression whose value must be true or false.
func CompileCondition(source string) (*Expr, error) {
	x, err := compile(source)
	if err == nil && x.kind != kindAny && x.kind != kindBool {
		err = fmt.Errorf("it gives %s; a condition gives true or false", x.kind)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", edge.ErrInvalid, err)
	}
	return x, nil
}

// Bool is the value of a condition. An error, also one for a value that is
// neither true nor false, is not false: the condition has no answer.
func (x *Expr) Bool(env *Env) (bool, error) {
	v, err := x.value(env)
	if err != nil {
		return false, err
	}
	b, ok := v.(bool)
	if !ok {
		return false, faultf("it gives %s; a condition gives true or false", kindOf(v))
	}
	return b, nil
}

func (x *Expr) value(env *Env) (any, error) {
	return x.run(&frame{env: env, slots: make([]any, x.slots)})
}

func compile(source string) (x *Expr, err error) {
	switch {
	case strings.TrimSpace(source) == "":
		return nil, errors.New("the expression is empty")
	case len(source) > MaxSourceBytes:
		return nil, fmt.Errorf("the expression has %d bytes, the limit is %d", len(source), MaxSourceBytes)
	case !utf8.ValidString(source):
		return nil, errors.New("the expression is not valid UTF-8")
	}
	defer func() { // the parser's own faults on what nobody writes
		if p := recover(); p != nil {
			x, err = nil, errors.New("the expression is not understood")
		}
	}()
	short, err := shortNumbers(source)
	if err != nil {
		return nil, syntax(err)
	}
	tree, err := parser.Parse(short)
	if err != nil {
		return nil, syntax(err)
	}
	c := &compiler{source: []rune(source), done: map[ast.Node]code{}}
	top, err := c.node(tree.Node)
	if err != nil {
		return nil, err
	}
	return &Expr{run: top.run, kind: top.kind, slots: c.slots}, nil
}

// shortNumbers puts a number of the same length in place of each one that is too
// large for the parser's own types. The compiler reads the numbers in the source.
func shortNumbers(source string) (string, error) {
	tokens, err := lexer.Lex(file.NewSource(source))
	if err != nil {
		return "", err
	}
	runes := []rune(source)
	for _, t := range tokens {
		if t.Kind != lexer.Number || t.To > len(runes) || strings.ContainsAny(t.Value, "xXoObB") {
			continue
		}
		if n, ok := jsonNumber(strings.ReplaceAll(t.Value, "_", "")); !ok || len(n) < 10 && !strings.ContainsAny(t.Value, "eE") {
			continue
		}
		for i := t.From; i < t.To; i++ {
			runes[i] = '0'
		}
		runes[t.From+1] = '.' // 0.000
	}
	return string(runes), nil
}

// syntax is a fault of the grammar in one line.
func syntax(err error) error {
	var e *file.Error
	if !errors.As(err, &e) {
		return errors.New("the expression is not understood")
	}
	message := e.Message
	switch {
	case strings.Contains(message, "unexpected token EOF"):
		message = "the expression ends too early"
	case strings.Contains(message, "token String("), strings.Contains(message, "token Bytes("):
		message = "a text stands where none can" // which one is nobody's business
	default:
		message = unexpected(message)
	}
	return at(e.Line, e.Column+1, plain(message))
}

// token is what the parser did not expect, as its message says.
var token = regexp.MustCompile(`^unexpected token [A-Za-z]+\("(.*)"\)`)

// slips are how the operators of other languages are written here.
var slips = map[string]string{
	"=": "write == to compare, <= for at most, >= for at least", ">": "write != for not equal", "&": "write && for and",
	"AND": "write && for and", "And": "write && for and", "OR": "write || for or", "Or": "write || for or", "LIKE": "write contains, startsWith or endsWith",
}

// unexpected says in plain words what the parser did not expect.
func unexpected(message string) string {
	m := token.FindStringSubmatch(message)
	if m == nil {
		return message
	}
	if hint := slips[m[1]]; hint != "" {
		return m[1] + " stands where none can: " + hint
	}
	return m[1] + " stands where none can"
}

func at(line, column int, message string) error {
	if line > 1 {
		return fmt.Errorf("line %d, column %d: %s", line, column, message)
	}
	return fmt.Errorf("column %d: %s", column, message)
}

// plain is a text for one line, cut.
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r <= 0x9f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	const limit = 120
	if len(s) <= limit {
		return s
	}
	end := limit
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "..."
}
