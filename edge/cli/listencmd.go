package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) listen() *cobra.Command {
	var o ListenOptions
	var delay time.Duration
	c := &cobra.Command{
		Use:   "listen",
		Short: "Receive webhooks and print them, for trying things out",
		Long: "Receive webhooks and print them: whether the signature is right, whether the id was seen\n" +
			"before, whether the fence is stale. Replies as told: also late, badly or not at all. With\n" +
			"--secret, a request without a right signature gets 401, unless --status says otherwise.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Delay, o.JSON = delay, a.json
			err := Listen(cmd.Context(), o, a.Out)
			var address *addressError
			if errors.As(err, &address) {
				return fmt.Errorf("%w; choose another address with --addr", err)
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&o.Addr, "addr", "", "host:port to listen on (default a free port of 127.0.0.1)")
	f.StringArrayVar(&o.Secrets, "secret", nil, "secret that signatures are checked with: env:NAME, file:/path or the secret; may be repeated")
	f.IntVar(&o.Status, "status", 0, "status of the reply (default 200, of failing ones 500, without a right signature 401)")
	f.Var((*spanValue)(&delay), "delay", "time before each reply")
	f.IntVar(&o.Fail, "fail", 0, "let the first N requests fail")
	f.BoolVar(&o.Close, "close", false, "close the connection instead of replying")
	f.StringVar(&o.RetryAfter, "retry-after", "", "Retry-After header of replies that are not 2xx")
	return c
}
