// Package log is the handler that writes each event as one line of a log. It
// always succeeds: for trying things out, and as a record beside other handlers.
package log

import (
	"context"
	"errors"
	"log/slog"

	"fencepost/edge"
	"fencepost/handlers"
)

// DefaultMaxBody is how many bytes of an event's data are written unless
// configured.
const DefaultMaxBody = 4 << 10

const maxField = 600 // longer than any attribute may be

// Config configures a [Handler].
type Config struct {
	Logger  *slog.Logger // required
	Level   slog.Level   // default info
	MaxBody int          // bytes of data that are written; 0 = DefaultMaxBody, negative = none
}

// Handler writes events to a log. It may be used from many goroutines.
type Handler struct {
	logger  *slog.Logger
	level   slog.Level
	maxBody int
}

// New returns a handler, or the fault of the configuration.
func New(c Config) (*Handler, error) {
	if c.Logger == nil {
		return nil, errors.New("log handler: Logger must be set")
	}
	if c.MaxBody == 0 {
		c.MaxBody = DefaultMaxBody
	}
	return &Handler{logger: c.Logger, level: c.Level, maxBody: c.MaxBody}, nil
}

// Handle writes the event and succeeds. Control characters are escaped here, so
// that one event is one line whatever the logger's own handler does.
func (h *Handler) Handle(ctx context.Context, c *edge.Claim) edge.Result {
	e := c.Event
	attrs := []slog.Attr{
		slog.String("delivery", c.DeliveryID),
		slog.String("event", c.EventID),
		slog.String("target", handlers.Line(c.Target.String(), 2*maxField)),
		slog.Int("attempt", c.Attempt),
		slog.Int64("fence", int64(c.Fence)),
		slog.String("trace", c.Trace().ID()),
		slog.String("source", handlers.Line(e.Source, maxField)),
		slog.String("id", handlers.Line(e.ID, maxField)),
		slog.String("type", handlers.Line(e.Type, maxField)),
	}
	if e.Subject != "" {
		attrs = append(attrs, slog.String("subject", handlers.Line(e.Subject, maxField)))
	}
	attrs = append(attrs, slog.Int("bytes", len(e.Data)))
	if h.maxBody > 0 && len(e.Data) > 0 {
		head := e.Data[:min(len(e.Data), h.maxBody+1)] // one more shows that there is more
		attrs = append(attrs, slog.String("data", handlers.Line(string(head), h.maxBody)))
	}
	h.logger.LogAttrs(ctx, h.level, "event received", attrs...)
	return edge.Done()
}
