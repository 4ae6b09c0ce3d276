package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"fencepost/edge"
)

// Node is what the socket of the command line needs of a node: the door, and
// what operators do and ask.
type Node interface {
	Door
	Keeper
	Clock() *edge.Clock
	Status() Status
	// ConfirmClock says that an operator vouches for the wall clock.
	ConfirmClock(ctx context.Context) error
	// Reload puts the node's file in force, whole or not at all.
	Reload(ctx context.Context) (Reloaded, error)

	Cancel(ctx context.Context, id edge.DeliveryID) (edge.Delivery, error)
	Resolve(ctx context.Context, r edge.Resolution) (edge.Delivery, error)
	Redrive(ctx context.Context, r edge.Redrive) (edge.Delivery, error)
	RetryNow(ctx context.Context, id edge.DeliveryID) (edge.Delivery, error)
	Bulk(ctx context.Context, b edge.Bulk) ([]edge.BulkResult, error)
	ResumeTarget(ctx context.Context, t edge.Target) (edge.TargetInfo, error)
	SkipTarget(ctx context.Context, t edge.Target, version int64, reason, by string) (edge.TargetInfo, error)
	SetGate(ctx context.Context, handler string, g edge.Gate, code string, resumeMS int64) (edge.HandlerInfo, error)

	Delivery(ctx context.Context, id edge.DeliveryID) (edge.Delivery, error)
	ListDeliveries(ctx context.Context, f edge.DeliveryFilter) (edge.DeliveryPage, error)
	ListEvents(ctx context.Context, f edge.EventFilter) (edge.EventPage, error)
	Event(ctx context.Context, id edge.EventID) (edge.Event, error)
	Executions(ctx context.Context, id edge.DeliveryID) ([]edge.Execution, error)
	Facts(ctx context.Context, id edge.DeliveryID) (edge.Facts, error)
	ListTargets(ctx context.Context, f edge.TargetFilter) (edge.TargetPage, error)
	Backlog(ctx context.Context, n int) (edge.Backlog, error)
	Subscribe(fromSeq uint64) *edge.Subscription
	Handlers(ctx context.Context) ([]edge.HandlerInfo, error)
	Counters(ctx context.Context) (map[string]int64, error)
	Check(ctx context.Context, full bool) ([]edge.Violation, error)
}

// LocalOptions belong to the socket of the command line.
type LocalOptions struct {
	MaxBody int                  // as in Options
	Logger  *slog.Logger         // as in Options
	Metrics http.Handler         // as in Options
	Keep    func() time.Duration // as in Options
}

// local answers the calls of the command line.
type local struct {
	node   Node
	faults *faults
}

// NewLocalHandler returns the handler of the socket of the command line. Who may
// use the socket may do everything (see [ListenUnix]); there is no token.
// Decisions are recorded with the account that the kernel names.
//
//	POST /v1/events                         as on the network
//	GET  /healthz, /readyz, /metrics        as on the network
//	GET  /v1/status                         [Status]
//	GET  /v1/backlog                        [Backlog]; worst
//	GET  /v1/changes                        lines of [Change] as they are committed; handler, target, state, code, event, delivery
//	GET  /v1/events                         [EventPage]; type, source, subject, id, since, until, limit, before
//	GET  /v1/events/{id}                    [EventDetail]
//	GET  /v1/deliveries                     [DeliveryPage]; state, handler, target, code, event, type, source, subject, since, until, newest, limit, before
//	POST /v1/bulk                           [BulkRequest] to [BulkAnswer]
//	GET  /v1/deliveries/{id}                [DeliveryDetail]
//	GET  /v1/deliveries/{id}/explain        [Explanation]
//	POST /v1/deliveries/{id}/cancel         [Delivery]
//	POST /v1/deliveries/{id}/retry-now      [Delivery]
//	POST /v1/deliveries/{id}/redrive        [RedriveRequest] to [Delivery]
//	POST /v1/deliveries/{id}/resolve        [ResolveRequest] to [Delivery]
//	GET  /v1/targets                        [TargetPage]; handler, stalled, stall, open, limit, after
//	POST /v1/targets/resume                 [TargetRequest] to [Target]
//	POST /v1/targets/skip                   [TargetRequest] to [Target]
//	GET  /v1/handlers                       array of [Handler]
//	POST /v1/handlers/{name}/pause          [PauseRequest] to [Handler]
//	POST /v1/handlers/{name}/resume         [Handler]
//	GET  /v1/counters                       object of numbers
//	POST /v1/check                          [CheckRequest] to [CheckReport]
//	POST /v1/clock/confirm                  [Status]
//	GET  /v1/losses                         array of [Loss]; limit
//	POST /v1/losses/accept                  [DecisionRequest] to [Loss]
//	POST /v1/resume                         [DecisionRequest] to [Loss]
//	POST /v1/backup                         [BackupRequest] to [Backup]
//	POST /v1/reload                         [Reloaded]
func NewLocalHandler(node Node, o LocalOptions) http.Handler {
	f := &faults{logger: orDiscard(o.Logger)}
	l := &local{node: node, faults: f}
	in := &intake{names: node.Names, take: node, maxBody: o.MaxBody, keep: o.Keep, fail: f.answer}
	h := newHealth(node, 0)
	t := &router{scope: ScopeOperator}
	t.handle(http.MethodPost, "/v1/events", in.post)
	t.handle(http.MethodGet, "/healthz", h.healthz)
	t.handle(http.MethodGet, "/readyz", h.readyz)
	if o.Metrics != nil {
		t.handle(http.MethodGet, "/metrics", o.Metrics.ServeHTTP)
	}
	t.handle(http.MethodGet, "/v1/changes", l.changes)
	for _, rt := range [...]struct {
		method, path string
		call         func(*http.Request) (any, error)
	}{
		{http.MethodGet, "/v1/status", l.status},
		{http.MethodGet, "/v1/backlog", l.backlog},
		{http.MethodGet, "/v1/events", l.events},
		{http.MethodGet, "/v1/events/{id}", l.event},
		{http.MethodGet, "/v1/deliveries", l.deliveries},
		{http.MethodPost, "/v1/bulk", l.bulk},
		{http.MethodGet, "/v1/deliveries/{id}", l.delivery},
		{http.MethodGet, "/v1/deliveries/{id}/explain", l.explain},
		{http.MethodPost, "/v1/deliveries/{id}/cancel", l.cancel},
		{http.MethodPost, "/v1/deliveries/{id}/retry-now", l.retryNow},
		{http.MethodPost, "/v1/deliveries/{id}/redrive", l.redrive},
		{http.MethodPost, "/v1/deliveries/{id}/resolve", l.resolve},
		{http.MethodGet, "/v1/targets", l.targets},
		{http.MethodPost, "/v1/targets/resume", l.resumeTarget},
		{http.MethodPost, "/v1/targets/skip", l.skipTarget},
		{http.MethodGet, "/v1/handlers", l.handlers},
		{http.MethodPost, "/v1/handlers/{name}/pause", l.pause},
		{http.MethodPost, "/v1/handlers/{name}/resume", l.resume},
		{http.MethodGet, "/v1/counters", l.counters},
		{http.MethodPost, "/v1/check", l.check},
		{http.MethodPost, "/v1/clock/confirm", l.confirmClock},
		{http.MethodGet, "/v1/losses", l.losses},
		{http.MethodPost, "/v1/losses/accept", l.acceptLoss},
		{http.MethodPost, "/v1/resume", l.resumeDispatch},
		{http.MethodPost, "/v1/backup", l.backup},
		{http.MethodPost, "/v1/reload", l.reload},
	} {
		t.handle(rt.method, rt.path, l.answer(rt.call))
	}
	return f.recover(&doorkeeper{logger: f.logger, next: t, told: map[int]bool{}})
}

// answer turns a call into a handler: its value as JSON, or the problem.
func (l *local) answer(call func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := call(r)
		if err != nil {
			l.faults.answer(w, r, err)
			return
		}
		writeJSON(w, http.StatusOK, "application/json", v)
	}
}

func (l *local) form() form { return form{l.node.Names()} }

func (l *local) pathID(r *http.Request) (edge.DeliveryID, error) {
	n, err := l.node.Names().Parse(edge.KindDelivery, r.PathValue("id"))
	return edge.DeliveryID(n), err
}

// maxRequestBytes is the limit of an operator's request.
const maxRequestBytes = 64 << 10

// readRequest reads the JSON object of a request into v; an empty body leaves v
// as it is.
func readRequest(r *http.Request, v any) error {
	body, err := readBody(r, maxRequestBytes)
	if err != nil {
		return err
	}
	received(r.Context())
	if len(body) == 0 {
		return nil
	}
	if at, ok := validJSON(body); !ok {
		return invalid(FieldFault{Detail: fmt.Sprintf("the body is not valid JSON at byte %d", at)})
	}
	if _, fault := objectMembers(body, ""); fault != nil {
		return invalid(*fault)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	err = dec.Decode(v)
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong):
		return invalid(FieldFault{Pointer: "/" + pointerEscape(wrong.Field), Detail: "must be a " + wrong.Type.String()})
	}
	return invalid(FieldFault{Detail: clip(err.Error())})
}
