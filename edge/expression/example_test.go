package expression_test

import (
	"fmt"

	"fencepost/edge"
	"fencepost/edge/expression"
)

func Example() {
	paid := &edge.Event{
		ID: "1", Source: "/shop", Type: "order.paid", ContentType: "application/json",
		Data: []byte(`{"amount": 9007199254740993, "till": 4}`),
	}
	large, err := expression.CompileCondition(`data.amount > 9007199254740992 and type == "order.paid"`)
	if err != nil {
		fmt.Println(err)
		return
	}
	key, err := expression.CompileTemplate(`till-${data.till}`, expression.Key)
	if err != nil {
		fmt.Println(err)
		return
	}
	env := expression.NewEnv(paid)
	fmt.Println(large.Bool(env))
	fmt.Println(key.Render(env))

	missing, err := expression.CompileCondition(`data.customer.vip`)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(missing.Bool(env))
	_, err = expression.CompileCondition(`now() > 5`)
	fmt.Println(err)
	// Output:
	// true <nil>
	// till-4 <nil>
	// false data.customer is missing
	// invalid: column 1: the function now is not known here: an expression reads no clock; use time, the event's own
}
