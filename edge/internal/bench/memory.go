package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"fencepost/edge/api"
)

// memory measures a node of its own process on an empty file.
func (b *bench) memory(ctx context.Context) error {
	if peak := peakRSS(); peak > 0 {
		b.r.add("most memory of this process, with all contestants", float64(peak)/(1<<20), "MiB")
	}
	mib, err := b.nodeMemory(ctx, b.file())
	if err == nil && mib > 0 {
		b.r.atMost("memory of an idle node", mib, 24, "MiB")
	}
	return err
}

// nodeMemory is what `serve` holds on a database a moment after it is ready, in
// MiB; 0 when it cannot be told here.
func (b *bench) nodeMemory(ctx context.Context, db string) (float64, error) {
	if b.Program == "" {
		return 0, nil
	}
	dir, err := os.MkdirTemp("", "fpb-*") // short: the path of a socket is limited
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	db, err = filepath.Abs(db)
	if err != nil {
		return 0, err
	}
	file, socket := filepath.Join(dir, "c.toml"), filepath.Join(dir, "s")
	text := fmt.Sprintf("[node]\ndata = %q\n[http]\nlisten = \"\"\nsocket = %q\n", db, socket)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.Program, "serve", "--config", file)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	err = awaitReady(ctx, socket)
	mib := float64(rssOf(cmd.Process.Pid)) / (1 << 20)
	return mib, errors.Join(err, cmd.Process.Signal(syscall.SIGTERM), cmd.Wait())
}

func awaitReady(ctx context.Context, socket string) error {
	for {
		client, err := api.Dial(ctx, socket)
		if err == nil {
			err = client.Ready(ctx)
			client.Close()
		}
		if err == nil {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}
