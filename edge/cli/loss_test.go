package cli_test

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/api"
)

const toLog = "[[handler]]\nname = \"log\"\nkind = \"log\"\n[[route]]\nname = \"all\"\nhandler = \"log\"\n"

// TestP7_LossOfARealNode takes the log of a killed node away. By on_loss it is not
// started, or takes events and delivers none until a person has said so twice.
func TestP7_LossOfARealNode(t *testing.T) {
	t.Parallel()
	s := newSite(t, toLog)
	p := s.start(t)
	for range 3 {
		s.ok(t, "send", "--type", "a.b", "--source", "/x")
	}
	p.kill(t)
	require.NoError(t, os.Remove(s.path("db-wal")))

	text, err := os.ReadFile(s.path("fencepost.toml"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.path("refuse.toml"), append([]byte("[node]\non_loss = \"refuse\"\n"), text[len("[node]\n"):]...), 0o600))
	r := s.runRaw(t, "serve", "--config", s.path("refuse.toml"))
	require.Equal(t, api.ExitStorage, r.code)
	require.Contains(t, r.err, "commits are missing")
	require.Contains(t, r.err, "fencepost accept-loss --reason")
	r = s.run(t, "check")
	require.Equal(t, api.ExitFailed, r.code)
	require.Contains(t, r.out, "side_file: expected commit")

	p = s.start(t)
	rc := decode[api.Receipt](t, s.ok(t, "send", "--type", "a.b", "--source", "/x", "--json"))
	require.Equal(t, edge.Pending, rc.Deliveries[0].State)
	st := decode[map[string]any](t, s.ok(t, "status", "--json"))
	require.Equal(t, "behind", st["hold"].(map[string]any)["kind"])
	require.Equal(t, "killed", st["last_end"])
	require.Contains(t, s.ok(t, "status"), "nothing is delivered: expected commit")
	require.Contains(t, s.ok(t, "explain", rc.Deliveries[0].ID), "The node is on hold since")
	require.Contains(t, p.log.String(), "level=ERROR msg=\"database and side file disagree")

	require.Equal(t, api.ExitConflict, s.run(t, "resume", "--reason", "go").code)
	require.Equal(t, api.ExitUsage, s.run(t, "accept-loss").code)
	require.Contains(t, s.ok(t, "accept-loss", "--reason", "they send again", "--by", "ann"), "by ann")
	require.Contains(t, s.ok(t, "resume", "--reason", "looked", "--by", "bea"), "by bea")
	require.Equal(t, api.ExitConflict, s.run(t, "resume", "--reason", "go").code)
	require.NotContains(t, s.ok(t, "status"), "on hold")
	require.Contains(t, s.ok(t, "check", "--full"), "ok")
	p.stop(t)
}

// TestAcceptLoss_WhileNoNodeRuns: how a node with on_loss = "refuse" starts again.
func TestAcceptLoss_WhileNoNodeRuns(t *testing.T) {
	t.Parallel()
	s := newSite(t, toLog)
	p := s.start(t)
	s.ok(t, "send", "--type", "a.b", "--source", "/x")
	p.kill(t)
	require.NoError(t, os.Remove(s.path("db.mark")))
	text, err := os.ReadFile(s.path("fencepost.toml"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.path("fencepost.toml"), append([]byte("[node]\non_loss = \"refuse\"\n"), text[len("[node]\n"):]...), 0o600))
	require.Equal(t, api.ExitStorage, s.run(t, "serve").code)
	require.Equal(t, api.ExitStorage, s.run(t, "serve").code, "trying again decides nothing")
	require.Contains(t, s.ok(t, "accept-loss", "--reason", "moved by hand"), "unmarked")
	require.Contains(t, s.ok(t, "resume", "--reason", "looked"), "the hold has ended")
	p = s.start(t)
	require.NotContains(t, s.ok(t, "status"), "on hold")
	p.stop(t)
}

// TestResume_DecidesNoLossByItself: the log that was missing is put back after a
// resume that was refused, and nothing was lost.
func TestResume_DecidesNoLossByItself(t *testing.T) {
	t.Parallel()
	s := newSite(t, toLog)
	p := s.start(t)
	s.ok(t, "send", "--type", "a.b", "--source", "/x")
	p.kill(t)
	require.NoError(t, os.Rename(s.path("db-wal"), s.path("mislaid")))
	before := s.sums(t)
	r := s.run(t, "resume", "--reason", "go")
	require.NotEqual(t, api.ExitOK, r.code)
	require.Contains(t, r.err, "fencepost accept-loss --reason")
	require.Equal(t, before, s.sums(t), "what is refused changes nothing")
	require.NoError(t, os.Rename(s.path("mislaid"), s.path("db-wal")))
	p = s.start(t)
	require.NotContains(t, s.ok(t, "status"), "on hold")
	require.Contains(t, s.ok(t, "events"), "a.b")
	p.stop(t)
}

// TestRefuse_NamesWhatHelps: of a copy nothing is lost, so there is no loss to accept.
func TestRefuse_NamesWhatHelps(t *testing.T) {
	t.Parallel()
	s := newSite(t, toLog)
	p := s.start(t)
	s.ok(t, "send", "--type", "a.b", "--source", "/x")
	p.stop(t)
	data, err := os.ReadFile(s.path("db"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.path("copy"), data, 0o600))
	require.NoError(t, os.Rename(s.path("copy"), s.path("db")))
	text, err := os.ReadFile(s.path("fencepost.toml"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.path("fencepost.toml"), append([]byte("[node]\non_loss = \"refuse\"\n"), text[len("[node]\n"):]...), 0o600))
	r := s.run(t, "serve")
	require.Equal(t, api.ExitStorage, r.code)
	require.Contains(t, r.err, "fencepost resume --reason TEXT")
	require.NotContains(t, r.err, "accept-loss")
	require.Contains(t, s.ok(t, "resume", "--reason", "the disk was copied"), "the hold has ended")
	p = s.start(t)
	require.NotContains(t, s.ok(t, "status"), "on hold")
	p.stop(t)
}

// TestBackupAndRestore_OfARealNode.
func TestBackupAndRestore_OfARealNode(t *testing.T) {
	t.Parallel()
	s := newSite(t, toLog)
	p := s.start(t)
	s.ok(t, "send", "--type", "a.b", "--source", "/x", "--data", "kept")
	require.Contains(t, s.ok(t, "backup", s.path("copy")), "checked")
	require.Equal(t, api.ExitConflict, s.run(t, "backup", s.path("copy")).code)
	require.Equal(t, api.ExitUsage, s.run(t, "backup", s.path("db-wal")).code)
	s.ok(t, "send", "--type", "a.b", "--source", "/x", "--data", "lost")
	r := s.run(t, "restore", s.path("copy"), "--reason", "try")
	require.Equal(t, api.ExitConflict, r.code)
	require.Contains(t, r.err, "a restore needs the node stopped")
	p.stop(t)
	require.Contains(t, s.ok(t, "restore", s.path("copy"), "--reason", "try"), "kept")
	p = s.start(t)
	require.Contains(t, s.ok(t, "status"), "was restored")
	require.Contains(t, p.log.String(), "level=WARN msg=\"on hold: events are taken, nothing is delivered", "a hold that was there before this start")
	s.ok(t, "resume", "--reason", "looked")
	require.Contains(t, s.ok(t, "check", "--full"), "ok")
	p.stop(t)
	require.FileExists(t, s.path("db.replaced-1"))
}

// TestP8_ALiveFileThatIsTakenAwayEndsAnIdleNode: nothing is sent and nothing is
// due. The node looks by itself, says what is gone, and ends with exit code 6.
func TestP8_ALiveFileThatIsTakenAwayEndsAnIdleNode(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(s *site) error{
		"deleted": func(s *site) error { return os.Remove(s.path("db")) },
		"renamed": func(s *site) error { return os.Rename(s.path("db"), s.path("db2")) },
		"replaced": func(s *site) error {
			data, err := os.ReadFile(s.path("db"))
			return errors.Join(err, os.WriteFile(s.path("db2"), data, 0o600), os.Rename(s.path("db2"), s.path("db")))
		},
		"log deleted": func(s *site) error { return os.Remove(s.path("db-wal")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, toLog)
			p := s.start(t)
			rc := decode[api.Receipt](t, s.ok(t, "send", "--type", "a.b", "--source", "/x", "--json"))
			s.await(t, rc.Deliveries[0].ID, edge.Succeeded)
			require.NoError(t, harm(s))
			var exit *exec.ExitError
			require.ErrorAs(t, p.cmd.Wait(), &exit)
			require.Equal(t, api.ExitStorage, exit.ExitCode())
			require.Contains(t, p.log.String(), "while it was in use")
		})
	}
}
