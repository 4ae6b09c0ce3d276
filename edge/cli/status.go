package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/spf13/cobra"
)

// nodeStatus is a node's status with its backlog, handlers and counters.
type nodeStatus struct {
	api.Status
	Waiting  int64            `json:"waiting"`                    // deliveries that are not final and not under way
	DrainS   int64            `json:"drain_s,omitempty"`          // in how many seconds at the recent rate; 0 = not known
	Rate     float64          `json:"finished_per_s"`             // recently
	OldestS  int64            `json:"oldest_waiting_s,omitempty"` // age of the oldest that waits
	Backlog  api.Backlog      `json:"backlog"`
	Handlers []api.Handler    `json:"handlers"`
	Counters map[string]int64 `json:"counters"`

	stopped string // why what waits cannot be expected to be drained; "" = it can
	partly  bool   // some of what waits longest is held up
}

// heldUp says what keeps what waits from being drained: something that stops all,
// or each of the targets that wait longest. some reports one of those.
func (s *nodeStatus) heldUp() (all string, some bool) {
	if st := s.Storage.State; st != "" && st != edge.StorageHealthy {
		return "the storage takes nothing new", true
	}
	for _, u := range s.Uplinks {
		if u.DownSince != 0 {
			return "the uplink " + u.Name + " is down", true
		}
	}
	open := map[string]bool{}
	for _, h := range s.Handlers {
		open[h.Name] = h.Gate == edge.GateOn
	}
	held := 0
	for _, x := range s.Backlog.Worst {
		handler, _, _ := strings.Cut(x.Target.Target, ":")
		if x.Target.Stall != edge.NoStall || x.State == edge.Blocked || x.State == edge.Held || !open[handler] {
			held++
		}
	}
	if held > 0 && held == len(s.Backlog.Worst) {
		return "what waits longest is held up", true
	}
	return "", held > 0
}

func (a *app) status() *cobra.Command {
	worst, counters := 5, false
	c := &cobra.Command{
		Use:   "status",
		Short: "Show health, what waits and how long, and what the node does",
		Long: "Show the health of the node, its clock and its storage, what waits and how long at the recent\n" +
			"rate, the targets that wait longest, and each handler's gate. Nothing is counted for it, so it\n" +
			"is quick at any size.",
		Example: "  fencepost status\n  fencepost status --worst 20 --counters\n  fencepost status --json | jq .oldest_waiting_s",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if worst < 0 || worst > 100 {
				return usage("--worst %d: it is 0 to 100", worst)
			}
			return call(cmd.Context(), a, func(ctx context.Context, n *api.Client) (nodeStatus, error) {
				return readStatus(ctx, n, worst)
			}, func(s nodeStatus) error { return a.showNode(s, counters) })
		},
	}
	c.Flags().IntVar(&worst, "worst", worst, "how many targets that wait longest, 0 to 100")
	c.Flags().BoolVar(&counters, "counters", false, "print all counters too")
	a.offlineFlag(c)
	return c
}

func readStatus(ctx context.Context, n *api.Client, worst int) (s nodeStatus, err error) {
	if s.Status, err = n.Status(ctx); err != nil {
		return s, err
	}
	if s.Backlog, err = n.Backlog(ctx, max(worst, 1)); err != nil {
		return s, err
	}
	if s.Handlers, err = n.Handlers(ctx); err != nil {
		return s, err
	}
	if s.Counters, err = n.Counters(ctx); err != nil {
		return s, err
	}
	for _, state := range []edge.State{edge.Held, edge.Pending, edge.Blocked} {
		s.Waiting += s.Counters["state."+string(state)]
	}
	if span := s.Backlog.Now - s.Backlog.Since; span > 0 {
		s.Rate = float64(s.Backlog.Finished) * 1000 / float64(span)
	}
	all, some := s.heldUp()
	s.stopped, s.partly = all, some
	if pending := s.Counters["state."+string(edge.Pending)]; pending > 0 && s.Rate > 0 && s.stopped == "" {
		s.DrainS = max(int64(float64(pending)/s.Rate), 1)
	}
	if w := s.Backlog.Worst; len(w) > 0 {
		s.OldestS = max(int64(s.Backlog.Now-w[0].AcceptedAt)/1000, 0)
	}
	s.Backlog.Worst = s.Backlog.Worst[:min(worst, len(s.Backlog.Worst))]
	return s, nil
}

func (a *app) showNode(s nodeStatus, counters bool) error {
	if err := a.showStatus(s.Status); err != nil {
		return err
	}
	f := facts{w: a.Out}
	state := func(x edge.State) int64 { return s.Counters["state."+string(x)] }
	f.line("waiting", fmt.Sprintf("%d: %d pending, %d blocked, %d held", s.Waiting, state(edge.Pending), state(edge.Blocked), state(edge.Held)))
	if s.OldestS > 0 {
		f.line("oldest waiting", ago(time.Duration(s.OldestS)*time.Second))
	}
	if s.Version == "" { // from the file: nothing is being done
		s.DrainS, s.Rate = 0, 0
	} else {
		f.line("done lately", fmt.Sprintf("%.3g a second, over %s", s.Rate, ago(time.Duration(s.Backlog.Now-s.Backlog.Since)*time.Millisecond)))
		switch {
		case s.stopped != "" && state(edge.Pending) > 0:
			f.line("drained in", "not known: "+s.stopped)
		case s.DrainS > 0:
			text := "about " + ago(time.Duration(s.DrainS)*time.Second) + " at that rate"
			if s.partly {
				text += ", but for what is held up"
			}
			f.line("drained in", text)
		case state(edge.Pending) > 0:
			f.line("drained in", "not known: nothing was done lately")
		}
	}
	f.line("failed", fmt.Sprintf("%d (fencepost deliveries --state failed --newest)", state(edge.Failed)))
	if f.err != nil {
		return f.err
	}
	if err := a.showWorst(s); err != nil {
		return err
	}
	if err := a.showHandlerStates(s); err != nil || !counters {
		return err
	}
	fmt.Fprintln(a.Out)
	for _, name := range slices.Sorted(maps.Keys(s.Counters)) {
		f.line(name, fmt.Sprint(s.Counters[name]))
	}
	return f.err
}

func (a *app) showWorst(s nodeStatus) error {
	if len(s.Backlog.Worst) == 0 {
		return nil
	}
	fmt.Fprintln(a.Out)
	t := newTable("WAITS LONGEST…", "OPEN", "AGE", "STATE", "CODE…", "STALL", "OLDEST")
	for _, x := range s.Backlog.Worst {
		age := ago(time.Duration(s.Backlog.Now-x.AcceptedAt) * time.Millisecond)
		t.add(x.Target.Target, fmt.Sprint(x.Target.Open), age, string(x.State), x.Code, string(x.Target.Stall), number(x.Oldest))
	}
	return t.print(a.Out)
}

func (a *app) showHandlerStates(s nodeStatus) error {
	if len(s.Handlers) == 0 {
		return nil
	}
	fmt.Fprintln(a.Out)
	t := newTable("HANDLER…", "GATE", "CODE…", zoned("RESUMES"), "IN FLIGHT")
	for _, h := range s.Handlers {
		t.add(h.Name, string(h.Gate), h.Code, short(h.ResumeAt), fmt.Sprint(s.Backlog.InFlight[h.Name]))
	}
	return t.print(a.Out)
}

func (a *app) showStatus(s api.Status) error {
	f := facts{w: a.Out}
	ready := "yes"
	if !s.Ready {
		ready = "no: " + s.NotReady
	}
	clock := when(s.Now)
	if s.Doubted {
		clock += ", doubted: nothing expires or is given up by time; if it is right: fencepost clock confirm"
	}
	if s.Version == "" { // read from the file
		f.line("node", s.Node)
	} else {
		f.line("node", fmt.Sprintf("%s, version %s", s.Node, s.Version))
		f.line("process", fmt.Sprintf("%d, owner %s", s.PID, s.Owner))
	}
	f.line("ready", ready)
	f.line("on hold", holdText(s.Hold))
	f.line("started", when(s.StartedAt))
	f.line("ended before", endings[s.LastEnd])
	f.line("recovery", recoveryText(s.Recovery))
	f.line("clock", clock)
	f.line("database", fmt.Sprintf("%s, durability %s", s.Database, s.Durability))
	f.line("storage", storageText(s.Storage))
	f.line("disk", diskText(s.Storage))
	for _, u := range s.Uplinks {
		f.line("uplink "+safe(u.Name), uplinkText(u))
	}
	f.line("listens on", s.Listen)
	if s.Version == "" { // nothing is; what was is with its handler
		return f.err
	}
	f.line("under way", fmt.Sprintf("%d (%d wait for the store, %d ignore their end)", s.Live, s.Held, s.Stubborn))
	return f.err
}

// storageText says what the store can take, and what it holds.
func storageText(s api.Storage) string {
	if s.State == "" {
		return "" // read from the file
	}
	text := string(s.State)
	if s.Reason != "" {
		text += ": " + s.Reason
	}
	text += fmt.Sprintf("; the file has %s, its log %s; waiting work %s", size(s.FileBytes), size(s.LogBytes), size(s.OpenBytes))
	if s.MaxOpenBytes > 0 {
		text += " of at most " + size(s.MaxOpenBytes)
	}
	return text
}

func diskText(s api.Storage) string {
	if s.State == "" || s.FreeBytes < 0 {
		return ""
	}
	text := size(s.FreeBytes) + " free"
	switch {
	case s.DaysLeft >= 0 && s.DaysLeft < 1:
		text += fmt.Sprintf(", enough for %.0f hours at the pace of the last hours", s.DaysLeft*24)
	case s.DaysLeft >= 0:
		text += fmt.Sprintf(", enough for %.0f days at the pace of the last hours", s.DaysLeft)
	}
	if s.LowWaterBytes > 0 {
		text += "; below " + size(s.LowWaterBytes) + " nothing is taken"
	}
	return text
}

func uplinkText(u api.Uplink) string {
	if u.DownSince == 0 {
		return "up, as far as is known"
	}
	text := "down since " + when(u.DownSince) + ": nothing over it is tried, and nothing is charged"
	if u.Detail != "" {
		text += " (" + u.Detail + ")"
	}
	return text
}

// size is a number of bytes for people.
func size(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/1024, 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	return fmt.Sprintf("%.1f %ciB", v, units[i])
}
