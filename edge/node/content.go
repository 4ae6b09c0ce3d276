package node

import (
	"fmt"
	"maps"
	"slices"

	"fencepost/edge"
	"fencepost/edge/config"
	"fencepost/edge/expression"
	"fencepost/handlers/command"
	"fencepost/handlers/webhook"
)

// text is a template and what a fault of it names.
type text struct {
	name  string // key of the configuration, as in headers.X-Order
	under string // what its result stands under: a header, a variable
	*expression.Template
}

func newText(name, under, source string, use expression.Use) (text, error) {
	t, err := expression.CompileTemplate(source, use)
	if err != nil {
		return text{}, fmt.Errorf("%s: %w", name, err)
	}
	return text{name, under, t}, nil
}

func (t text) render(env *expression.Env) (string, error) {
	s, err := t.Render(env)
	if err != nil {
		return "", fmt.Errorf("%s: %w", t.name, err)
	}
	return s, nil
}

// texts makes templates of the values that are, and returns the others.
func texts(section string, values map[string]string, use expression.Use) (made []text, plain map[string]string, err error) {
	plain = make(map[string]string, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !expression.IsTemplate(values[name]) {
			plain[name] = values[name]
			continue
		}
		t, err := newText(section+"."+name, name, values[name], use)
		if err != nil {
			return nil, nil, err
		}
		made = append(made, t)
	}
	return made, plain, nil
}

func renderAll(env *expression.Env, all []text) (map[string]string, error) {
	out := make(map[string]string, len(all))
	for _, t := range all {
		s, err := t.render(env)
		if err != nil {
			return nil, err
		}
		out[t.under] = s
	}
	return out, nil
}

// requestContent divides a webhook's headers into those that are as written and
// those that events make, and gives what makes the latter and the body; nil when
// there is nothing to make.
func requestContent(w *config.Webhook) (plain map[string]string, fill func(*edge.Event) (webhook.Content, error), err error) {
	headers, plain, err := texts("headers", w.Headers, expression.Header)
	if err != nil {
		return nil, nil, err
	}
	var body text
	if w.Body != "" {
		if body, err = newText("body", "", w.Body, expression.BodyUse(w.ContentType)); err != nil {
			return nil, nil, err
		}
	}
	if len(headers) == 0 && w.Body == "" {
		return plain, nil, nil
	}
	return plain, func(e *edge.Event) (c webhook.Content, err error) {
		env := expression.NewEnv(e)
		if c.Headers, err = renderAll(env, headers); err != nil || w.Body == "" {
			return c, err
		}
		s, err := body.render(env)
		c.Body, c.ContentType = []byte(s), w.ContentType
		return c, err
	}, nil
}

// executionContent is the same for a command: its arguments, variables and
// standard input.
func executionContent(c *config.Command) (plain map[string]string, fill func(*edge.Event) (command.Content, error), err error) {
	env, plain, err := texts("env", c.Env, expression.Variable)
	if err != nil {
		return nil, nil, err
	}
	args, filled, err := argumentTexts(c.Argv)
	if err != nil {
		return nil, nil, err
	}
	var stdin text
	if c.Stdin != "" {
		if stdin, err = newText("stdin", "", c.Stdin, expression.Plain); err != nil {
			return nil, nil, err
		}
	}
	if len(env) == 0 && !filled && c.Stdin == "" {
		return plain, nil, nil
	}
	return plain, func(e *edge.Event) (out command.Content, err error) {
		v := expression.NewEnv(e)
		for _, a := range args {
			s, err := a.render(v)
			if err != nil {
				return out, err
			}
			out.Arguments = append(out.Arguments, s)
		}
		if out.Env, err = renderAll(v, env); err != nil || c.Stdin == "" {
			return out, err
		}
		s, err := stdin.render(v)
		out.Input, out.HasInput = []byte(s), true
		return out, err
	}, nil
}

// argumentTexts are templates of all arguments after the program; filled reports
// whether an event has a part in any.
func argumentTexts(argv []string) (args []text, filled bool, err error) {
	for i, source := range argv[min(1, len(argv)):] {
		name := fmt.Sprintf("argv[%d]", i+2) // counted as the faults of the configuration do
		t, err := newText(name, "", source, expression.Argument)
		if err != nil {
			return nil, false, err
		}
		filled = filled || expression.IsTemplate(source)
		args = append(args, t)
	}
	return args, filled, nil
}
