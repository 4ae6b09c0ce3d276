package edge_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"fencepost/edge"
	"fencepost/edge/edgetest"
)

// order is an event as a shop's till would send it.
func order(id, till string) edge.Event {
	return edge.Event{
		ID: id, Source: "urn:till:" + till, Type: "shop.order", Subject: till,
		ContentType: "text/plain", Data: []byte("2 coffees"),
	}
}

// An engine of its own: a store, a router, one handler.
func Example() {
	engine, err := edge.New(edgetest.NewModel(nil), edge.Options{
		Router: edge.RouterFunc(func(e *edge.Event) []edge.Routed {
			return []edge.Routed{{Route: "all", Handler: "print", Key: edge.DefaultKey(e)}}
		}),
		Handlers: []edge.HandlerSpec{{
			Name:   "print",
			Effect: edge.Idempotent,
			Handler: edge.HandlerFunc(func(_ context.Context, c *edge.Claim) edge.Result {
				fmt.Printf("%s: %s, attempt %d\n", c.Target, c.Event.Data, c.Attempt)
				return edge.Done()
			}),
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	changes := engine.Subscribe(0)
	defer changes.Close()
	go func() { // stop when the delivery has succeeded
		for c, err := changes.Next(ctx); err == nil; c, err = changes.Next(ctx) {
			if c.State == edge.Succeeded {
				stop()
			}
		}
	}()
	accepted, err := engine.Enqueue(ctx, order("1", "till-7"))
	fmt.Println(len(accepted.Deliveries), "delivery", err)
	again, err := engine.Enqueue(ctx, order("1", "till-7"))
	fmt.Println("there already:", again.Existing, err)
	summary, err := engine.Run(ctx)
	fmt.Println(summary.Stubborn, err)
	// Output:
	// 1 delivery <nil>
	// there already: true <nil>
	// print:till-7: 2 coffees, attempt 1
	// 0 <nil>
}

// Follow-up events are accepted in the transaction that stores the result: all
// of them with it, or none.
func ExampleDone() {
	byType := edge.RouterFunc(func(e *edge.Event) []edge.Routed {
		handler := map[string]string{"shop.order": "split", "shop.item": "brew"}[e.Type]
		return []edge.Routed{{Route: e.Type, Handler: handler, Key: edge.DefaultKey(e)}}
	})
	split := func(_ context.Context, c *edge.Claim) edge.Result {
		var items []edge.Event
		for n := 1; n <= 2; n++ {
			items = append(items, edge.Event{
				ID:     fmt.Sprintf("%s-%d", c.Key, n), // the same in every attempt
				Source: "urn:split", Type: "shop.item", Subject: fmt.Sprint("machine-", n),
			})
		}
		return edge.Done(items...)
	}
	brew := func(_ context.Context, c *edge.Claim) edge.Result {
		fmt.Println("brew on", c.Target.Key, "depth", c.Event.Depth)
		return edge.Done()
	}
	engine, _ := edge.New(edgetest.NewModel(nil), edge.Options{
		Router: byType,
		Handlers: []edge.HandlerSpec{
			{Name: "split", Effect: edge.Transactional, Handler: edge.HandlerFunc(split)},
			{Name: "brew", Effect: edge.Idempotent, Handler: edge.HandlerFunc(brew)},
		},
	})
	ctx := context.Background()
	defer engine.Stop(ctx)
	_, _ = engine.Enqueue(ctx, order("1", "till-7"))
	for round := 1; round <= 3; round++ {
		n, _ := engine.DispatchOnce(ctx, 1)
		fmt.Println("round", round, "succeeded", n.Succeeded)
	}
	// Output:
	// round 1 succeeded 1
	// brew on machine-1 depth 1
	// round 2 succeeded 1
	// brew on machine-2 depth 1
	// round 3 succeeded 1
}

// WithTarget lets other code work on the same thing as a handler, never both at
// once.
func ExampleEngine_WithTarget() {
	engine, _ := edge.New(edgetest.NewModel(nil), edge.Options{})
	ctx := context.Background()
	defer engine.Stop(ctx)
	till := edge.Target{Handler: "print", Key: "till-7"}
	err := engine.WithTarget(ctx, till, func(ctx context.Context, fence edge.ExecutionID) error {
		fmt.Println("fence", fence)
		busy := engine.WithTarget(ctx, till, func(context.Context, edge.ExecutionID) error { return nil })
		fmt.Println("second:", errors.Is(busy, edge.ErrBusy))
		return nil
	})
	fmt.Println(err)
	// Output:
	// fence 1
	// second: true
	// <nil>
}

// DispatchOnce runs one bounded round, without a running engine: for a cron job
// or a test.
func ExampleEngine_DispatchOnce() {
	engine, _ := edge.New(edgetest.NewModel(nil), edge.Options{
		Router: to("pay"),
		Handlers: []edge.HandlerSpec{{Name: "pay", Handler: edge.HandlerFunc(func(_ context.Context, c *edge.Claim) edge.Result {
			if c.Event.ID == "2" {
				return edge.Unknown("connection_cut", "the bank did not answer")
			}
			return edge.Done()
		})}}, // declares nothing, so it is once
	})
	ctx := context.Background()
	defer engine.Stop(ctx)
	for _, id := range []string{"1", "2", "3"} {
		_, _ = engine.Enqueue(ctx, order(id, "till-"+id))
	}
	n, err := engine.DispatchOnce(ctx, 10)
	fmt.Println("claimed", n.Claimed, "succeeded", n.Succeeded, "waiting for a person", n.Unknown, err)
	n, err = engine.DispatchOnce(ctx, 10)
	fmt.Println("claimed", n.Claimed, err)
	// Output:
	// claimed 3 succeeded 2 waiting for a person 1 <nil>
	// claimed 0 <nil>
}

// spool writes orders into a folder, and looks before the start whether the
// folder is there.
type spool struct{ dir string }

func (s spool) Inspect(context.Context, *edge.Claim) edge.Inspection {
	if _, err := os.Stat(s.dir); err != nil {
		return edge.Inspection{Outcome: edge.OutcomeDeferred, Code: "folder_missing"}
	}
	return edge.Inspection{}
}

func (s spool) Handle(_ context.Context, c *edge.Claim) edge.Result {
	if err := os.WriteFile(filepath.Join(s.dir, c.Key), c.Event.Data, 0o600); err != nil {
		return edge.Unknown("write_failed", err.Error())
	}
	return edge.Done()
}

// A handler that is an Inspector is asked before the start barrier, so that work
// that cannot succeed is never begun.
func ExampleInspector() {
	engine, _ := edge.New(edgetest.NewModel(nil), edge.Options{
		Router:   to("spool"),
		Handlers: []edge.HandlerSpec{{Name: "spool", Handler: spool{dir: "no/such/folder"}}},
	})
	ctx := context.Background()
	defer engine.Stop(ctx)
	_, _ = engine.Enqueue(ctx, order("1", "till-7"))
	n, err := engine.DispatchOnce(ctx, 1)
	fmt.Println("started", n.Started, "deferred", n.Deferred, err)
	// Output:
	// started 0 deferred 1 <nil>
}
