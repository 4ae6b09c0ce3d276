package config_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/config"
)

func readExample(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(exampleFile)
	require.NoError(t, err)
	return string(b)
}

func TestEverySettingIsRead(t *testing.T) {
	t.Parallel()
	c := mustParse(t, `
[node]
data = "/var/lib/x.db"
durability = "normal"
on_loss = "refuse"
workers = 3
lease_s = 30
shutdown_grace_s = 0
log_level = "warn"
log_format = "json"
allow_private = false
allow_addresses = ["127.0.0.1", "::ffff:127.0.0.2", "fe80::/10"]

[http]
listen = "[::1]:0"
allowed_hosts = ["Pi.example", "192.0.2.1"]
max_body_bytes = 2048
`)
	require.Equal(t, config.Node{
		Data: "/var/lib/x.db", Durability: config.Normal, OnLoss: config.LossRefuse, Workers: 3, Lease: 30 * time.Second, ShutdownGrace: 0,
		LogLevel: slog.LevelWarn, LogFormat: config.LogJSON,
		AllowAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("127.0.0.2/32"), netip.MustParsePrefix("fe80::/10")},
	}, c.Node)
	require.Equal(t, config.HTTP{
		Listen: "[::1]:0", AllowedHosts: []string{"pi.example", "192.0.2.1"}, MaxBodyBytes: 2048,
		TokenFile: "/var/lib/x.db.token", Socket: "/var/lib/x.db.sock",
	}, c.HTTP)

	c = mustParse(t, "[http]\nlisten = \"\"\nsocket = \"\"\ntoken_file = \"t\"\n")
	require.Equal(t, config.HTTP{AllowedHosts: []string{}, MaxBodyBytes: 1 << 20, TokenFile: "t"}, c.HTTP)
}

func TestDefaultsOfEachKind(t *testing.T) {
	t.Parallel()
	c := mustParse(t, w+strings.Replace(cmd, `"h"`, `"c"`, 1)+strings.Replace(l, `"h"`, `"l"`, 1))
	require.Equal(t, []config.Handler{
		{
			Name: "h", Kind: config.KindWebhook, Effect: edge.Idempotent, Slots: 1, Concurrency: 16, Timeout: 20 * time.Second, MaxLosses: 10,
			Retry:   edge.RetryPolicy{Schedule: edge.WebhookSchedule, GiveUpAfter: 24 * time.Hour},
			Breaker: edge.Breaker{Failures: 5, GateOffAfter: 120 * time.Hour},
			Webhook: &config.Webhook{URL: "http://a.example/", Secrets: []string{}, Headers: map[string]string{}, PermanentStatus: []int{}, AllowPrivate: true, AllowAddresses: []netip.Prefix{}},
			Line:    1,
		},
		{
			Name: "c", Kind: config.KindCommand, Effect: edge.Once, Slots: 1, Concurrency: runtime.NumCPU(), Timeout: 5 * time.Minute, MaxLosses: 10,
			Retry:   edge.RetryPolicy{Base: time.Second, Max: time.Minute, MaxAttempts: 5},
			Command: &config.Command{Argv: []string{"/bin/true"}, Env: map[string]string{}, SuccessExit: []int{0}, RetryExit: []int{75}},
			Line:    5,
		},
		{
			Name: "l", Kind: config.KindLog, Effect: edge.Idempotent, Slots: 1, Concurrency: 16, Timeout: 5 * time.Second, MaxLosses: 10,
			Retry: edge.RetryPolicy{Base: time.Second, Max: time.Minute, MaxAttempts: 5},
			Line:  9,
		},
	}, c.Handlers)
}

func TestHandlerSettings(t *testing.T) {
	t.Parallel()
	c := mustParse(t, `
[[handler]]
name = "hook-1.a_b"
kind = "webhook"
url = "https://user.example:8443/x?y=1"
secrets = ["env:NEW", "file:/etc/old"]
effect = "once"
ordering = "none"
concurrency = 2
timeout_s = 7
max_attempts = 9
give_up_after_h = 2
retry_schedule_s = [1, 60]
max_losses = 3
permanent_status = [404, 422]
success_409 = true
allow_addresses = ["127.0.0.0/8"]
[handler.headers]
x-plain = "a b"
Authorization = "file:/run/auth"

[[handler]]
name = "cmd"
kind = "command"
argv = ["sh", "-c", "line one\nline two"]
dir = "/tmp"
env = { A = "1", B_TOKEN = "env:B" }
success_exit = []
retry_exit = []
effect = "idempotent"
on_failure = "halt"
retry_base_s = 120
`)
	require.Equal(t, config.Handler{
		Name: "hook-1.a_b", Kind: config.KindWebhook, Effect: edge.Once, Slots: 4, Concurrency: 2, Timeout: 7 * time.Second, MaxLosses: 3,
		Retry:   edge.RetryPolicy{Schedule: []time.Duration{time.Second, time.Minute}, MaxAttempts: 9, GiveUpAfter: 2 * time.Hour},
		Breaker: edge.Breaker{Failures: 5, GateOffAfter: 120 * time.Hour},
		Webhook: &config.Webhook{
			URL: "https://user.example:8443/x?y=1", Secrets: []string{"env:NEW", "file:/etc/old"},
			Headers:         map[string]string{"X-Plain": "a b", "Authorization": "file:/run/auth"},
			PermanentStatus: []int{404, 422}, Success409: true, AllowPrivate: true, AllowAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		},
		Line: 2,
	}, c.Handlers[0])
	require.Equal(t, config.Handler{
		Name: "cmd", Kind: config.KindCommand, Effect: edge.Idempotent, Slots: 1, Concurrency: runtime.NumCPU(), Timeout: 5 * time.Minute,
		Halt: true, MaxLosses: 10, Retry: edge.RetryPolicy{Base: 2 * time.Minute, Max: 2 * time.Minute, MaxAttempts: 5},
		Command: &config.Command{
			Argv: []string{"sh", "-c", "line one\nline two"}, Dir: "/tmp",
			Env:         map[string]string{"A": "1", "B_TOKEN": "env:B"},
			SuccessExit: []int{}, RetryExit: []int{},
		},
		Line: 22,
	}, c.Handlers[1])
}

func TestRetryOfAHandler(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]edge.RetryPolicy{
		w + "retry_schedule_s = []":                                    {Base: time.Second, Max: time.Minute, MaxAttempts: 5},
		w + "retry_max_s = 10":                                         {Base: time.Second, Max: 10 * time.Second, MaxAttempts: 5},
		w + "max_attempts = 3":                                         {Schedule: edge.WebhookSchedule, MaxAttempts: 3, GiveUpAfter: 24 * time.Hour},
		w + "give_up_after_h = 72":                                     {Schedule: edge.WebhookSchedule, GiveUpAfter: 72 * time.Hour},
		w + "effect = \"once\"":                                        {Schedule: edge.WebhookSchedule, MaxAttempts: 16, GiveUpAfter: 24 * time.Hour},
		cmd + "retry_schedule_s = [5]\neffect = \"idempotent\"":        {Schedule: []time.Duration{5 * time.Second}, GiveUpAfter: 24 * time.Hour},
		cmd + "give_up_after_h = 1\nretry_base_s = 2\nretry_max_s = 2": {Base: 2 * time.Second, Max: 2 * time.Second, MaxAttempts: 5, GiveUpAfter: time.Hour},
	} {
		require.Equal(t, want, mustParse(t, text).Handlers[0].Retry, text)
	}
}

func TestEndpointOfAHandler(t *testing.T) {
	t.Parallel()
	type endpoint struct {
		rate    edge.Rate
		breaker edge.Breaker
		uplink  string
	}
	five := edge.Breaker{Failures: 5, GateOffAfter: 120 * time.Hour}
	uplink := "[[uplink]]\nname = \"wan\"\nprobe = \"https://a.example/\"\n"
	for text, want := range map[string]endpoint{
		w + "rate_per_s = 10":                                   {rate: edge.Rate{Interval: 100 * time.Millisecond, Burst: 10}, breaker: five},
		w + "rate_per_s = 0.5":                                  {rate: edge.Rate{Interval: 2 * time.Second, Burst: 1}, breaker: five},
		w + "rate_per_s = 2.5\nrate_burst = 7":                  {rate: edge.Rate{Interval: 400 * time.Millisecond, Burst: 7}, breaker: five},
		w + "rate_per_s = 10000":                                {rate: edge.Rate{Interval: 100 * time.Microsecond, Burst: 10000}, breaker: five},
		w + "rate_per_s = 0.000012\nbreaker_failures = 0":       {rate: edge.Rate{Interval: 83333333333 * time.Microsecond, Burst: 1}},
		w + "breaker_failures = 20\ngate_off_after_h = 0":       {breaker: edge.Breaker{Failures: 20}},
		cmd + "breaker_failures = 3":                            {breaker: edge.Breaker{Failures: 3}},
		uplink + cmd + "uplink = \"wan\"":                       {uplink: "wan"},
		uplink + w + "uplink = \"wan\"\ngate_off_after_h = 1\n": {uplink: "wan", breaker: edge.Breaker{Failures: 5, GateOffAfter: time.Hour}},
	} {
		h := mustParse(t, text).Handlers[0]
		require.Equal(t, want, endpoint{h.Rate, h.Breaker, h.Uplink}, text)
		require.NoError(t, h.Rate.Validate())
	}
	c := mustParse(t, uplink+"interval_s = 60\ntimeout_s = 2\n[[uplink]]\nname = \"lan\"\nprobe = \"[fd00::1]:22\"\n")
	require.Equal(t, []config.Uplink{
		{Name: "wan", Probe: "https://a.example/", Interval: time.Minute, Timeout: 2 * time.Second, Line: 1},
		{Name: "lan", Probe: "[fd00::1]:22", Interval: 15 * time.Second, Timeout: 5 * time.Second, Line: 6},
	}, c.Uplinks)
}

func TestRouteSettings(t *testing.T) {
	t.Parallel()
	c := mustParse(t, r+`
type = "order.*"
source = "/shop/*"
subject = "*-7"
when = "data.amount > 9223372036854775808"
key = "region"
ttl_s = 90
[[route]]
name = "s"
handler = "h"
key = ""
`)
	region, none := "region", ""
	require.Equal(t, []config.Route{
		{Name: "r", Type: "order.*", Source: "/shop/*", Subject: "*-7", When: "data.amount > 9223372036854775808", Handler: "h", Key: &region, TTL: 90 * time.Second, Line: 4},
		{Name: "s", Type: "*", Source: "*", Subject: "*", When: "true", Handler: "h", Key: &none, Line: 14},
	}, c.Routes)
	require.Nil(t, mustParse(t, r).Routes[0].Key)
}

// Other spellings of the same file: lists of inline tables, dotted keys, a byte
// order mark, CRLF.
func TestFormsOfTheFile(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"handler = [{ name = \"h\", kind = \"log\" }]\nnode.workers = 2\n",
		"\xef\xbb\xbfnode = { workers = 2 }\n" + l,
		"[node]\r\nworkers = 2\r\n" + strings.ReplaceAll(l, "\n", "\r\n"),
		"[node]\nworkers = 0x2\n" + l,
		"handler = []\nroute = []\n[node]\nworkers = +2\n",
	} {
		c := mustParse(t, text)
		require.Equal(t, 2, c.Node.Workers)
		for _, h := range c.Handlers {
			require.Equal(t, "h", h.Name)
		}
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "f.toml")
	require.NoError(t, os.WriteFile(path, []byte(r), 0o600))
	c, err := config.Load(path)
	require.NoError(t, err)
	require.Equal(t, path, c.File)
	require.Len(t, c.Routes, 1)

	_, err = config.Load(filepath.Join(dir, "none.toml"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, filepath.Join(dir, "none.toml"))

	_, err = config.Load(dir)
	require.EqualError(t, err, dir+": is not a regular file; name a TOML file")

	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("#", config.MaxFileBytes+100)), 0o600))
	_, err = config.Load(path)
	require.EqualError(t, err, path+": the file is too large; at most 1048576 bytes")
}

// Where the node was started from and where a command is run from must not
// decide which database is meant.
func TestLoad_PathsAreRelativeToTheFile(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	site, deep := filepath.Join(dir, "site"), filepath.Join(dir, "a", "b", "c", "d")
	require.NoError(t, os.MkdirAll(site, 0o700))
	require.NoError(t, os.MkdirAll(deep, 0o700))
	file := filepath.Join(site, "f.toml")
	load := func(name, text string) config.Config {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		c, err := config.Load(name)
		require.NoError(t, err)
		return *c
	}
	for _, from := range []string{site, dir, deep, "/"} {
		t.Chdir(from)
		c := load(file, "[node]\ndata = \"sub/../x.db\"\n")
		require.Equal(t, filepath.Join(site, "x.db"), c.Node.Data, from)
		require.Equal(t, filepath.Join(site, "x.db.token"), c.HTTP.TokenFile, from)
		require.Equal(t, filepath.Join(site, "x.db.sock"), absolute(t, c.HTTP.Socket), from)
		require.LessOrEqual(t, len(c.HTTP.Socket), len(filepath.Join(site, "x.db.sock")), from)

		c = load(file, "[http]\ntoken_file = \"t\"\nsocket = \"s\"\n")
		require.Equal(t, filepath.Join(site, "fencepost.db"), c.Node.Data, from)
		require.Equal(t, filepath.Join(site, "t"), c.HTTP.TokenFile, from)
		require.Equal(t, filepath.Join(site, "s"), absolute(t, c.HTTP.Socket), from)

		c = load(file, "[node]\ndata = \"/x.db\"\n[http]\nsocket = \"\"\n")
		require.Equal(t, "/x.db", c.Node.Data)
		require.Empty(t, c.HTTP.Socket, "none stays none")
	}
	t.Chdir(dir)
	c := load(filepath.Join("site", "f.toml"), "")
	require.Equal(t, filepath.Join(site, "fencepost.db"), c.Node.Data)
	require.Equal(t, filepath.Join("site", "fencepost.db.sock"), c.HTTP.Socket, "the shorter form")

	require.NoError(t, os.Symlink(deep, filepath.Join(dir, "l")))
	t.Chdir(filepath.Join(dir, "l")) // a way up leads elsewhere than it looks
	c = load(file, "")
	require.Equal(t, filepath.Join(site, "fencepost.db.sock"), absolute(t, c.HTTP.Socket))

	// Two spellings of one file are one file.
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "[http]\ntoken_file = %q\n", filepath.Join(site, "fencepost.db")), 0o600))
	_, err = config.Load(file)
	require.ErrorContains(t, err, "belongs to the database")
}

// absolute is path as the operating system finds it from the working directory.
func absolute(t *testing.T, path string) string {
	t.Helper()
	if filepath.IsAbs(path) {
		return path
	}
	here, err := os.Getwd()
	require.NoError(t, err)
	here, err = filepath.EvalSymlinks(here)
	require.NoError(t, err)
	return filepath.Join(here, path)
}

func FuzzParse(f *testing.F) {
	for _, tc := range badFiles {
		if len(tc.text) < 4096 {
			f.Add([]byte(tc.text))
		}
	}
	b, err := os.ReadFile(exampleFile)
	require.NoError(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := config.Parse("fuzz.toml", b)
		if err == nil {
			require.NotNil(t, c)
			return
		}
		require.Nil(t, c)
		var errs config.Errors
		require.ErrorAs(t, err, &errs)
		require.NotEmpty(t, errs)
		for _, f := range errs {
			require.Equal(t, "fuzz.toml", f.File)
			require.True(t, strings.HasPrefix(f.Error(), "fuzz.toml:"))
			require.NotContains(t, f.Error(), "\n")
			require.NotEmpty(t, f.Problem)
		}
	})
}

func TestTheNodesAddressesHoldForEachWebhook(t *testing.T) {
	t.Parallel()
	c := mustParse(t, `
[node]
allow_private = false
allow_addresses = ["127.0.0.0/8"]
[[handler]]
name = "a"
kind = "webhook"
url = "http://a.example/"
[[handler]]
name = "b"
kind = "webhook"
url = "http://b.example/"
allow_addresses = ["::1"]
`)
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	require.False(t, c.Handlers[0].Webhook.AllowPrivate)
	require.Equal(t, []netip.Prefix{loopback}, c.Handlers[0].Webhook.AllowAddresses)
	require.Equal(t, []netip.Prefix{loopback, netip.MustParsePrefix("::1/128")}, c.Handlers[1].Webhook.AllowAddresses)
}
