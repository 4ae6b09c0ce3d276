package edge

import "errors"

// Causes with which a handler's context is cancelled; context.Cause gives them.
// The fourth is [ErrLeaseLost].
var (
	// ErrTimeout: the handler's own timeout.
	ErrTimeout = errors.New("handler timeout")
	// ErrCancelled: an operator called the delivery off.
	ErrCancelled = errors.New("cancelled")
	// ErrShutdown: the engine stops.
	ErrShutdown = errors.New("shutdown")
)

// errRouter: the router panicked. It is not the event's fault.
var errRouter = errors.New("the router panicked")

// causeCode is the result code of an execution that a cause ended.
func causeCode(cause error) string {
	switch {
	case errors.Is(cause, ErrTimeout):
		return CodeHandlerTimeout
	case errors.Is(cause, ErrCancelled):
		return CodeCancelled
	case errors.Is(cause, ErrLeaseLost):
		return CodeLeaseLost
	default:
		return CodeShutdown
	}
}
