package edge

// Episode is a time in which the other side of a handler fails, from the attempt
// that made it certain to the next that succeeds. A store keeps it, so that it is
// told once, whatever restarts meanwhile. The zero value is none.
type Episode struct {
	BeganMS  int64  // when it began; names it
	SinceMS  int64  // from when on the gate's patience counts: BeganMS, or when an operator opened the gate since
	Failures int    // in a row, when it began
	Code     string // of the attempt with which it began
}
