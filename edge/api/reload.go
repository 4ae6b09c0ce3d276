package api

import (
	"context"
	"net/http"
)

// Reloaded is what a reload of the configuration has changed.
type Reloaded struct {
	File    string         `json:"file"`
	Changes []ConfigChange `json:"changes"` // none when the file says what was in force
}

// ConfigChange is one difference between the configuration before and after.
type ConfigChange struct {
	Key         string `json:"key"`          // as in node.workers, handler.hello or route.all
	What        string `json:"what"`         // for people
	TakesEffect string `json:"takes_effect"` // "reload" (it has) or "next claim"
}

func (l *local) reload(r *http.Request) (any, error) { return l.node.Reload(r.Context()) }

// Reload makes the node read its configuration again: whole or not at all. The
// error lists every fault, and nothing has changed then.
func (c *Client) Reload(ctx context.Context) (Reloaded, error) {
	return post[Reloaded](ctx, c, "/v1/reload", nil)
}
