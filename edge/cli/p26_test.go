package cli_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"
	"fencepost/edge/internal/badconfig"

	"github.com/stretchr/testify/require"
)

// P26: with each of the bad files the program ends with exit code 2, says file,
// line, key and a way out, shows no secret, and has made nothing.
func TestP26_ABadFileStartsNothing(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	require.NoError(t, err)
	files := badconfig.Files()
	require.GreaterOrEqual(t, len(files), 300)
	work := make(chan badconfig.File)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			dir, err := os.MkdirTemp("", "fp")
			if err != nil {
				t.Error(err)
			}
			defer os.RemoveAll(dir)
			for f := range work {
				refusesToServe(t, exe, dir, f)
			}
		})
	}
	for _, f := range files {
		work <- f
	}
	close(work)
	all.Wait()
}

func refusesToServe(t *testing.T, exe, dir string, f badconfig.File) {
	path := filepath.Join(dir, "f.toml")
	if err := os.WriteFile(path, []byte(f.Text), 0o600); err != nil {
		t.Error(err)
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a hang guard
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, "serve", "--config", path)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	out, _ := cmd.CombinedOutput()
	text := string(out)
	if code := cmd.ProcessState.ExitCode(); code != api.ExitUsage {
		t.Errorf("%s: exit code %d: %s", f.Name, code, text)
	}
	for _, want := range []string{path + ":" + strconv.Itoa(f.Line) + ":", f.Key, f.Problem, f.Allowed} {
		if !strings.Contains(text, want) {
			t.Errorf("%s: does not say %q: %s", f.Name, want, text)
		}
	}
	if strings.Contains(text, badconfig.Canary) || strings.Contains(text, "goroutine ") {
		t.Errorf("%s: shows too much: %s", f.Name, text)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%s: something was made: %v %v", f.Name, left, err)
	}
}

// T25: the bad files are reloaded one after the other while events come: each is
// refused, and no event is lost or delivered otherwise than before.
func TestT25_BadReloadsUnderLoad(t *testing.T) {
	t.Parallel()
	const good = "[[handler]]\nname = \"one\"\nkind = \"log\"\nconcurrency = 4\n[[route]]\nname = \"all\"\nhandler = \"one\"\n"
	s := newSite(t, good)
	p := s.start(t)
	client, err := api.Dial(t.Context(), s.path("db.sock"))
	require.NoError(t, err)
	defer client.Close()
	before, err := client.Handlers(t.Context())
	require.NoError(t, err)

	var sent, refused atomic.Int64
	var ids []string
	var mu sync.Mutex
	stop := make(chan struct{})
	var load sync.WaitGroup
	for w := range 2 {
		load.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				rc, err := client.Send(t.Context(), edge.Event{Source: "/load", Type: "t", Subject: strconv.Itoa(w) + "-" + strconv.Itoa(i%8), Data: []byte("x")})
				if err != nil || len(rc.Deliveries) != 1 {
					t.Errorf("an event was not taken: %v %v", rc, err)
					return
				}
				sent.Add(1)
				mu.Lock()
				ids = append(ids, rc.Deliveries[0].ID)
				mu.Unlock()
			}
		})
	}
	files, met := badconfig.Files(), 0
	for i, f := range files {
		require.NoError(t, os.WriteFile(s.path("fencepost.toml"), []byte(f.Text), 0o600))
		at := sent.Load()
		_, err := client.Reload(t.Context())
		require.ErrorIs(t, err, edge.ErrInvalid, f.Name)
		require.ErrorContains(t, err, "nothing was changed", f.Name)
		refused.Add(1)
		if i%50 == 49 { // and a good one in between, and a signal
			s.configure(t, good)
			_, err = client.Reload(t.Context())
			require.NoError(t, err)
			require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
		}
		// Events come between any two reloads.
		require.Eventually(t, func() bool { return sent.Load() > at }, 30*time.Second, time.Millisecond)
		met++
	}
	close(stop)
	load.Wait()
	require.EqualValues(t, len(files), refused.Load())
	require.Equal(t, len(files), met)
	require.GreaterOrEqual(t, sent.Load(), int64(len(files)))
	for _, id := range ids {
		var d api.DeliveryDetail
		require.Eventually(t, func() bool {
			var err error
			d, err = client.Delivery(t.Context(), id)
			return err == nil && d.Delivery.State.Final()
		}, 30*time.Second, time.Millisecond, id)
		require.Equal(t, edge.Succeeded, d.Delivery.State)
		require.Len(t, d.Executions, 1)
		require.True(t, strings.HasPrefix(d.Delivery.Target, "one:"), d.Delivery.Target)
	}
	after, err := client.Handlers(t.Context())
	require.NoError(t, err)
	require.Equal(t, before[0].Revision, after[0].Revision)
	require.Len(t, after, 1)
	found, err := client.Check(t.Context(), true)
	require.NoError(t, err)
	require.Empty(t, found)
	counters, err := client.Counters(t.Context())
	require.NoError(t, err)
	require.Equal(t, sent.Load(), counters["state.succeeded"], "%v", counters)
	require.NotContains(t, p.log.String(), badconfig.Canary)
	t.Logf("%d reloads refused, %d events taken and delivered", refused.Load(), sent.Load())
	s.configure(t, good)
	require.Zero(t, p.stop(t))
}
