//go:build unix

package command_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/handlers/command"
)

// What an event puts into an execution arrives as it is, and the program stays the
// configuration's.
func TestContentOfAnEvent(t *testing.T) {
	t.Parallel()
	h := newHandler(t, command.Config{
		Argv: []string{self(t), "replaced"},
		Env:  map[string]string{modeVariable: "dump"},
		Fill: func(e *edge.Event) (command.Content, error) {
			return command.Content{
				Arguments: []string{"$(id)", "", "a b", "--n=" + e.Type}, Env: map[string]string{"A_REF": "env:HOME", "LANG": "de"},
				Input: []byte("made of " + e.ID), HasInput: true,
			}, nil
		},
	})
	got := run(t, h)
	require.Equal(t, []string{self(t), "$(id)", "", "a b", "--n=t"}, got.Args)
	require.Equal(t, "made of 1", string(got.In))
	require.Contains(t, got.Env, "A_REF=env:HOME")
	require.Contains(t, got.Env, "LANG=de")
	require.Equal(t, 1, strings.Count("\n"+strings.Join(got.Env, "\n"), "\nLANG="))
}

func run(t *testing.T, h *command.Handler) seen {
	t.Helper()
	r := h.Handle(within(t, hang), claim("data"))
	require.Equal(t, edge.OutcomeSucceeded, r.Outcome, r.Detail)
	_, out, _ := strings.Cut(r.Detail, "\n")
	var got seen
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	return got
}

// What the event does not fill in is as it was without.
func TestContentOfNothing(t *testing.T) {
	t.Parallel()
	h := newHandler(t, command.Config{
		Argv: []string{self(t), "kept"}, Env: map[string]string{modeVariable: "dump"},
		Fill: func(*edge.Event) (command.Content, error) { return command.Content{}, nil },
	})
	got := run(t, h)
	require.Equal(t, []string{self(t), "kept"}, got.Args)
	require.Equal(t, "data", string(got.In))
	h = newHandler(t, command.Config{
		Argv: []string{self(t), "kept"}, Env: map[string]string{modeVariable: "dump"},
		Fill: func(*edge.Event) (command.Content, error) { return command.Content{HasInput: true}, nil },
	})
	require.Empty(t, run(t, h).In)
}

// Whoever makes the content, what no program may get begins none.
func TestContentThatMayNotBeGiven(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range 65 {
		many[fmt.Sprintf("V_%d", i)] = "1"
	}
	for name, content := range map[string]command.Content{
		"NUL in an argument": {Arguments: []string{"canary\x00"}},
		"long arguments":     {Arguments: []string{strings.Repeat("canary", 6000)}},
		"many arguments":     {Arguments: make([]string, 256)},
		"NUL in a variable":  {Env: map[string]string{"A": "canary\x00"}},
		"a variable's name":  {Env: map[string]string{"A=canary": "1"}},
		"our own variable":   {Env: map[string]string{"FENCEPOST_KEY": "canary"}},
		"PATH":               {Env: map[string]string{"PATH": "/tmp/canary"}},
		"a fixed variable":   {Env: map[string]string{"FIXED": "canary"}},
		"long variables":     {Env: map[string]string{"A": strings.Repeat("canary", 3000), "B": strings.Repeat("canary", 3000)}},
		"many variables":     {Env: many},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHandler(t, command.Config{
				Argv: []string{"/bin/echo", "began"}, Env: map[string]string{"FIXED": "1"},
				Fill: func(*edge.Event) (command.Content, error) { return content, nil },
			})
			r := h.Handle(within(t, hang), claim("data"))
			require.Equal(t, edge.OutcomeBlocked, r.Outcome, r.Detail)
			require.Equal(t, "template_error", r.Code)
			require.NotContains(t, r.Detail, "/tmp/canary")
			require.NotContains(t, r.Detail, "canarycanary")
			require.NotContains(t, r.Detail, "began")
		})
	}
}

func TestContentThatCannotBeMade(t *testing.T) {
	t.Parallel()
	h := newHandler(t, command.Config{Argv: []string{"/bin/echo"}, Fill: func(*edge.Event) (command.Content, error) {
		return command.Content{}, errors.New("argv[2]: data.city is missing")
	}})
	require.Equal(t, edge.Misconfigured("template_error", "argv[2]: data.city is missing"), h.Handle(within(t, hang), claim("data")))
}
