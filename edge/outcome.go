package edge

// Outcome is how an execution ended: as the handler's result says, or as the
// engine does.
type Outcome string

// Outcomes that a handler's result can have.
const (
	OutcomeSucceeded     Outcome = "succeeded"
	OutcomeRetry         Outcome = "retry"         // charged; from a once handler: the effect did not begin
	OutcomeFailed        Outcome = "failed"        // repeating cannot help
	OutcomeDeferred      Outcome = "deferred"      // not charged; from a once handler: the effect did not begin
	OutcomeIndeterminate Outcome = "indeterminate" // the effect may have happened
	OutcomeBlocked       Outcome = "blocked"       // not begun, for a configuration reason
)

// Outcomes that only the engine writes.
const (
	OutcomeInterrupted Outcome = "interrupted" // cut by shutdown or a refused start; not charged
	OutcomeCancelled   Outcome = "cancelled"
	OutcomeLost        Outcome = "lost" // the lease went; charged to losses
)

// Effect is what a handler declares about repeating its effect.
type Effect string

const (
	// Idempotent: may be repeated with the same idempotency key.
	Idempotent Effect = "idempotent"
	// Transactional: the effect is the follow-up events, accepted in the
	// settling transaction itself.
	Transactional Effect = "transactional"
	// Once: an effect outside that must not be repeated blindly. A handler
	// that declares nothing is once.
	Once Effect = "once"
)

// Result codes of the engine and the store. A code is a short stable identifier
// of why, [a-z0-9][a-z0-9_.:-]*, at most 64 bytes.
const (
	CodeAlreadyConsumed   = "already_consumed"         // the consumption was there; no start
	CodeBudgetExhausted   = "attempt_budget_exhausted" // losses are spent
	CodeLostAfterStart    = "lost_after_start"         // once work begun, lease lost
	CodeLeaseLost         = "lease_lost"               // not begun, or may be repeated
	CodeOutcomeUnknown    = "outcome_unknown"          // once work of unknown outcome
	CodeRouteError        = "route_error"
	CodeFollowUpRefused   = "followup_refused"
	CodeHandlerPanicked   = "handler_panicked"
	CodeHandlerTimeout    = "handler_timeout"
	CodeInvalidResult     = "handler_invalid_result"
	CodeInspectionFailed  = "handler_inspection_failed"
	CodeHandlerRequeued   = "handler_changed" // blocked for configuration, then the configuration changed
	CodeShutdown          = "shutdown"
	CodeStartRefused      = "start_refused"
	CodeGateClosed        = "gate_closed"
	CodeCancelled         = "cancelled"
	CodeExpired           = "expired"
	CodeDroppedBacklog    = "dropped_backlog" // expired to make room: the backlog was at its bound
	CodeResolved          = "resolved"
	CodeEndpointGone      = "endpoint_gone"
	CodeEndpointFailing   = "endpoint_failing" // the gate rests: the handler's other side fails
	CodeFailingTooLong    = "failing_too_long" // the gate is off: it has failed for too long
	CodeUplinkDown        = "uplink_down"      // we are offline; nothing is charged
	CodeHandlerMissing    = "handler_missing"
	CodePausedByOperator  = "paused_by_operator"
	CodePausedByEndpoint  = "paused_by_endpoint"
	CodeRouteReevaluated  = "route_reevaluated"
	CodeTargetSkipped     = "skipped"
	CodeRedriven          = "redriven"
	CodeReleasedWithError = "released_with_error"
)

// MaxCodeBytes is the limit of a result code, MaxDetailBytes that of a detail.
const (
	MaxCodeBytes   = 64
	MaxDetailBytes = 64 << 10
)

// ValidCode reports whether s has the form of a result code.
func ValidCode(s string) bool {
	if s == "" || len(s) > MaxCodeBytes {
		return false
	}
	for i, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case i > 0 && (c == '_' || c == '.' || c == ':' || c == '-'):
		default:
			return false
		}
	}
	return true
}
