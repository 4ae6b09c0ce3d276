package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"fencepost/edge"
)

// Keeper is what operators do with the database as a whole.
type Keeper interface {
	Losses(ctx context.Context, limit int) ([]edge.Loss, error)
	AcceptLoss(ctx context.Context, d edge.Decided) (edge.Loss, error)
	Resume(ctx context.Context, d edge.Decided) (edge.Loss, error)
	Backup(ctx context.Context, path string) (edge.BackupReport, error)
}

// Loss is what database and side file disagreed about, in JSON.
type Loss struct {
	ID             int64         `json:"id"`
	Kind           edge.LossKind `json:"kind"`
	FoundAt        Stamp         `json:"found_at"`
	ExpectedCommit int64         `json:"expected_commit"` // by the side file; -1 = there was none
	FoundCommit    int64         `json:"found_commit"`    // in the database
	Detail         string        `json:"detail"`
	Lost           bool          `json:"lost"` // acknowledged work may be gone
	Hold           bool          `json:"hold"` // nothing is dispatched because of it
	AcceptedAt     Stamp         `json:"accepted_at,omitzero"`
	AcceptedBy     string        `json:"accepted_by,omitempty"`
	AcceptedReason string        `json:"accepted_reason,omitempty"`
	ResumedAt      Stamp         `json:"resumed_at,omitzero"`
	ResumedBy      string        `json:"resumed_by,omitempty"`
	ResumedReason  string        `json:"resumed_reason,omitempty"`
}

// LossOf is the JSON form of l.
func LossOf(l edge.Loss) Loss {
	return Loss{
		ID: l.ID, Kind: l.Kind, FoundAt: Stamp(l.FoundMS), ExpectedCommit: l.ExpectedNo, FoundCommit: l.FoundNo,
		Detail: l.Detail, Lost: l.Lost, Hold: l.Hold,
		AcceptedAt: Stamp(l.AcceptedMS), AcceptedBy: l.AcceptedBy, AcceptedReason: l.AcceptedReason,
		ResumedAt: Stamp(l.ResumedMS), ResumedBy: l.ResumedBy, ResumedReason: l.ResumedReason,
	}
}

// Recovery is what the last recovery of unfinished work found and did, in JSON.
type Recovery struct {
	Owners     int `json:"owners"`      // ended processes whose work was settled
	Left       int `json:"left"`        // ended processes that could not be settled yet
	Killed     int `json:"killed"`      // programs that they had left running
	InFlight   int `json:"in_flight"`   // executions that had started when their process ended
	NotStarted int `json:"not_started"` // executions that had only been claimed
	Retried    int `json:"retried"`     // deliveries that are tried again
	Waiting    int `json:"waiting"`     // deliveries that wait for evidence or a person
	Ended      int `json:"ended"`       // deliveries that became final
}

// RecoveryOf is the JSON form of r.
func RecoveryOf(r edge.Recovery) *Recovery {
	return &Recovery{
		Owners: r.Owners, Left: r.Left, Killed: r.Killed, InFlight: r.InFlight, NotStarted: r.NotStarted,
		Retried: r.Retried, Waiting: r.Waiting, Ended: r.Ended,
	}
}

// DecisionRequest is a person's decision on a loss or a hold.
type DecisionRequest struct {
	Reason string `json:"reason"` // required
	By     string `json:"by"`     // who; recorded with the account that asks, where that is another name
}

// BackupRequest asks for a backup into a new file on the host of the node.
type BackupRequest struct {
	Path string `json:"path"` // absolute
}

// Backup is a backup that was made.
type Backup struct {
	Path    string   `json:"path"`
	Bytes   int64    `json:"bytes"`
	Commit  int64    `json:"commit"` // last commit that is in it
	Node    string   `json:"node"`
	TookMS  int64    `json:"took_ms"`
	Checked []string `json:"checked"` // before it got its name
}

// maxLosses bounds a listing of losses.
const maxLosses = 1000

func (l *local) losses(r *http.Request) (any, error) {
	q := readQuery(r, "limit")
	limit := q.limit("limit")
	if q.err != nil {
		return nil, q.err
	}
	found, err := l.node.Losses(r.Context(), limit)
	if err != nil {
		return nil, err
	}
	return each(found, LossOf), nil
}

func (l *local) acceptLoss(r *http.Request) (any, error) { return l.decide(r, l.node.AcceptLoss) }

func (l *local) resumeDispatch(r *http.Request) (any, error) { return l.decide(r, l.node.Resume) }

func (l *local) decide(r *http.Request, decide func(context.Context, edge.Decided) (edge.Loss, error)) (any, error) {
	var req DecisionRequest
	if err := readRequest(r, &req); err != nil {
		return nil, err
	}
	if req.Reason == "" || len(req.Reason) > maxReasonBytes {
		return nil, invalid(FieldFault{Pointer: "/reason", Detail: fmt.Sprintf("must be 1 to %d bytes: it is kept with the decision", maxReasonBytes)})
	}
	loss, err := decide(r.Context(), edge.Decided{By: decidedBy(r, req.By), Reason: req.Reason})
	if err != nil {
		return nil, err
	}
	return LossOf(loss), nil
}

func (l *local) backup(r *http.Request) (any, error) {
	var req BackupRequest
	if err := readRequest(r, &req); err != nil {
		return nil, err
	}
	b, err := l.node.Backup(r.Context(), req.Path)
	if errors.Is(err, edge.ErrLowSpace) { // of the backup's disk, which is not the node's to wait for
		return nil, NewProblem(CodeLowSpace, err.Error())
	}
	if err != nil {
		return nil, err
	}
	return Backup{Path: b.Path, Bytes: b.Bytes, Commit: b.Commit, Node: b.Node, TookMS: b.TookMS, Checked: b.Checked}, nil
}

// Losses lists the latest losses, newest first.
func (c *Client) Losses(ctx context.Context, limit int) ([]Loss, error) {
	q := url.Values{}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(min(limit, maxLosses)))
	}
	return get[[]Loss](ctx, c, "/v1/losses", q)
}

// AcceptLoss says that work goes on with what is there.
func (c *Client) AcceptLoss(ctx context.Context, req DecisionRequest) (Loss, error) {
	return post[Loss](ctx, c, "/v1/losses/accept", req)
}

// Resume ends the hold of the dispatch.
func (c *Client) Resume(ctx context.Context, req DecisionRequest) (Loss, error) {
	return post[Loss](ctx, c, "/v1/resume", req)
}

// Backup makes a backup at an absolute path on the host of the node.
func (c *Client) Backup(ctx context.Context, path string) (Backup, error) {
	return post[Backup](ctx, c, "/v1/backup", BackupRequest{Path: path})
}
