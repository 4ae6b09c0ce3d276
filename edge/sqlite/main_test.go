package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

// childRole, set in the environment, makes the test binary another process of
// the test that started it.
const childRole = "FENCEPOST_SQLITE_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childRole) {
	case "":
		os.Exit(m.Run())
	case "create":
		childCreate(os.Args[1])
	case "probe":
		childProbe(os.Args[1])
	case "upgrade":
		childUpgrade(os.Args[1], os.Args[2])
	case "restore":
		childRestore(os.Args[1], os.Args[2], os.Args[3])
	case "midnight":
		childMidnight(os.Args[1], os.Args[2])
	case "store":
		childStore(os.Args[1], os.Args[2] == "share")
	}
}

// childCreate opens fresh databases until it is killed.
func childCreate(dir string) {
	for n := 0; ; n++ {
		s, err := sqlite.Open(filepath.Join(dir, strconv.Itoa(n)+".db"), sqlite.Options{})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		s.Close()
		if n == 0 {
			os.Stdout.WriteString("begun\n")
		}
	}
}

// order is what a parent asks of its child, report what the child answers.
type order struct {
	Do         string
	Limit      int
	Settlement edge.Settlement
	Tokens     []edge.Token
	Regs       []edge.Registration
	Subs       []edge.Submission
	LeaseMS    int64
}

type report struct {
	Owner    string
	Err      string
	Lost     bool // the error wraps ErrLeaseLost
	Conflict bool
	Claims   []edge.Claimed
	Settled  edge.Settled
	Renewed  edge.Renewed
}

// childStore opens one database and carries out orders from its standard input.
func childStore(path string, share bool) {
	out := json.NewEncoder(os.Stdout)
	s, err := sqlite.Open(path, sqlite.Options{Share: share})
	if err != nil {
		_ = out.Encode(report{Err: err.Error(), Conflict: errors.Is(err, edge.ErrConflict)})
		return
	}
	_ = out.Encode(report{Owner: s.Owner()})
	in := json.NewDecoder(os.Stdin)
	for {
		var o order
		if err := in.Decode(&o); errors.Is(err, io.EOF) {
			s.Close()
			return
		} else if err != nil {
			panic(err)
		}
		_ = out.Encode(carryOut(s, o))
	}
}

func carryOut(s *sqlite.Store, o order) (r report) {
	ctx := context.Background()
	var err error
	switch o.Do {
	case "register":
		err = s.Register(ctx, o.Regs, 64, o.LeaseMS)
	case "accept":
		_, err = s.Accept(ctx, o.Subs)
	case "claim":
		r.Claims, err = s.Claim(ctx, o.Limit)
	case "settle":
		r.Settled, err = s.Settle(ctx, o.Settlement)
	case "renew":
		r.Renewed, err = s.Renew(ctx, o.Tokens)
	}
	if err != nil {
		r.Err, r.Lost, r.Conflict = err.Error(), errors.Is(err, edge.ErrLeaseLost), errors.Is(err, edge.ErrConflict)
	}
	return r
}

// child is another process with a store open on a file.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    *json.Encoder
	stdin io.Closer
	out   *json.Decoder
	Owner string
}

func childCommand(t *testing.T, role string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), childRole+"="+role)
	cmd.Stderr = os.Stderr
	return cmd
}

// start runs a process that opens path, and returns its first report.
func start(t *testing.T, path string, share bool) (*child, report) {
	t.Helper()
	mode := "alone"
	if share {
		mode = "share"
	}
	c := &child{t: t, cmd: childCommand(t, "store", path, mode)}
	in, err := c.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	c.stdin, c.in, c.out = in, json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out))
	t.Cleanup(c.kill)
	r := c.report()
	c.Owner = r.Owner
	return c, r
}

// opened starts a process whose Open must succeed.
func opened(t *testing.T, path string, share bool) *child {
	t.Helper()
	c, r := start(t, path, share)
	require.Empty(t, r.Err)
	return c
}

func (c *child) report() report {
	c.t.Helper()
	var r report
	require.NoError(c.t, c.out.Decode(&r))
	return r
}

func (c *child) do(o order) report {
	c.t.Helper()
	require.NoError(c.t, c.in.Encode(o))
	return c.report()
}

func (c *child) must(o order) report {
	c.t.Helper()
	r := c.do(o)
	require.Empty(c.t, r.Err)
	return r
}

// kill ends the process as a power cut does: with no chance to clean up.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// close lets the process end in good order.
func (c *child) close() {
	c.t.Helper()
	require.NoError(c.t, c.stdin.Close())
	require.NoError(c.t, c.cmd.Wait())
}

// raw opens a connection of another program to the file: no busy time, no
// settings of ours, no checks.
func raw(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=rw&_pragma=ignore_check_constraints(1)&_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	return db
}

func exe(t testing.TB, db *sql.DB, text string, args ...any) {
	t.Helper()
	_, err := db.Exec(text, args...)
	require.NoError(t, err, text)
}

func number(t testing.TB, db *sql.DB, query string, args ...any) int64 {
	t.Helper()
	var n sql.NullInt64
	require.NoError(t, db.QueryRow(query, args...).Scan(&n), query)
	return n.Int64
}

// openAt opens a store at path with a clock moved by hand, and ends the test
// with the full check.
func openAt(t testing.TB, path string, o sqlite.Options) *sqlite.Store {
	t.Helper()
	if o.Clock == nil {
		o.Clock = edge.ManualClock(1_700_000_000_000)
	}
	s, err := sqlite.Open(path, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		if vs, err := s.Check(context.Background(), true); !errors.Is(err, edge.ErrClosed) {
			require.NoError(t, err)
			require.Empty(t, vs)
		}
		require.NoError(t, s.Close())
	})
	return s
}

func dbPath(t testing.TB) string { return filepath.Join(t.TempDir(), "test.db") }
