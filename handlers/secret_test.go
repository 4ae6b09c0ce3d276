package handlers_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/handlers"
)

const canary = "canary-4711"

func TestSecretIsNeverShown(t *testing.T) {
	t.Parallel()
	s := handlers.NewSecret(canary)
	type private struct{ s handlers.Secret }
	type public struct{ S handlers.Secret }
	var logged bytes.Buffer
	for _, h := range []slog.Handler{slog.NewJSONHandler(&logged, nil), slog.NewTextHandler(&logged, nil)} {
		l := slog.New(h)
		l.Info("m", "s", s, "private", private{s}, "public", public{s}, "p", &s)
	}
	encoded, err := json.Marshal(map[string]any{"s": s, "public": public{s}, "private": private{s}})
	require.NoError(t, err)
	shown := logged.String() + string(encoded)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		shown += fmt.Sprintf(verb, s) + fmt.Sprintf(verb, &s) + fmt.Sprintf(verb, public{s}) + fmt.Sprintf(verb, private{s})
	}
	require.NotContains(t, shown, canary)
	require.NotContains(t, shown, fmt.Sprintf("%x", canary))
	require.Equal(t, canary, s.Reveal())
	require.Empty(t, handlers.Secret{}.Reveal())
	require.Equal(t, "[redacted]", fmt.Sprint(s))
}

func TestResolveSecretFromTheEnvironment(t *testing.T) {
	t.Setenv("HANDLERS_TEST_SECRET", canary)
	t.Setenv("HANDLERS_TEST_EMPTY", "")
	s, err := handlers.ResolveSecret("env:HANDLERS_TEST_SECRET")
	require.NoError(t, err)
	require.Equal(t, canary, s.Reveal())
	_, err = handlers.ResolveSecret("env:HANDLERS_TEST_EMPTY")
	require.ErrorIs(t, err, handlers.ErrSecretMissing)
	_, err = handlers.ResolveSecret("env:HANDLERS_TEST_ABSENT")
	require.ErrorIs(t, err, handlers.ErrSecretMissing)
	require.ErrorContains(t, err, "env:HANDLERS_TEST_ABSENT")
}

func TestResolveSecretFromAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return "file:" + path
	}
	for _, c := range []struct{ name, content, want string }{
		{"plain", canary, canary},
		{"newline", canary + "\n", canary},
		{"crlf", canary + "\r\n", canary},
		{"two", canary + "\n\n", canary + "\n"},
		{"spaces", "  a b ", "  a b "},
		{"largest", strings.Repeat("x", handlers.MaxSecretBytes) + "\n", strings.Repeat("x", handlers.MaxSecretBytes)},
	} {
		s, err := handlers.ResolveSecret(write(c.name, c.content))
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, s.Reveal(), c.name)
	}
	for _, ref := range []string{
		"file:" + filepath.Join(dir, "absent"),
		"file:" + dir,
		"file:/dev/zero",
		write("empty", ""),
		write("only-newline", "\n"),
		write("large", strings.Repeat("x", handlers.MaxSecretBytes+1)),
	} {
		_, err := handlers.ResolveSecret(ref)
		require.ErrorIs(t, err, handlers.ErrSecretMissing, ref)
		require.NotContains(t, err.Error(), "xxxx")
	}
}

func TestCheckSecretRef(t *testing.T) {
	t.Parallel()
	for _, ref := range []string{"env:A", "env:_a1", "file:/run/secret"} {
		require.NoError(t, handlers.CheckSecretRef(ref), ref)
		require.True(t, handlers.IsSecretRef(ref))
	}
	for _, ref := range []string{"", "env:", "env:1A", "env:A-B", "env:A=B", "env:A\x00", "file:", "file:relative", "file:/a\x00b", canary, "ENV:A"} {
		err := handlers.CheckSecretRef(ref)
		require.Error(t, err, ref)
		require.NotContains(t, err.Error(), canary, "what is no reference may be a secret")
		_, err = handlers.ResolveSecret(ref)
		require.Error(t, err)
		require.NotErrorIs(t, err, handlers.ErrSecretMissing)
	}
}

func TestResolveValue(t *testing.T) {
	t.Parallel()
	v, isRef, err := handlers.ResolveValue("literal")
	require.NoError(t, err)
	require.False(t, isRef)
	require.Equal(t, "literal", v.Reveal())
	_, isRef, err = handlers.ResolveValue("file:" + filepath.Join(t.TempDir(), "absent"))
	require.True(t, isRef)
	require.ErrorIs(t, err, handlers.ErrSecretMissing)
}
