package sqlite_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/sqlite"
)

// fresh makes a database, closed in good order, and returns its path.
func fresh(t testing.TB) string {
	t.Helper()
	path := dbPath(t)
	s, err := sqlite.Open(path, sqlite.Options{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	return path
}

// crashed makes a database whose log holds statements that were not checkpointed,
// as it is after kill -9. It is a copy of a file that is in use.
func crashed(t *testing.T, statements ...string) string {
	t.Helper()
	live := fresh(t)
	db := raw(t, live)
	exe(t, db, "PRAGMA wal_autocheckpoint=0")
	for _, text := range statements {
		exe(t, db, text)
	}
	path := dbPath(t)
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(live + suffix)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path+suffix, data, 0o600))
	}
	return path
}

// snapshot is the content of all files of a directory, but for lock files and the
// shared memory, which holds nothing.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	files := map[string]string{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if strings.HasSuffix(path, "-shm") {
			continue
		}
		if target, err := os.Readlink(path); err == nil {
			files[e.Name()] = "-> " + target
			continue
		}
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		files[e.Name()] = fmt.Sprintf("%x", sha256.Sum256(data))
	}
	return files
}

// TestP9_WhatIsNotOursIsRefused plants each kind of file in place of the
// database: it is refused with a reason and a way out, and nothing is touched.
func TestP9_WhatIsNotOursIsRefused(t *testing.T) {
	t.Parallel()
	pragma := func(text string) func(*testing.T) string {
		return func(t *testing.T) string {
			path := fresh(t)
			db := raw(t, path)
			exe(t, db, text)
			require.NoError(t, db.Close())
			return path
		}
	}
	bytes := func(data []byte) func(*testing.T) string {
		return func(t *testing.T) string {
			path := dbPath(t)
			require.NoError(t, os.WriteFile(path, data, 0o600))
			return path
		}
	}
	random := make([]byte, 4096)
	_, _ = rand.Read(random)
	cases := map[string]struct {
		plant func(*testing.T) string
		says  string
	}{
		"newer schema":        {pragma(fmt.Sprintf("PRAGMA user_version=%d", sqlite.SchemaVersion()+1)), fmt.Sprintf("has schema %d, this build knows up to %d; use a newer fencepost", sqlite.SchemaVersion()+1, sqlite.SchemaVersion())},
		"no schema":           {pragma("PRAGMA user_version=0"), "has no schema"},
		"another program's":   {pragma("PRAGMA application_id=7"), "database of another program (application id 7)"},
		"random bytes":        {bytes(random), "is not a SQLite database"},
		"text":                {bytes([]byte("once upon a time there was a queue\n")), "is not a SQLite database"},
		"zero length":         {bytes(nil), "is empty"},
		"SQLite header alone": {bytes([]byte("SQLite format 3\x00")), "is not a SQLite database"},
		"truncated": {func(t *testing.T) string {
			path := fresh(t)
			fi, err := os.Stat(path)
			require.NoError(t, err)
			require.NoError(t, os.Truncate(path, fi.Size()/2))
			return path
		}, "is not a SQLite database"},
		"symbolic link": {func(t *testing.T) string {
			path := dbPath(t)
			require.NoError(t, os.Symlink(fresh(t), path))
			return path
		}, "is a symbolic link; name the file itself"},
		"dangling symbolic link": {func(t *testing.T) string {
			path := dbPath(t)
			require.NoError(t, os.Symlink(filepath.Join(t.TempDir(), "nothing"), path))
			return path
		}, "is a symbolic link; name the file itself"},
		"hard link": {func(t *testing.T) string {
			path := fresh(t)
			require.NoError(t, os.Link(path, path+".other"))
			return path
		}, "has 2 names (hard links)"},
		"group-readable": {func(t *testing.T) string {
			path := fresh(t)
			require.NoError(t, os.Chmod(path, 0o640))
			return path
		}, "(mode 0640); run: chmod 600"},
		"world-readable": {func(t *testing.T) string {
			path := fresh(t)
			require.NoError(t, os.Chmod(path, 0o604))
			return path
		}, "(mode 0604); run: chmod 600"},
		"a log without its database": {func(t *testing.T) string {
			path := crashed(t, "INSERT INTO settings VALUES ('lost', 'x')")
			require.NoError(t, os.Remove(path))
			return path
		}, "-wal is there, but"},
		"newer schema in the log": {func(t *testing.T) string {
			return crashed(t, fmt.Sprintf("PRAGMA user_version=%d", sqlite.SchemaVersion()+1))
		}, "use a newer fencepost"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := c.plant(t)
			before := snapshot(t, filepath.Dir(path))
			s, err := sqlite.Open(path, sqlite.Options{})
			require.ErrorIs(t, err, edge.ErrInvalid)
			require.Nil(t, s)
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, path, "the error names the file")
			require.Equal(t, before, snapshot(t, filepath.Dir(path)), "nothing was touched or left behind")
		})
	}
}

// TestP9_AnothersFileIsRefused needs a file of another user, which only root can
// make; anyone else can look at one of root's.
func TestP9_AnothersFileIsRefused(t *testing.T) {
	t.Parallel()
	path := fresh(t)
	if os.Geteuid() != 0 {
		path = "/etc/passwd"
	} else {
		require.NoError(t, os.Chown(path, 12345, -1))
	}
	_, err := sqlite.Open(path, sqlite.Options{})
	require.ErrorIs(t, err, edge.ErrInvalid)
	if os.Geteuid() == 0 {
		require.ErrorContains(t, err, "belongs to user 12345, this process runs as 0")
	}
}

// TestOpenTakesNoPlantedLock refuses a link in place of the lock file, which a
// process could be made to overwrite something by.
func TestOpenTakesNoPlantedLock(t *testing.T) {
	t.Parallel()
	path := fresh(t)
	victim := filepath.Join(t.TempDir(), "victim")
	require.NoError(t, os.WriteFile(victim, []byte("precious"), 0o600))
	require.NoError(t, os.Remove(path+".lock"))
	require.NoError(t, os.Symlink(victim, path+".lock"))
	_, err := sqlite.Open(path, sqlite.Options{})
	require.ErrorContains(t, err, "is a symbolic link")
	data, err := os.ReadFile(victim)
	require.NoError(t, err)
	require.Equal(t, "precious", string(data))
}

func TestNetworkFileSystems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fs    string
		magic int64
		name  string
	}{
		{"nfs", 0x6969, "NFS"},
		{"smb", 0x517b, "SMB"},
		{"cifs", 0xff534d42, "SMB"},
		{"smb2", 0xfe534d42, "SMB"},
		{"9p", 0x01021997, "9p"},
		{"ext4", 0xef53, ""},
		{"tmpfs", 0x01021994, ""},
		{"btrfs", 0x9123683e, ""},
		{"xfs", 0x58465342, ""},
		{"overlay", 0x794c7630, ""},
		{"f2fs", 0xf2f52010, ""},
		{"zfs", 0x2fc12fc1, ""},
	} {
		// On 32-bit systems the type of the field makes large values negative.
		for _, magic := range []int64{c.magic, int64(int32(uint32(c.magic)))} {
			name, refused := sqlite.NetworkFSForTest(magic)
			require.Equal(t, c.name, name, c.fs)
			require.Equal(t, c.name != "", refused, c.fs)
		}
	}
}

// TestFilesArePrivate looks at every file of an open database.
func TestFilesArePrivate(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	s := openAt(t, path, sqlite.Options{})
	register(t, s, edge.Registration{Name: "hook"})
	_, err := s.Accept(t.Context(), []edge.Submission{submission("1", "bob", "hook")})
	require.NoError(t, err)
	for _, suffix := range []string{"", "-wal", "-shm", ".lock", ".mark", ".owner-" + s.Owner()} {
		fi, err := os.Stat(path + suffix)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), fi.Mode().Perm(), suffix)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 6, "nothing else is there")
}

// TestOpeningSideBySideKeepsTheUmask: the file mode mask is the process's own, and
// opening must give it back whatever happens at the same time.
func TestOpeningSideBySideKeepsTheUmask(t *testing.T) {
	if os.Getenv("FENCEPOST_UMASK_TEST") == "" {
		// The mask of this process is changed by the tests beside this one.
		cmd := exec.Command(os.Args[0], "-test.run=^TestOpeningSideBySideKeepsTheUmask$")
		cmd.Env = append(os.Environ(), "FENCEPOST_UMASK_TEST=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return
	}
	before := umask(t)
	require.NotEqual(t, "0077", before)
	for range 3 {
		var wg sync.WaitGroup
		for range 8 {
			path := dbPath(t)
			wg.Go(func() {
				s, err := sqlite.Open(path, sqlite.Options{})
				if err == nil {
					s.Close()
				}
			})
		}
		wg.Wait()
		require.Equal(t, before, umask(t))
	}
}

func umask(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(data), "\nUmask:\t")
	require.True(t, ok)
	line, _, _ := strings.Cut(rest, "\n")
	return line
}

// TestKillDuringCreation kills a process that creates databases, at many moments.
// What has the real name is whole, always.
func TestKillDuringCreation(t *testing.T) {
	t.Parallel()
	looked, cut := 0, 0
	for range 12 {
		dir := t.TempDir()
		cmd := childCommand(t, "create", dir)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		for range mathrand.IntN(3000) {
			_, _ = os.Stat(dir)
		}
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			if strings.Contains(e.Name(), ".db.new-") {
				cut++
			}
			if filepath.Ext(e.Name()) != ".db" {
				continue
			}
			looked++
			fi, err := e.Info()
			require.NoError(t, err)
			require.NotZero(t, fi.Size())
			openAt(t, filepath.Join(dir, e.Name()), sqlite.Options{})
		}
		// The one that was being made is made anew.
		openAt(t, filepath.Join(dir, strconv.Itoa(len(entries))+".db"), sqlite.Options{})
	}
	t.Logf("%d databases, %d cut in the making", looked, cut)
	require.Positive(t, looked)
}

// TestCutCreationIsCleared: what a cut creation left does not stay for ever.
func TestCutCreationIsCleared(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	left := path + ".new-12345"
	for _, suffix := range []string{"", "-wal", "-shm"} {
		require.NoError(t, os.WriteFile(left+suffix, []byte("half"), 0o600))
	}
	openAt(t, path, sqlite.Options{})
	found, err := filepath.Glob(path + ".new-*")
	require.NoError(t, err)
	require.Empty(t, found)
}

// TestOpenAfterACutCheckpoint opens what kill -9 in the middle of a checkpoint
// leaves: the first page is new and names pages that are not in the file yet.
// The log has them.
func TestOpenAfterACutCheckpoint(t *testing.T) {
	t.Parallel()
	path := crashed(t, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
	                    INSERT INTO settings SELECT 'filler' || i, hex(zeroblob(1000)) FROM n`)
	whole := filepath.Join(t.TempDir(), "whole.db")
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(path + suffix)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(whole+suffix, data, 0o600))
	}
	db := raw(t, whole)
	exe(t, db, "PRAGMA wal_checkpoint(TRUNCATE)")
	page, err := os.ReadFile(whole)
	require.NoError(t, err)
	half, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = half.WriteAt(page[:4096], 0)
	require.NoError(t, err)
	require.NoError(t, half.Close())

	openAt(t, path, sqlite.Options{})
	require.EqualValues(t, 200, number(t, raw(t, path), "SELECT count(*) FROM settings WHERE name LIKE 'filler%'"))
}

// TestEverySettingHolds reads the settings of every connection of an open store.
func TestEverySettingHolds(t *testing.T) {
	t.Parallel()
	for _, d := range []sqlite.Durability{sqlite.DurabilityFull, sqlite.DurabilityNormal} {
		s := openAt(t, dbPath(t), sqlite.Options{Durability: d})
		n, err := s.VerifyAllForTest(t.Context())
		require.NoError(t, err)
		require.Equal(t, 3, n, "the writer and two readers")
	}
}

// TestEveryWrongSettingIsFound sets each pragma wrong, one at a time, on a
// connection like the store's own: the verification names it.
func TestEveryWrongSettingIsFound(t *testing.T) {
	t.Parallel()
	wrong := map[string]string{
		"busy_timeout": "0", "synchronous": "0", "foreign_keys": "0", "trusted_schema": "1", "cell_size_check": "0",
		"cache_size": "-2000", "mmap_size": "1048576", "temp_store": "1", "journal_size_limit": "-1",
		"wal_autocheckpoint": "1000", "query_only": "0",
	}
	for _, readOnly := range []bool{false, true} {
		for pragma := range sqlite.SettingsForTest(sqlite.Options{}, readOnly) {
			require.Contains(t, wrong, pragma, "this test does not know how to set it wrong")
			verdict := verdictAfter(t, fresh(t), readOnly, fmt.Sprintf("PRAGMA %s=%s", pragma, wrong[pragma]))
			require.ErrorContains(t, verdict, pragma+" is "+wrong[pragma]+" after opening")
		}
	}
	t.Run("journal_mode", func(t *testing.T) {
		require.ErrorContains(t, verdictAfter(t, fresh(t), false, "PRAGMA journal_mode=DELETE"), "journal_mode is delete")
	})
	t.Run("page_size", func(t *testing.T) {
		path := fresh(t)
		db := raw(t, path)
		for _, text := range []string{"PRAGMA journal_mode=DELETE", "PRAGMA page_size=8192", "VACUUM", "PRAGMA journal_mode=WAL"} {
			exe(t, db, text)
		}
		require.NoError(t, db.Close())
		require.ErrorContains(t, verdictAfter(t, path, false, ""), "page_size is 8192")
		_, err := sqlite.Open(path, sqlite.Options{})
		require.ErrorContains(t, err, "page_size is 8192 after opening, must be 4096")
	})
}

// verdictAfter opens a connection as the store does, which must be right, runs
// text on it, and verifies it.
func verdictAfter(t *testing.T, path string, readOnly bool, text string) error {
	t.Helper()
	db, err := sqlx.Open("sqlite", sqlite.DSNForTest(path, sqlite.Options{}, readOnly))
	require.NoError(t, err)
	defer db.Close()
	conn, err := db.Connx(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	if text != "" {
		require.NoError(t, sqlite.VerifyForTest(t.Context(), conn, sqlite.Options{}, readOnly))
		_, err = conn.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	return sqlite.VerifyForTest(t.Context(), conn, sqlite.Options{}, readOnly)
}

// TestSwitchesThatNoPragmaTells tries the settings that cannot be read back.
func TestSwitchesThatNoPragmaTells(t *testing.T) {
	t.Parallel()
	s := openAt(t, dbPath(t), sqlite.Options{})
	ctx := t.Context()
	require.ErrorContains(t, s.OnWriterForTest(ctx, `SELECT "no_such_column"`), "no such column", "a quoted name is never text")
	require.NoError(t, s.OnWriterForTest(ctx, `PRAGMA writable_schema=ON`))
	require.ErrorContains(t, s.OnWriterForTest(ctx, `DELETE FROM sqlite_schema`), "may not be modified", "defensive")
	var n int
	require.Error(t, s.ReadForTest(ctx, &n, `UPDATE settings SET value = 'x' RETURNING 1`), "a reader cannot write")
	require.Equal(t, s.Node(), readText(t, s, `SELECT value FROM settings WHERE name = 'node'`))
}

func readText(t *testing.T, s *sqlite.Store, query string) string {
	t.Helper()
	var text string
	require.NoError(t, s.ReadForTest(context.Background(), &text, query))
	return text
}

// TestLibraryVersions holds the library at or above the version whose faults are
// known, and its run-time support at exactly the version that it asks for.
func TestLibraryVersions(t *testing.T) {
	t.Parallel()
	s := openAt(t, dbPath(t), sqlite.Options{})
	version := readText(t, s, `SELECT sqlite_version()`)
	require.GreaterOrEqual(t, versionNumber(t, version), versionNumber(t, "3.54.1"), version)

	dir := goList(t, "{{.Dir}}", "modernc.org/sqlite")
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(mod), "modernc.org/libc ")
	require.True(t, ok)
	asked := strings.Fields(rest)[0]
	require.Equal(t, asked, goList(t, "{{.Version}}", "modernc.org/libc"), "go.mod must name the libc that modernc.org/sqlite was made with")
}

func versionNumber(t *testing.T, version string) int {
	t.Helper()
	n := 0
	parts := strings.Split(version, ".")
	require.Len(t, parts, 3)
	for _, part := range parts {
		i, err := strconv.Atoi(part)
		require.NoError(t, err)
		n = n*1000 + i
	}
	return n
}

func goList(t *testing.T, format, module string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", format, module).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}
