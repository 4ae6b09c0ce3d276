package webhook_test

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"fencepost/handlers"
	"fencepost/handlers/webhook"
)

// A receiver verifies what it got with the secret that it shares with the node.
func ExampleVerify() {
	key, err := webhook.ParseKey(handlers.NewSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
	if err != nil {
		fmt.Println(err)
		return
	}
	sent, body := time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`)
	signature, err := webhook.Sign([]webhook.Key{key}, "msg_p5jXN8AQM9LWM0D4loKWxJek", sent.Unix(), body)
	if err != nil {
		fmt.Println(err)
		return
	}
	h := http.Header{}
	h.Set(webhook.HeaderID, "msg_p5jXN8AQM9LWM0D4loKWxJek")
	h.Set(webhook.HeaderTimestamp, strconv.FormatInt(sent.Unix(), 10))
	h.Set(webhook.HeaderSignature, signature)
	fmt.Println(webhook.Verify([]webhook.Key{key}, h, body, sent.Add(time.Minute)))
	fmt.Println(webhook.Verify([]webhook.Key{key}, h, append(body, '\n'), sent.Add(time.Minute)))
	// Output:
	// <nil>
	// webhook signature does not match
}
