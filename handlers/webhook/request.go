package webhook

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"

	"fencepost/edge"
	"fencepost/handlers"
)

// Headers of each request beside those of CloudEvents and Standard Webhooks.
const (
	HeaderDelivery = "Fencepost-Delivery" // public id of the delivery
	HeaderAttempt  = "Fencepost-Attempt"  // number of the attempt, from 1
	HeaderFence    = "Fencepost-Fence"    // grows with each execution
	HeaderTarget   = "Fencepost-Target"   // handler:key, encoded as a CloudEvents attribute
)

// DefaultContentType is sent for an event that names none.
const DefaultContentType = "application/octet-stream"

// request builds the one request of an attempt. A fault is the result for an
// attempt that cannot begin. The secrets are those that the reply might echo.
func (h *Handler) request(c *edge.Claim) (*http.Request, []handlers.Secret, *edge.Result) {
	content, err := h.content(c.Event)
	if err != nil {
		return nil, nil, templateFault(err)
	}
	req := &http.Request{
		Method:        http.MethodPost,
		URL:           h.url,
		Host:          h.url.Host,
		Header:        make(http.Header),
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		ContentLength: int64(len(content.Body)),
		Body:          http.NoBody,
	}
	if len(content.Body) > 0 {
		// GetBody stays nil: the transport must not be able to send it twice.
		req.Body = io.NopCloser(bytes.NewReader(content.Body))
	}
	req.Header.Set("User-Agent", "fencepost")
	secrets, err := staticHeaders(req.Header, h.config.Headers)
	if err != nil {
		return nil, nil, secretFault(err)
	}
	for name, value := range content.Headers {
		req.Header.Set(name, value)
	}
	eventHeaders(req.Header, c)
	req.Header.Set("Content-Type", content.ContentType)
	if err := h.sign(req.Header, c, content.Body); err != nil {
		return nil, nil, secretFault(err)
	}
	return req, secrets, nil
}

// content is what the event puts into the request, judged once more: what was
// checked when the configuration was read is checked on the texts that came of it.
func (h *Handler) content(e *edge.Event) (Content, error) {
	var c Content
	if h.config.Fill != nil {
		var err error
		if c, err = h.config.Fill(e); err != nil {
			return c, err
		}
	}
	if err := checkFilled(c.Headers); err != nil {
		return c, err
	}
	if c.ContentType != "" {
		return c, checkHeaderValue(c.ContentType)
	}
	c.Body, c.ContentType = e.Data, DefaultContentType
	if e.ContentType != "" {
		c.ContentType = e.ContentType
	}
	return c, nil
}

// CheckEvent says what of the event cannot be put into its request: what would block
// its delivery with template_error. nil when all can. It sends nothing.
func (h *Handler) CheckEvent(e *edge.Event) error {
	_, err := h.content(e)
	return err
}

func eventHeaders(to http.Header, c *edge.Claim) {
	e := c.Event
	to.Set("Accept-Encoding", "identity")
	to.Set("Ce-Specversion", "1.0")
	for name, value := range e.Extensions {
		to.Set("Ce-"+name, encodeAttribute(value))
	}
	for _, a := range [...]struct{ name, value string }{
		{"Ce-Id", e.ID}, {"Ce-Source", e.Source}, {"Ce-Type", e.Type}, {"Ce-Subject", e.Subject}, {"Ce-Time", e.Time},
	} {
		if a.value != "" {
			to.Set(a.name, encodeAttribute(a.value))
		}
	}
	trace := c.Trace()
	to.Set("Traceparent", trace.Parent)
	if trace.State != "" {
		to.Set("Tracestate", trace.State)
	}
	to.Set(HeaderDelivery, c.DeliveryID)
	to.Set(HeaderAttempt, strconv.Itoa(c.Attempt))
	to.Set(HeaderFence, strconv.FormatInt(int64(c.Fence), 10))
	to.Set(HeaderTarget, encodeAttribute(c.Target.String()))
}

// sign sets the headers of Standard Webhooks. Secrets are read anew, and the
// timestamp is that of this attempt.
func (h *Handler) sign(to http.Header, c *edge.Claim, body []byte) error {
	timestamp := h.config.Now().Unix()
	to.Set(HeaderID, c.Key)
	to.Set(HeaderTimestamp, strconv.FormatInt(timestamp, 10))
	if len(h.config.Secrets) == 0 {
		return nil
	}
	keys := make([]Key, 0, len(h.config.Secrets))
	for _, ref := range h.config.Secrets {
		s, err := handlers.ResolveSecret(ref)
		if err != nil {
			return err
		}
		k, err := ParseKey(s)
		if err != nil {
			return errors.Join(errors.New("secret "+ref), err)
		}
		keys = append(keys, k)
	}
	signature, err := Sign(keys, c.Key, timestamp, body)
	if err != nil {
		return err
	}
	to.Set(HeaderSignature, signature)
	return nil
}

func templateFault(err error) *edge.Result {
	r := edge.Misconfigured(handlers.CodeTemplateError, handlers.Detail(err.Error(), nil, false, nil))
	return &r
}

func secretFault(err error) *edge.Result {
	code := handlers.CodeSecretInvalid
	if errors.Is(err, handlers.ErrSecretMissing) {
		code = handlers.CodeSecretMissing
	}
	r := edge.Misconfigured(code, handlers.Detail(err.Error(), nil, false, nil))
	return &r
}
