// Package edge takes events, owes each to the targets that its routes name, and
// turns each of these deliveries into an effect once: in order per target, under
// a fenced lease, and without guessing when the outcome is unknown. It needs the
// standard library only; a [Store] keeps the state (fencepost/edge/sqlite on
// disk, fencepost/edge/edgetest in memory for tests).
//
// # Embedding
//
//	store, err := sqlite.Open("shop.db", sqlite.Options{})
//	// ...
//	engine, err := edge.New(store, edge.Options{
//		Router: edge.RouterFunc(func(e *edge.Event) []edge.Routed {
//			return []edge.Routed{{Route: "all", Handler: "print", Key: edge.DefaultKey(e)}}
//		}),
//		Handlers: []edge.HandlerSpec{{Name: "print", Effect: edge.Idempotent, Handler: edge.HandlerFunc(printOrder)}},
//	})
//	// ...
//	summary, err := engine.Run(ctx) // until ctx is done; engine.Enqueue takes events meanwhile
//
// A handler gets a [Claim] and answers with a [Result]. It declares what
// repeating its effect would mean: [Idempotent], [Transactional] or [Once]. A
// handler that declares nothing is once: what it began is never begun again
// without evidence or a person.
//
// # Reading order
//
// The words: event.go, delivery.go, lease.go, execution.go, outcome.go. The
// rules: transition.go, whose table everything follows, and retry.go. The
// border: handler.go for those who write handlers, store.go for those who store.
// The engine: engine.go, dispatcher.go, worker.go, result.go, then heartbeat.go,
// stubborn.go, recovery.go, upkeep.go, clockcheck.go and shutdown.go; what becomes
// of a handler whose other side fails: endpoint.go, breaker.go, uplink.go. For
// people: explain.go.
//
// # Life of a delivery
//
// Only the listed moves exist. A star marks moves whose write names the lease
// token, a plus those that charge a budget. held is for consent, which no router
// can ask for yet.
//
//	(new)
//	  -> pending    accept
//	  -> held       accept                            policy asks for consent
//	  -> running    accept                            claimable in the accepting commit
//	  -> blocked    accept                            the route failed on the event
//	  -> pending    redrive
//	held
//	  -> held       prepare
//	  -> blocked    prepare                           inspection refuses
//	  -> pending    grant
//	  -> cancelled  deny
//	  -> cancelled  withdraw
//	  -> cancelled  cancel
//	  -> cancelled  skip
//	  -> expired    expire
//	pending
//	  -> leased     claim
//	  -> running    claim_start
//	  -> succeeded  already_consumed
//	  -> pending    retry now
//	  -> cancelled  cancel
//	  -> expired    expire
//	leased
//	  -> running    start *
//	  -> succeeded  already_consumed *
//	  -> leased     renew *
//	  -> pending    release retry * +attempt          budget left
//	  -> failed     release retry * +attempt          budget spent
//	  -> pending    release defer *
//	  -> pending    release interrupt *
//	  -> blocked    release block *
//	  -> cancelled  cancel
//	  -> pending    lease lost +loss                  losses left
//	  -> failed     lease lost +loss                  losses spent
//	running
//	  -> running    renew *
//	  -> succeeded  settle succeeded *
//	  -> failed     settle failed * +attempt
//	  -> pending    settle retry * +attempt           budget left
//	  -> failed     settle retry * +attempt           budget spent
//	  -> cancelled  settle retry * +attempt           cancel was asked for
//	  -> pending    settle deferred *
//	  -> cancelled  settle deferred *                 cancel was asked for
//	  -> pending    settle interrupted *              the effect may be repeated
//	  -> blocked    settle interrupted *              once
//	  -> cancelled  settle interrupted *              cancel was asked for
//	  -> blocked    settle blocked *
//	  -> blocked    settle indeterminate *            once
//	  -> pending    settle indeterminate * +attempt   the effect may be repeated
//	  -> failed     settle indeterminate * +attempt   the effect may be repeated, budget spent
//	  -> cancelled  settle indeterminate * +attempt   the effect may be repeated, cancel was asked for
//	  -> running    cancel
//	  -> pending    lease lost +loss                  the effect may be repeated, losses left
//	  -> failed     lease lost +loss                  the effect may be repeated, losses spent
//	  -> cancelled  lease lost +loss                  the effect may be repeated, cancel was asked for
//	  -> blocked    lease lost +loss                  once
//	blocked
//	  -> succeeded  settle late *                     the execution's own unresolved loss
//	  -> failed     settle late * +attempt            the execution's own unresolved loss
//	  -> succeeded  evidence                          verified
//	  -> failed     evidence                          verified
//	  -> succeeded  resolve succeeded
//	  -> failed     resolve failed
//	  -> failed     resolve retry
//	  -> failed     skip
//	  -> pending    reconfigure                       blocked for a configuration reason
//	  -> cancelled  reconfigure                       blocked for a configuration reason, cancel was asked for
//	  -> pending    reroute                           route_error
//	  -> cancelled  reroute                           the event has a delivery to that target
//	succeeded
//	  -> (gone)     prune
//	failed
//	  -> (gone)     prune
//	cancelled
//	  -> (gone)     prune
//	expired
//	  -> (gone)     prune
//
// # Time
//
// All stored times are milliseconds UTC from the store's [Clock]. Deadlines
// inside the process (trust in a lease, timeouts, the shutdown's grace) are on
// the monotonic clock, so no step of the wall clock moves them.
package edge
