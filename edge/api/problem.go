package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"fencepost/edge"
)

// Class is one row of the table that maps errors: the same class of error has
// one code, one HTTP status and one exit code at every door.
type Class struct {
	Code   string // stable identifier, member "code" of a problem
	Status int    // HTTP status; 0 for an error that no server sends
	Exit   int    // exit code of the command line
	Title  string // the class in words
	Is     error  // the sentinel that errors.Is finds; nil for those of HTTP alone
}

// Exit codes of the command line.
const (
	ExitOK       = 0
	ExitFailed   = 1
	ExitUsage    = 2 // usage or configuration
	ExitNotFound = 3
	ExitConflict = 4
	ExitNoNode   = 5
	ExitStorage  = 6
)

// ErrNoNode says that no node listens on the socket.
var ErrNoNode = errors.New("no node is running")

// Codes of problems.
const (
	CodeInvalid          = "invalid"
	CodeNotFound         = "not_found"
	CodeConflict         = "conflict"
	CodeLeaseLost        = "lease_lost"
	CodeBusy             = "busy"
	CodeClosed           = "closed"
	CodeUnavailable      = "storage_unavailable"
	CodeBacklogFull      = "backlog_full"
	CodeLowSpace         = "low_space"
	CodeStorageFault     = "storage_fault"
	CodeNoNode           = "no_node"
	CodeTimeout          = "timeout"
	CodeKeyReused        = "idempotency_key_reused"
	CodeUnauthorized     = "unauthorized"
	CodeScope            = "insufficient_scope"
	CodeCrossOrigin      = "cross_origin"
	CodeForbidden        = "forbidden"
	CodeMisdirected      = "misdirected"
	CodeNoRoute          = "no_route"
	CodeMethodNotAllowed = "method_not_allowed"
	CodeSlowRequest      = "slow_request"
	CodeTooLarge         = "too_large"
	CodeMediaType        = "unsupported_media_type"
	CodeNotReady         = "not_ready"
	CodeInternal         = "internal"
)

// Classes is the table of all errors. An error belongs to the first row whose
// sentinel it wraps; what belongs to none is internal.
var Classes = [...]Class{
	{CodeStorageFault, http.StatusServiceUnavailable, ExitStorage, "The storage has failed", edge.ErrStorage},
	{CodeBacklogFull, http.StatusInsufficientStorage, ExitStorage, "There is no room for more waiting work", edge.ErrBacklogFull},
	{CodeLowSpace, http.StatusInsufficientStorage, ExitStorage, "The storage has too little space", edge.ErrLowSpace},
	{CodeUnavailable, http.StatusServiceUnavailable, ExitStorage, "The storage is not available now", edge.ErrUnavailable},
	{CodeClosed, http.StatusServiceUnavailable, ExitNoNode, "The node is closing", edge.ErrClosed},
	{CodeTimeout, http.StatusServiceUnavailable, ExitFailed, "The node did not answer in time", context.DeadlineExceeded},
	{CodeNoNode, 0, ExitNoNode, "No node is running", ErrNoNode},
	{CodeInvalid, http.StatusBadRequest, ExitUsage, "The request is not valid", edge.ErrInvalid},
	{CodeNotFound, http.StatusNotFound, ExitNotFound, "There is no such thing", edge.ErrNotFound},
	{CodeLeaseLost, http.StatusConflict, ExitConflict, "The lease is lost", edge.ErrLeaseLost},
	{CodeBusy, http.StatusConflict, ExitConflict, "The target is busy", edge.ErrBusy},
	{CodeKeyReused, http.StatusUnprocessableEntity, ExitConflict, "The Idempotency-Key was used for other content", edge.ErrKeyReused},
	{CodeConflict, http.StatusConflict, ExitConflict, "The state or content forbids this", edge.ErrConflict},

	{CodeUnauthorized, http.StatusUnauthorized, ExitFailed, "A valid token is needed", nil},
	{CodeScope, http.StatusForbidden, ExitFailed, "The token is for something else", nil},
	{CodeCrossOrigin, http.StatusForbidden, ExitFailed, "Requests from other sites are refused", nil},
	{CodeForbidden, http.StatusForbidden, ExitFailed, "This user may not use the node", nil},
	{CodeMisdirected, http.StatusMisdirectedRequest, ExitFailed, "This node does not answer to that host name", nil},
	{CodeNoRoute, http.StatusNotFound, ExitFailed, "There is nothing at this address", nil},
	{CodeMethodNotAllowed, http.StatusMethodNotAllowed, ExitFailed, "The method is not allowed here", nil},
	{CodeSlowRequest, http.StatusRequestTimeout, ExitFailed, "The request took too long to arrive", nil},
	{CodeTooLarge, http.StatusRequestEntityTooLarge, ExitUsage, "The body is too large", nil},
	{CodeMediaType, http.StatusUnsupportedMediaType, ExitUsage, "The form of the body is not supported", nil},
	{CodeNotReady, http.StatusServiceUnavailable, ExitFailed, "The node is not ready", nil},
	{CodeInternal, http.StatusInternalServerError, ExitFailed, "The node met a fault of its own", nil},
}

// ClassOf returns the row that err belongs to. err must not be nil.
func ClassOf(err error) Class {
	var p *Problem
	if errors.As(err, &p) {
		return classByCode(p.Code)
	}
	for _, c := range Classes {
		if c.Is != nil && errors.Is(err, c.Is) {
			return c
		}
	}
	return classByCode(CodeInternal)
}

func classByCode(code string) Class {
	for _, c := range Classes {
		if c.Code == code {
			return c
		}
	}
	return Classes[len(Classes)-1]
}

// Problem is a problem document (RFC 9457). As an error it wraps the sentinel
// of its class, so errors.Is works on both sides of the wire.
type Problem struct {
	Type   string       `json:"type"`
	Title  string       `json:"title"`
	Status int          `json:"status"`
	Detail string       `json:"detail,omitempty"`
	Code   string       `json:"code"`
	Errors []FieldFault `json:"errors,omitempty"`
	// RetryAfter is how long to wait before the same request, as the answer
	// said; 0 when it did not. The client fills it in.
	RetryAfter time.Duration `json:"-"`
}

// FieldFault is one fault of a request. One of Pointer, Header and Parameter
// says where it is.
type FieldFault struct {
	Pointer   string `json:"pointer,omitempty"`   // JSON Pointer (RFC 6901) into the body
	Header    string `json:"header,omitempty"`    // request header
	Parameter string `json:"parameter,omitempty"` // query parameter
	Detail    string `json:"detail"`              // what is wrong, and the limit
}

func (f FieldFault) String() string {
	switch {
	case f.Header != "":
		return "header " + f.Header + ": " + f.Detail
	case f.Parameter != "":
		return "parameter " + f.Parameter + ": " + f.Detail
	case f.Pointer != "":
		return f.Pointer + ": " + f.Detail
	}
	return f.Detail
}

// typePrefix makes a code a URI: what the member "type" of a problem needs.
const typePrefix = "urn:fencepost:problem:"

// NewProblem makes a problem of the class that code names.
func NewProblem(code, detail string, faults ...FieldFault) *Problem {
	c := classByCode(code)
	return &Problem{
		Type: typePrefix + c.Code, Title: c.Title, Status: c.Status,
		Detail: detail, Code: c.Code, Errors: faults,
	}
}

func (p *Problem) Error() string {
	if p.Detail == "" && len(p.Errors) > 0 {
		return p.Errors[0].String()
	}
	if p.Detail == "" {
		return p.Title
	}
	return p.Detail
}

// Unwrap returns the sentinel of the problem's class, or nil.
func (p *Problem) Unwrap() error { return classByCode(p.Code).Is }

// problemOf turns any error into the problem that is sent. The text of faults
// that are not the caller's stays inside the node.
func problemOf(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	c := ClassOf(err)
	switch {
	case c.Code == CodeTimeout:
		return NewProblem(c.Code, "it is not known whether the request was carried out: send it again with the same id")
	case c.Status >= http.StatusInternalServerError:
		return NewProblem(c.Code, adviceOf(c.Code))
	}
	return NewProblem(c.Code, err.Error())
}

// adviceOf says what a caller can do about a fault of the node.
func adviceOf(code string) string {
	switch code {
	case CodeUnavailable:
		return "nothing was stored; send the same request again later"
	case CodeBacklogFull:
		return "nothing was stored: the work that waits has reached storage.max_backlog_bytes; send the same request again later. On the node, 'fencepost status' and 'fencepost target list --open' say what holds it up"
	case CodeLowSpace:
		return "nothing was stored: the node's disk is nearly full; send the same request again later. On the node, make space: work goes on by itself within seconds"
	case CodeStorageFault:
		return "nothing was stored; the node must be restarted, its log says why"
	case CodeClosed:
		return "nothing was stored; send the same request again when the node is back"
	}
	return "the log of the node says more"
}

// writeProblem answers with a problem. When the body of the request has not been
// read because of it, the rest is not read either: the connection ends.
func writeProblem(w http.ResponseWriter, r *http.Request, p *Problem) {
	if r.ContentLength != 0 && leavesBody(p.Code) {
		w.Header().Set("Connection", "close")
		// The server would read on for a while to save the connection.
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
	}
	setRetryAfter(w, p)
	writeJSON(w, p.Status, "application/problem+json", p)
}

// setRetryAfter says when a request that was not taken may be sent again (RFC 9110
// 10.2.3). Space takes longer to come back than a busy file.
func setRetryAfter(w http.ResponseWriter, p *Problem) {
	switch p.Status {
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case http.StatusInsufficientStorage:
		w.Header().Set("Retry-After", "10")
	}
}

// leavesBody reports whether a problem is found before the body is read whole.
func leavesBody(code string) bool {
	switch code {
	case CodeUnauthorized, CodeScope, CodeCrossOrigin, CodeMisdirected, CodeNoRoute, CodeMethodNotAllowed,
		CodeSlowRequest, CodeTooLarge, CodeMediaType:
		return true
	}
	return false
}

// writeJSON answers with v as JSON. It does not escape HTML characters: the
// body is never a page.
func writeJSON(w http.ResponseWriter, status int, contentType string, v any) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // a caller that is gone cannot be told
}
