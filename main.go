// Fencepost takes events, stores them durably and turns each into effects, in
// order and once. Run fencepost --help for its commands.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"fencepost/edge/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(cli.Main(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
