package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"fencepost/edge"
)

// maxAnswerBytes is the limit of an answer that the client reads.
const maxAnswerBytes = 64 << 20

// Client calls a node on its unix socket. Its errors wrap the same sentinels as
// those of the node, or [ErrNoNode] when nobody listens. It may be used from many
// goroutines.
type Client struct {
	socket string
	http   *http.Client
}

// Dial makes sure that a node listens on the socket and returns a client of it.
func Dial(ctx context.Context, socket string) (*Client, error) {
	c := &Client{socket: socket}
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	_ = conn.Close()
	transport := &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) },
		DisableCompression:  true,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     30 * time.Second,
	}
	c.http = &http.Client{Transport: transport}
	return c, nil
}

// Close closes the connections that are idle.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.socket)
	switch {
	case err == nil:
		return conn, nil
	case nobodyListens(err):
		return nil, fmt.Errorf("%w at %s: start one with fencepost serve, or name the configuration of the one that runs with --config", ErrNoNode, fullPath(c.socket))
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("socket %s: permission denied: run this as the user of the node, or as a member of its http.socket_group", fullPath(c.socket))
	}
	return nil, fmt.Errorf("socket %s: %w", fullPath(c.socket), err)
}

// fullPath is a path for people: it says where the file is from any directory.
func fullPath(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}

// Send hands in one event. An empty ID gets a random one.
func (c *Client) Send(ctx context.Context, ev edge.Event) (Receipt, error) {
	if ev.ID == "" {
		ev.ID = edge.NewName()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url("/v1/events"), bytes.NewReader(ev.Data))
	if err != nil {
		return Receipt{}, err
	}
	setHeaders(req.Header, &ev)
	var rc Receipt
	err = c.do(req, &rc)
	return rc, err
}

// setHeaders writes the attributes of ev in the binary mode of CloudEvents.
func setHeaders(h http.Header, ev *edge.Event) {
	set := func(name, value string) {
		if value != "" {
			h.Set("ce-"+name, encodeHeader(value))
		}
	}
	set("specversion", "1.0")
	h.Set("ce-id", encodeHeader(ev.ID))
	h.Set("ce-source", encodeHeader(ev.Source))
	h.Set("ce-type", encodeHeader(ev.Type))
	set("subject", ev.Subject)
	set("time", ev.Time)
	for name, value := range ev.Extensions {
		h.Set("ce-"+name, encodeHeader(value))
	}
	if ev.ContentType != "" {
		h.Set("Content-Type", ev.ContentType)
	}
	setTrace(h, ev.Trace)
}

// setTrace continues a trace in the request itself.
func setTrace(h http.Header, t edge.Trace) {
	if t.Parent == "" {
		return
	}
	h.Set("Traceparent", t.Parent)
	if t.State != "" {
		h.Set("Tracestate", t.State)
	}
}

// Status asks what the node is and does.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return get[Status](ctx, c, "/v1/status", nil)
}

// Ready returns nil when the node takes and dispatches events.
func (c *Client) Ready(ctx context.Context) error {
	_, err := get[map[string]string](ctx, c, "/readyz", nil)
	return err
}

// Delivery returns one delivery with its event and executions.
func (c *Client) Delivery(ctx context.Context, id string) (DeliveryDetail, error) {
	return get[DeliveryDetail](ctx, c, deliveryPath(id, ""), nil)
}

// Explain says why a delivery is where it is.
func (c *Client) Explain(ctx context.Context, id string) (Explanation, error) {
	return get[Explanation](ctx, c, deliveryPath(id, "/explain"), nil)
}

// Cancel calls a delivery off.
func (c *Client) Cancel(ctx context.Context, id string) (Delivery, error) {
	return post[Delivery](ctx, c, deliveryPath(id, "/cancel"), struct{}{})
}

// Redrive makes a new generation of a final delivery.
func (c *Client) Redrive(ctx context.Context, id string, req RedriveRequest) (Delivery, error) {
	return post[Delivery](ctx, c, deliveryPath(id, "/redrive"), req)
}

// Resolve decides a blocked delivery.
func (c *Client) Resolve(ctx context.Context, id string, req ResolveRequest) (Delivery, error) {
	return post[Delivery](ctx, c, deliveryPath(id, "/resolve"), req)
}

// ResumeTarget ends a halt.
func (c *Client) ResumeTarget(ctx context.Context, target string) (Target, error) {
	return post[Target](ctx, c, "/v1/targets/resume", TargetRequest{Target: target})
}

// SkipTarget lets the line of a target go past its stall.
func (c *Client) SkipTarget(ctx context.Context, req TargetRequest) (Target, error) {
	return post[Target](ctx, c, "/v1/targets/skip", req)
}

// Handlers lists the handlers by name.
func (c *Client) Handlers(ctx context.Context) ([]Handler, error) {
	return get[[]Handler](ctx, c, "/v1/handlers", nil)
}

// PauseHandler closes the gate of a handler for a time, or with 0 until it is
// resumed.
func (c *Client) PauseHandler(ctx context.Context, name string, d time.Duration) (Handler, error) {
	seconds := int64((d + time.Second - 1) / time.Second)
	return post[Handler](ctx, c, "/v1/handlers/"+url.PathEscape(name)+"/pause", PauseRequest{Seconds: seconds})
}

// ResumeHandler opens the gate of a handler.
func (c *Client) ResumeHandler(ctx context.Context, name string) (Handler, error) {
	return post[Handler](ctx, c, "/v1/handlers/"+url.PathEscape(name)+"/resume", struct{}{})
}

// Counters returns the counters of the store.
func (c *Client) Counters(ctx context.Context) (map[string]int64, error) {
	return get[map[string]int64](ctx, c, "/v1/counters", nil)
}

// Check lists the broken invariants.
func (c *Client) Check(ctx context.Context, full bool) ([]Violation, error) {
	report, err := post[CheckReport](ctx, c, "/v1/check", CheckRequest{Full: full})
	return report.Violations, err
}

// ConfirmClock says that the clock of the host is right.
func (c *Client) ConfirmClock(ctx context.Context) (Status, error) {
	return post[Status](ctx, c, "/v1/clock/confirm", struct{}{})
}

func setLimit(q url.Values, limit int) {
	if limit != 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
}

func deliveryPath(id, rest string) string { return "/v1/deliveries/" + url.PathEscape(id) + rest }

// url is the address of a path; its host stands for the socket.
func (c *Client) url(path string) string { return "http://localhost" + path }

func get[T any](ctx context.Context, c *Client, path string, q url.Values) (T, error) {
	var out T
	address := c.url(path)
	if len(q) > 0 {
		address += "?" + q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return out, err
	}
	err = c.do(req, &out)
	return out, err
}

func post[T any](ctx context.Context, c *Client, path string, in any) (T, error) {
	var out T
	body, err := json.Marshal(in)
	if err != nil {
		return out, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url(path), bytes.NewReader(body))
	if err != nil {
		return out, err
	}
	req.Header.Set("Content-Type", "application/json")
	err = c.do(req, &out)
	return out, err
}

// open sends req and returns the answer with its body unread, or the problem as
// an error.
func (c *Client) open(req *http.Request) (*http.Response, error) {
	req.GetBody = nil // a request is never sent a second time behind our back
	resp, err := c.http.Do(req)
	if err != nil {
		if cause := context.Cause(req.Context()); cause != nil {
			return nil, cause
		}
		var op *url.Error
		if errors.As(err, &op) {
			err = op.Err
		}
		return nil, err
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return nil, fmt.Errorf("read the answer of the node: %w", err)
	}
	p := problemIn(resp.StatusCode, body)
	p.RetryAfter = retryAfter(resp.Header)
	return nil, p
}

// do sends req and reads the answer into out, or the problem as an error.
func (c *Client) do(req *http.Request, out any) error {
	resp, err := c.open(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return fmt.Errorf("read the answer of the node: %w", err)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("the answer of the node is not understood; are both of one version? %w", err)
	}
	return nil
}

// problemIn reads a problem document; what is none becomes one.
func problemIn(status int, body []byte) *Problem {
	var p Problem
	if err := json.Unmarshal(body, &p); err != nil || p.Code == "" {
		p = *NewProblem(CodeInternal, "the node answered with status "+strconv.Itoa(status))
	}
	return &p
}
