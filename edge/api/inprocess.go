package api

import (
	"bytes"
	"io"
	"net/http"
)

// NewHandlerClient returns a client of a handler in this process, without a
// socket. It is not for streams.
func NewHandlerClient(h http.Handler) *Client {
	return &Client{http: &http.Client{Transport: inProcess{h}}}
}

type inProcess struct{ h http.Handler }

// RoundTrip lets the handler answer.
func (p inProcess) RoundTrip(req *http.Request) (*http.Response, error) {
	r := req.Clone(req.Context())
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := &recorded{header: http.Header{}, status: http.StatusOK}
	p.h.ServeHTTP(w, r)
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: req,
	}, nil
}

// recorded keeps an answer.
type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *recorded) Header() http.Header         { return w.header }
func (w *recorded) WriteHeader(status int)      { w.status = status }
func (w *recorded) Write(b []byte) (int, error) { return w.body.Write(b) }
