package cli

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"
	"fencepost/edge/node"

	"github.com/spf13/cobra"
)

const (
	demoSecret   = "FENCEPOST_EXAMPLE_SECRET" // the reference in config.example.toml
	demoReceiver = "127.0.0.1:9000"           // where its webhook goes
	demoPatience = 10 * time.Second           // for the node to be ready, and for a delivery to end
	demoPause    = 50 * time.Millisecond      // between two looks
)

func (a *app) demo() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Run the example: a node and a receiver together, and a first event",
		Long: "Run a node on config.example.toml (or on --config) and a receiver for its webhook together, and\n" +
			"hand in a first event. Ctrl-C stops both. The database stays, so the next run goes on with it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			example := a.config == "" && os.Getenv(configVariable) == ""
			if example {
				a.config = "config.example.toml"
			}
			// The example's command is harmless, also as root.
			return a.runDemo(cmd.Context(), node.Options{AllowRootCommands: example})
		},
	}
}

// runDemo ends when ctx is done or when node or receiver end.
func (a *app) runDemo(ctx context.Context, o node.Options) error {
	secret, err := demoSigningSecret()
	if err != nil {
		return err
	}
	a.Out = &lockedWriter{w: a.Out} // two sides print
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var receiver sync.WaitGroup
	receiver.Go(func() {
		err := Listen(ctx, ListenOptions{Addr: demoReceiver, Secrets: []string{secret}}, a.Out)
		var address *addressError
		switch {
		case errors.As(err, &address):
			stop(fmt.Errorf("receiver: %w; the webhook of the example goes to %s: stop what listens there, then run this again", err, demoReceiver))
		case err != nil:
			stop(fmt.Errorf("receiver on %s: %w", demoReceiver, err))
		}
	})
	receiver.Go(func() {
		if err := a.firstEvent(ctx); err != nil && ctx.Err() == nil {
			stop(fmt.Errorf("first event: %w", err))
		}
	})
	err = a.runNode(ctx, o)
	cause := context.Cause(ctx)
	stop(nil)
	receiver.Wait()
	if cause != nil && !errors.Is(cause, context.Canceled) {
		return cause // what ended the node, whatever the node says of it
	}
	return err
}

// demoSigningSecret is the secret of the environment, or a fresh one.
func demoSigningSecret() (string, error) {
	if s := os.Getenv(demoSecret); s != "" {
		return s, nil
	}
	var key [32]byte
	_, _ = rand.Read(key[:]) // crypto/rand.Read does not fail
	s := "whsec_" + base64.StdEncoding.EncodeToString(key[:])
	return s, os.Setenv(demoSecret, s)
}

// firstEvent hands in a greeting when the node is ready, and says what to type
// next.
func (a *app) firstEvent(ctx context.Context) error {
	client, err := a.dialReady(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	ev := edge.Event{
		Source: "/demo", Type: "greeting.hello", Subject: "newcomer",
		ContentType: "application/json", Data: []byte(`{"text":"hello"}`),
	}
	rc, err := client.Send(ctx, ev)
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\ndemo: sent a greeting, %s, owed to %d targets. What became of it:\n", rc.ID, len(rc.Deliveries))
	for _, ref := range rc.Deliveries {
		d, err := a.demoEnd(ctx, client, ref.ID)
		if err != nil {
			return err
		}
		detail := ""
		if n := len(d.Executions); n > 0 {
			detail = d.Executions[n-1].Detail
		}
		fmt.Fprintf(&b, "demo:   %-14s %-10s %-9s %s\n", safe(d.Delivery.Target), d.Delivery.State, safe(d.Delivery.Code), safe(detail))
	}
	fmt.Fprintf(&b, demoText, a.configPath())
	_, err = io.WriteString(a.Out, b.String())
	return err
}

// demoEnd waits a little for a delivery to be final; what it is then is shown.
func (a *app) demoEnd(ctx context.Context, client *api.Client, id string) (api.DeliveryDetail, error) {
	deadline := time.Now().Add(demoPatience)
	for {
		d, err := client.Delivery(ctx, id)
		if err != nil || d.Delivery.State.Final() || time.Now().After(deadline) {
			return d, err
		}
		select {
		case <-time.After(demoPause):
		case <-ctx.Done():
			return d, context.Cause(ctx)
		}
	}
}

const demoText = `demo: The webhook is also the receiver's line "POST / verified", the log entry a line of the node's log.
demo:
demo: In another terminal, in this directory, type for example:
demo:
demo:   export FENCEPOST_CONFIG=%s
demo:   ./fencepost send --type greeting.hello --subject bob --data '{"text":"hi"}'
demo:   ./fencepost deliveries
demo:   ./fencepost explain 1
demo:   ./fencepost handler pause hello      # then send again, and look with deliveries and explain
demo:   ./fencepost handler resume hello
demo:
demo: Ctrl-C here stops the node and the receiver.

`

// dialReady waits until the node of the configuration is ready.
func (a *app) dialReady(ctx context.Context) (*api.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	for {
		client, err := a.dial(ctx)
		if err == nil {
			if err = client.Ready(ctx); err == nil {
				return client, nil
			}
			client.Close()
		}
		select {
		case <-time.After(demoPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// lockedWriter keeps the lines of two writers whole.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
