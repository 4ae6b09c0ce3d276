package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"fencepost/edge"
	"fencepost/handlers"
)

// Bounds of what follows the end of a program.
const (
	unkillableAfter = 2 * time.Second        // killed, and still not ended
	sweepAtMost     = 2 * time.Second        // looking for what it left behind
	drainAtMost     = 250 * time.Millisecond // its output held open by someone else
)

// job is one run of a program.
type job struct {
	path    string
	argv    []string
	env     []string
	secrets []handlers.Secret
	data    []byte
	marks   []string
}

func (h *Handler) run(ctx context.Context, j job) edge.Result {
	if ctx.Err() != nil {
		return notStarted(ctx)
	}
	pipes, err := openPipes()
	if err != nil {
		return edge.TryAgain(CodeStartFailed, "open pipes: "+err.Error())
	}
	defer pipes.close()
	p, err := start(&exec.Cmd{
		Path:   j.path,
		Args:   j.argv,
		Env:    j.env,
		Dir:    h.config.Dir,
		Stdin:  pipes.childIn,
		Stdout: pipes.childOut,
		Stderr: pipes.childOut,
	})
	pipes.closeChildEnds()
	if err != nil {
		return startFault(j.path, err)
	}
	feed(pipes.in, j.data)
	out := collect(pipes.out, edge.MaxDetailBytes+handlers.LongestSecret(j.secrets))

	killed, stuck := h.await(ctx, p)
	left := sweep(j.marks, p.since)
	text, truncated := out.finish(drainAtMost)
	detail := func(head string) string {
		if left != nil {
			head += "\n" + left.Error()
		}
		return handlers.Detail(head, text, truncated, j.secrets)
	}
	switch {
	case stuck:
		return edge.Unknown(CodeStuck, detail("killed, and still there"))
	case killed:
		return cut(ctx, detail)
	}
	return h.ended(p, detail)
}

// await waits until the program has ended, and ends it when ctx is done.
func (h *Handler) await(ctx context.Context, p *process) (killed, stuck bool) {
	select {
	case <-p.done:
		return false, false
	case <-ctx.Done():
	}
	// Not killed when it had ended by itself just before.
	killed = p.terminate()
	if p.endsWithin(h.config.Grace) {
		return killed, false
	}
	killed = p.kill() || killed
	return killed, !p.endsWithin(unkillableAfter)
}

func (h *Handler) ended(p *process, detail func(string) string) edge.Result {
	if p.err != nil {
		var exit *exec.ExitError
		if !errors.As(p.err, &exit) {
			return edge.Unknown(CodeStuck, detail("wait: "+p.err.Error()))
		}
	}
	if !p.state.Exited() {
		return edge.Unknown(CodeKilledBySignal, detail(p.state.String()))
	}
	return h.exited(p.state.ExitCode(), detail(p.state.String()))
}

// cut is the result of a program that was killed because ctx was done.
func cut(ctx context.Context, detail func(string) string) edge.Result {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return edge.Unknown(CodeTimeout, detail("killed: its time was up"))
	}
	return edge.Unknown(CodeInterrupted, detail(fmt.Sprintf("killed: %v", context.Cause(ctx))))
}

func notStarted(ctx context.Context) edge.Result {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return edge.TryAgain(CodeNotStarted, "its time was up before the start")
	}
	r := edge.Defer(CodeNotStarted, 0)
	r.Detail = handlers.Detail(fmt.Sprintf("before the start: %v", context.Cause(ctx)), nil, false, nil)
	return r
}

// sweep kills what the program left behind outside its group.
func sweep(marks []string, since uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), sweepAtMost)
	defer cancel()
	if _, err := killMarked(ctx, marks, since); err != nil {
		return fmt.Errorf("a process that it started may be left: %w", err)
	}
	return nil
}

// pipes are the two ends of standard input and of the combined output. A file
// for each, so that waiting for the program never waits for a copy.
type pipes struct {
	childIn, in   *os.File
	out, childOut *os.File
}

func openPipes() (*pipes, error) {
	p := new(pipes)
	var err error
	if p.childIn, p.in, err = os.Pipe(); err != nil {
		return nil, err
	}
	if p.out, p.childOut, err = os.Pipe(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *pipes) closeChildEnds() {
	_ = p.childIn.Close() // closing a pipe end that was not written to loses nothing
	_ = p.childOut.Close()
}

// close closes what is still open; closing twice is an error that says so and
// changes nothing. A nil file is one that was never opened.
func (p *pipes) close() {
	for _, f := range []*os.File{p.childIn, p.in, p.out, p.childOut} {
		_ = f.Close()
	}
}

// feed writes the data in the background. A program that does not read it ends
// the writing when its end of the pipe goes, or when close closes ours.
func feed(in *os.File, data []byte) {
	go func() {
		_, _ = in.Write(data) // a program need not read its input
		_ = in.Close()
	}()
}
