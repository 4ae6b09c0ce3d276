package expression

// bytesPerStep is how much text is read or copied in one step.
const bytesPerStep = 64

// frame is one evaluation.
type frame struct {
	env   *Env
	slots []any // of let and of the items of lists
	steps int
	bytes int
}

// step spends n steps.
func (f *frame) step(n int) error {
	f.steps += n
	f.env.spent = min(f.env.spent+n, MaxEventSteps+1)
	if f.steps > MaxSteps {
		return faultf("it takes more than %d steps", MaxSteps)
	}
	if f.env.spent > MaxEventSteps {
		return faultf("the expressions on this event take more than %d steps together", MaxEventSteps)
	}
	return nil
}

// made spends n bytes of what an evaluation may make, and the steps of making it.
func (f *frame) made(n int) error {
	f.bytes += n
	if f.bytes > MaxMadeBytes {
		return faultf("it makes more than %d bytes", MaxMadeBytes)
	}
	return f.step(n / bytesPerStep)
}
