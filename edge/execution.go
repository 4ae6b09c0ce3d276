package edge

// ExecutionID is an execution's number in its store. It only grows, so it is
// the fence: the fencing token that handlers and receivers get, by which a
// receiver can refuse a stale execution. Its scope is the target when order is
// strict and the delivery when it is not.
type ExecutionID int64

// Execution is one claim of a delivery under one lease: a stored fact. Effect
// and Revision are those declared at the claim; they alone decide settle and
// recovery.
type Execution struct {
	ID          ExecutionID
	Delivery    DeliveryID // 0 for an execution of WithTarget
	Attempt     int        // number of the attempt this execution makes, from 1
	Owner       string     // random id of the opening of the store that claimed it
	Effect      Effect
	Revision    string // the handler's configuration revision
	ClaimedMS   int64
	StartedMS   int64
	EndedMS     int64
	Outcome     Outcome
	Code        string
	Detail      string  // scrubbed and bounded text for people
	LateOutcome Outcome // what a handler answered after its lease was gone
}
