package api

import (
	"fmt"
	"net/http"

	"fencepost/edge"
)

// RedriveRequest asks for a new generation of a final delivery.
type RedriveRequest struct {
	Again  bool `json:"again"`   // also when it succeeded: the effect happens again
	NewKey bool `json:"new_key"` // a new idempotency key
}

// ResolveRequest is a person's decision on a blocked delivery.
type ResolveRequest struct {
	As      edge.ResolveAs `json:"as"`      // succeeded, failed or retry
	Version int64          `json:"version"` // of the delivery as the person saw it
	Reason  string         `json:"reason"`
	By      string         `json:"by"` // who; recorded with the account that asks, where that is another name
}

// TargetRequest asks to let the line of a target go on. To skip, Version is that
// of the delivery that stalls the target, and a reason is needed.
type TargetRequest struct {
	Target  string `json:"target"`
	Version int64  `json:"version,omitempty"`
	Reason  string `json:"reason,omitempty"`
	By      string `json:"by,omitempty"`
}

// PauseRequest closes a handler's gate: for a time, or with 0 until someone
// opens it.
type PauseRequest struct {
	Seconds int64 `json:"seconds"`
}

// CheckRequest asks for a check of the invariants; full also compares each
// stored body with its SHA-256.
type CheckRequest struct {
	Full bool `json:"full"`
}

// CheckReport lists the broken invariants; none is good.
type CheckReport struct {
	Violations []Violation `json:"violations"`
}

// maxPauseSeconds is 366 days.
const maxPauseSeconds = 366 * 24 * 60 * 60

func (l *local) cancel(r *http.Request) (any, error) {
	id, err := l.pathID(r)
	if err != nil {
		return nil, err
	}
	if err := readRequest(r, &struct{}{}); err != nil {
		return nil, err
	}
	return l.moved(l.node.Cancel(r.Context(), id))
}

func (l *local) redrive(r *http.Request) (any, error) {
	id, err := l.pathID(r)
	if err != nil {
		return nil, err
	}
	var req RedriveRequest
	if err := readRequest(r, &req); err != nil {
		return nil, err
	}
	return l.moved(l.node.Redrive(r.Context(), edge.Redrive{Delivery: id, Again: req.Again, NewKey: req.NewKey}))
}

func (l *local) resolve(r *http.Request) (any, error) {
	id, err := l.pathID(r)
	if err != nil {
		return nil, err
	}
	var req ResolveRequest
	if err := readRequest(r, &req); err != nil {
		return nil, err
	}
	switch req.As {
	case edge.ResolveSucceeded, edge.ResolveFailed, edge.ResolveRetry:
	default:
		return nil, invalid(FieldFault{Pointer: "/as", Detail: "must be succeeded, failed or retry"})
	}
	if fault := decisionFault(req.Version, req.Reason); fault != nil {
		return nil, invalid(*fault)
	}
	return l.moved(l.node.Resolve(r.Context(), edge.Resolution{
		Delivery: id, Version: req.Version, As: req.As, Reason: req.Reason, By: decidedBy(r, req.By),
	}))
}

// maxReasonBytes bounds what is kept with a decision.
const maxReasonBytes = 4 << 10

// decisionFault says what a decision lacks.
func decisionFault(version int64, reason string) *FieldFault {
	switch {
	case version < 1:
		return &FieldFault{Pointer: "/version", Detail: "must be the version of the delivery that was looked at"}
	case reason == "":
		return &FieldFault{Pointer: "/reason", Detail: "must not be empty: it is kept with the decision"}
	case len(reason) > maxReasonBytes:
		return &FieldFault{Pointer: "/reason", Detail: fmt.Sprintf("has %d bytes, the limit is %d", len(reason), maxReasonBytes)}
	}
	return nil
}

func (l *local) moved(d edge.Delivery, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return l.form().delivery(d), nil
}

func (l *local) resumeTarget(r *http.Request) (any, error) {
	t, _, err := l.targetRequest(r)
	if err != nil {
		return nil, err
	}
	info, err := l.node.ResumeTarget(r.Context(), t)
	if err != nil {
		return nil, err
	}
	return l.form().target(info), nil
}

func (l *local) skipTarget(r *http.Request) (any, error) {
	t, req, err := l.targetRequest(r)
	if err != nil {
		return nil, err
	}
	if fault := decisionFault(req.Version, req.Reason); fault != nil {
		return nil, invalid(*fault)
	}
	info, err := l.node.SkipTarget(r.Context(), t, req.Version, req.Reason, decidedBy(r, req.By))
	if err != nil {
		return nil, err
	}
	return l.form().target(info), nil
}

func (l *local) targetRequest(r *http.Request) (edge.Target, TargetRequest, error) {
	var req TargetRequest
	if err := readRequest(r, &req); err != nil {
		return edge.Target{}, req, err
	}
	t, err := edge.ParseTarget(req.Target)
	if err != nil {
		err = invalid(FieldFault{Pointer: "/target", Detail: fmt.Sprintf("%q is no target: write it as handler:key", clip(req.Target))})
	}
	return t, req, err
}

func (l *local) pause(r *http.Request) (any, error) {
	var req PauseRequest
	if err := readRequest(r, &req); err != nil {
		return nil, err
	}
	if req.Seconds < 0 || req.Seconds > maxPauseSeconds {
		return nil, invalid(FieldFault{Pointer: "/seconds", Detail: fmt.Sprintf("must be 0 (until resumed) to %d", maxPauseSeconds)})
	}
	gate, resume := edge.GateOff, int64(0)
	if req.Seconds > 0 {
		gate, resume = edge.GatePaused, l.node.Clock().NowMS()+req.Seconds*1000
	}
	return l.gated(l.node.SetGate(r.Context(), r.PathValue("name"), gate, edge.CodePausedByOperator, resume))
}

func (l *local) resume(r *http.Request) (any, error) {
	if err := readRequest(r, &struct{}{}); err != nil {
		return nil, err
	}
	return l.gated(l.node.SetGate(r.Context(), r.PathValue("name"), edge.GateOn, "", 0))
}

func (l *local) gated(h edge.HandlerInfo, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return l.form().handler(h), nil
}

func (l *local) check(r *http.Request) (any, error) {
	var req CheckRequest
	if err := readRequest(r, &req); err != nil {
		return nil, err
	}
	found, err := l.node.Check(r.Context(), req.Full)
	if err != nil {
		return nil, err
	}
	return CheckReport{Violations: each(found, func(v edge.Violation) Violation { return Violation(v) })}, nil
}

func (l *local) confirmClock(r *http.Request) (any, error) {
	if err := readRequest(r, &struct{}{}); err != nil {
		return nil, err
	}
	if err := l.node.ConfirmClock(r.Context()); err != nil {
		return nil, err
	}
	return l.node.Status(), nil
}
