package service

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
)

// NewJournalHandler returns a handler whose lines are for the journal: the
// priority of sd-daemon(3) in front, no time, which the journal adds, and no
// level, which the priority is. All else is as with slog.TextHandler.
func NewJournalHandler(w io.Writer, o *slog.HandlerOptions) slog.Handler {
	var plain slog.HandlerOptions
	if o != nil {
		plain = *o
	}
	given := plain.ReplaceAttr
	plain.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
			return slog.Attr{}
		}
		if given != nil {
			return given(groups, a)
		}
		return a
	}
	line := &journalLine{w: w}
	return &journalHandler{line: line, text: slog.NewTextHandler(&line.b, &plain)}
}

// journalLine is one line at a time: its priority, then what a text handler adds.
type journalLine struct {
	mu sync.Mutex
	b  bytes.Buffer
	w  io.Writer
}

type journalHandler struct {
	line *journalLine
	text slog.Handler
}

// Enabled reports whether a level is logged.
func (h *journalHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.text.Enabled(ctx, l)
}

// Handle writes one line.
func (h *journalHandler) Handle(ctx context.Context, r slog.Record) error {
	l := h.line
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
	fmt.Fprintf(&l.b, "<%d>", priority(r.Level))
	if err := h.text.Handle(ctx, r); err != nil {
		return err
	}
	_, err := l.w.Write(l.b.Bytes())
	return err
}

// WithAttrs returns a handler that adds attributes.
func (h *journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &journalHandler{line: h.line, text: h.text.WithAttrs(attrs)}
}

// WithGroup returns a handler that puts what follows into a group.
func (h *journalHandler) WithGroup(name string) slog.Handler {
	return &journalHandler{line: h.line, text: h.text.WithGroup(name)}
}

// priority is the syslog priority of a level (RFC 5424 section 6.2.1).
func priority(l slog.Level) int {
	switch {
	case l >= slog.LevelError:
		return 3
	case l >= slog.LevelWarn:
		return 4
	case l >= slog.LevelInfo:
		return 6
	}
	return 7
}
