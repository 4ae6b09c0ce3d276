package edge

import (
	"fmt"
	"strings"
)

// Drawing is [Transitions] as text: for each state the states that a delivery
// can go to, by which trigger and on what condition. A star marks the moves
// whose write names the lease token, a plus those that charge a budget. The
// package documentation shows it.
func Drawing() string {
	var b strings.Builder
	for _, from := range append([]State{""}, States[:]...) {
		fmt.Fprintln(&b, stateName(from, "(new)"))
		for i := range Transitions {
			if t := &Transitions[i]; t.From == from {
				drawMove(&b, t)
			}
		}
	}
	return b.String()
}

func drawMove(b *strings.Builder, t *Transition) {
	on := string(t.On)
	if t.Fenced {
		on += " *"
	}
	if t.Charge != NoCharge {
		on += " +" + string(t.Charge)
	}
	line := fmt.Sprintf("  -> %-9s  %-32s  %s", stateName(t.To, "(gone)"), on, t.When)
	fmt.Fprintln(b, strings.TrimRight(line, " "))
}

func stateName(s State, none string) string {
	if s == "" {
		return none
	}
	return string(s)
}
