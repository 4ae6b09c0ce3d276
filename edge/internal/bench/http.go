package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"
	"fencepost/edge/config"
	"fencepost/edge/node"
)

// receiver counts webhooks.
type receiver struct {
	*httptest.Server
	done counter
}

func newReceiver() *receiver {
	r := &receiver{}
	r.done.init()
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.WriteHeader(http.StatusNoContent)
		r.done.add(1)
	}))
	return r
}

// bare is a server without storage: it accepts, and delivers without having
// stored anything. What it reaches is the most that HTTP leaves room for.
func bare(target string) *httptest.Server {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}
	slots := make(chan struct{}, workers)
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			answer, err := client.Post(target, "application/json", bytes.NewReader(body))
			if err == nil {
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
			}
		}()
		w.WriteHeader(http.StatusAccepted)
	}))
}

// post sends n events from so many clients, one request each, or in batches.
func post(ctx context.Context, url, token string, n, perRequest int) error {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: producers}}
	defer client.CloseIdleConnections()
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, producers)
	for p := range producers {
		wg.Go(func() {
			for errs[p] == nil {
				first := next.Add(int64(perRequest)) - int64(perRequest)
				if first >= int64(n) {
					return
				}
				errs[p] = postOnce(ctx, client, url, token, first, perRequest)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func postOnce(ctx context.Context, client *http.Client, url, token string, first int64, count int) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(postBody(first, count)))
	if err != nil {
		return err
	}
	q.Header.Set("Authorization", "Bearer "+token)
	q.Header.Set("Content-Type", "application/cloudevents+json")
	if count > 1 {
		q.Header.Set("Content-Type", "application/cloudevents-batch+json")
	}
	answer, err := client.Do(q)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return err
}

func postBody(first int64, count int) []byte {
	one := func(n int64) []byte {
		text, err := json.Marshal(map[string]any{
			"specversion": "1.0", "id": fmt.Sprint(n), "source": "/bench", "type": "bench.made",
			"subject": fmt.Sprint(n % targets), "data": strings.Repeat("x", payload-2),
		})
		if err != nil {
			panic(err) // plain data
		}
		return text
	}
	if count == 1 {
		return one(first)
	}
	all := make([][]byte, count)
	for i := range all {
		all[i] = one(first + int64(i))
	}
	return append(append([]byte{'['}, bytes.Join(all, []byte{','})...), ']')
}

// httpRound runs a whole node with one handler under n events over HTTP, and
// waits until delivered says that all have arrived.
func (b *bench) httpRound(ctx context.Context, h config.Handler, n, perRequest int, delivered func(context.Context, *node.Node) error) (float64, error) {
	c := config.Default()
	c.Node.Data = b.file()
	c.HTTP.Listen, c.HTTP.Socket = "127.0.0.1:0", ""
	c.HTTP.TokenFile = c.Node.Data + ".token"
	h.Name, h.Slots, h.Concurrency, h.Timeout, h.MaxLosses = "bench", 1, workers, 20*time.Second, edge.DefaultMaxLosses
	h.Effect = edge.Idempotent
	if h.Webhook != nil { // its receiver is on this host
		h.Webhook.AllowAddresses = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	}
	c.Handlers = []config.Handler{h}
	c.Routes = []config.Route{{Name: "bench", Type: "*", Source: "*", Subject: "*", Handler: "bench"}}
	nd, err := node.New(c, node.Options{})
	if err != nil {
		return 0, err
	}
	token, err := api.ReadToken(c.HTTP.TokenFile)
	if err != nil {
		nd.Close()
		return 0, err
	}
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := nd.Run(run)
		ended <- err
	}()
	start := time.Now()
	err = post(ctx, "http://"+nd.Addr()+"/v1/events", token, n, perRequest)
	if err == nil {
		err = delivered(ctx, nd)
	}
	took := time.Since(start)
	stop()
	return float64(n) / took.Seconds(), errors.Join(err, <-ended)
}

// overHTTP compares a node with a server that stores nothing, and measures
// batches into a handler inside the process.
func (b *bench) overHTTP(ctx context.Context) error {
	var ours, theirs []float64
	for range b.Rounds {
		r := newReceiver()
		dummy := bare(r.URL)
		start := time.Now()
		err := errors.Join(post(ctx, dummy.URL, "", b.N, 1), r.done.wait(ctx, int64(b.N)))
		theirs = append(theirs, float64(b.N)/time.Since(start).Seconds())
		dummy.Close()
		r.Close()
		if err != nil {
			return fmt.Errorf("server without storage: %w", err)
		}
		r = newReceiver()
		rate, err := b.httpRound(ctx, config.Handler{Kind: config.KindWebhook, Webhook: &config.Webhook{URL: r.URL + "/"}}, b.N, 1,
			func(ctx context.Context, _ *node.Node) error { return r.done.wait(ctx, int64(b.N)) })
		r.Close()
		if err != nil {
			return err
		}
		ours = append(ours, rate)
	}
	b.r.add("one POST per event, delivered to a webhook", median(ours), "/s")
	b.r.add("the same by a server without storage", median(theirs), "/s")
	b.r.atLeast("one POST per event over the server without storage (aim: 0.4)", median(ours)/median(theirs), 0.3, "x")
	n := max(b.N/100, 10) * 100
	rate, err := b.httpRound(ctx, config.Handler{Kind: config.KindLog}, n, 100, func(ctx context.Context, nd *node.Node) error {
		return awaitTotals(ctx, nd.Engine(), int64(n))
	})
	if err != nil {
		return err
	}
	b.r.atLeast("batches of 100 into a handler inside the process (aim: 10,000)", rate, 4000, "/s")
	return nil
}
