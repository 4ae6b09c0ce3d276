package handlers

import (
	"runtime"
	"slices"
	"time"

	"fencepost/edge"
)

// Names of the kinds.
const (
	KindWebhook = "webhook"
	KindCommand = "command"
	KindLog     = "log"
)

// Kind is a kind of handler with the defaults that its handlers have unless
// configured otherwise.
type Kind struct {
	Name        string
	Effect      edge.Effect
	Timeout     time.Duration // of one execution
	Concurrency int           // deliveries of one handler that run at once
	Retry       edge.RetryPolicy
}

// Kinds are all kinds, by name.
func Kinds() []Kind {
	return []Kind{
		{
			Name:        KindCommand,
			Effect:      edge.Once,
			Timeout:     5 * time.Minute,
			Concurrency: runtime.NumCPU(),
			Retry:       edge.RetryPolicy{Base: time.Second, Max: time.Minute, MaxAttempts: 5},
		},
		{
			Name:        KindLog,
			Effect:      edge.Idempotent,
			Timeout:     5 * time.Second,
			Concurrency: 16,
			Retry:       edge.RetryPolicy{Base: time.Second, Max: time.Minute, MaxAttempts: 5},
		},
		{
			Name:        KindWebhook,
			Effect:      edge.Idempotent,
			Timeout:     20 * time.Second,
			Concurrency: 16,
			Retry:       edge.RetryPolicy{Schedule: slices.Clone(edge.WebhookSchedule), GiveUpAfter: 24 * time.Hour},
		},
	}
}

// LookupKind returns the kind of that name.
func LookupKind(name string) (Kind, bool) {
	for _, k := range Kinds() {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}

// Spec is the registration of handler h of this kind under a name, with the
// kind's defaults, for the caller to change.
func (k Kind) Spec(name string, h edge.Handler) edge.HandlerSpec {
	return edge.HandlerSpec{
		Name:        name,
		Handler:     h,
		Effect:      k.Effect,
		Concurrency: k.Concurrency,
		Timeout:     k.Timeout,
		Retry:       k.Retry,
	}
}
