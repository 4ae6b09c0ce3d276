package command

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fencepost/edge"
	"fencepost/handlers"
)

// content is what the event puts into the execution, judged as the configuration
// was.
func (h *Handler) content(e *edge.Event) (Content, error) {
	c := Content{}
	if h.config.Fill != nil {
		var err error
		if c, err = h.config.Fill(e); err != nil {
			return c, err
		}
	}
	if c.Arguments == nil {
		c.Arguments = h.config.Argv[1:]
	}
	if !c.HasInput {
		c.Input = e.Data
	}
	if err := checkArgv(c.argv(h.config.Argv[0])); err != nil {
		return c, err
	}
	return c, h.checkFilled(c.Env)
}

// CheckEvent says what of the event cannot be put into its execution: what would
// block its delivery with template_error. nil when all can. It runs nothing.
func (h *Handler) CheckEvent(e *edge.Event) error {
	_, err := h.content(e)
	return err
}

// argv is the whole vector.
func (c Content) argv(program string) []string {
	return append([]string{program}, c.Arguments...)
}

// checkFilled judges variables whose values an event made.
func (h *Handler) checkFilled(env map[string]string) error {
	if n := len(env) + len(h.config.Env); n > MaxVariables {
		return fmt.Errorf("env: %d variables, the limit is %d", n, MaxVariables)
	}
	total := 0
	for _, name := range slices.Sorted(maps.Keys(env)) {
		value := env[name]
		total += len(value)
		var err error
		_, twice := h.config.Env[name]
		switch {
		case !handlers.ValidEnvName(name) || strings.HasPrefix(strings.ToUpper(name), reservedPrefix):
			err = errors.New("not a name that can be set")
		case twice:
			err = errors.New("given twice")
		case strings.EqualFold(name, "PATH"):
			err = errors.New("it decides which program runs, so no event may set it")
		case strings.ContainsRune(value, 0):
			err = errors.New("the value has a NUL byte")
		case total > MaxVariableBytes:
			err = fmt.Errorf("the values that the event makes have more than %d bytes together", MaxVariableBytes)
		}
		if err != nil {
			return fmt.Errorf("env: %q: %w", name, err)
		}
	}
	return nil
}
