//go:build unix

package command_test

import (
	"context"
	"fmt"

	"fencepost/edge"
	"fencepost/handlers/command"
)

// The event's data is the program's input, its attributes are variables.
func ExampleNew() {
	h, err := command.New(command.Config{Argv: []string{"sh", "-c", `echo "$FENCEPOST_EVENT_TYPE: $(wc -c | tr -d ' ') bytes"`}})
	if err != nil {
		fmt.Println(err)
		return
	}
	r := h.Handle(context.Background(), &edge.Claim{
		DeliveryID: "dlv-abc-1", Owner: "example", Fence: 1, Attempt: 1,
		Event: &edge.Event{ID: "1", Source: "/shop", Type: "order.paid", Data: []byte("hello")},
	})
	fmt.Println(r.Outcome, r.Code)
	fmt.Print(r.Detail)
	// Output:
	// succeeded exit_0
	// exit status 0
	// order.paid: 5 bytes
}
