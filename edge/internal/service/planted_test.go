package service_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// plants are what someone may put in place of a file of ours.
var plants = map[string]func(t *testing.T, s *site, path string){
	"symbolic link": func(t *testing.T, s *site, path string) {
		require.NoError(t, os.WriteFile(s.path("victim"), []byte("precious"), 0o600))
		require.NoError(t, os.Symlink(s.path("victim"), path))
	},
	"dangling link": func(t *testing.T, s *site, path string) { require.NoError(t, os.Symlink(s.path("nowhere"), path)) },
	"hard link": func(t *testing.T, s *site, path string) {
		if strings.HasSuffix(path, ".sock") {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			require.NoError(t, err)
			l.SetUnlinkOnClose(false)
			require.NoError(t, l.Close())
			require.NoError(t, os.Chmod(path, 0o600))
		} else {
			require.NoError(t, os.WriteFile(path, []byte("0123456789abcdef0123"), 0o600))
		}
		require.NoError(t, os.Link(path, s.path("other")))
	},
	"FIFO":      func(t *testing.T, _ *site, path string) { require.NoError(t, syscall.Mkfifo(path, 0o600)) },
	"directory": func(t *testing.T, _ *site, path string) { require.NoError(t, os.Mkdir(path, 0o700)) },
}

// reasons are what the refusal says of each.
var reasons = map[string]string{
	"symbolic link": "is a symbolic link|something that is no socket is there \\(a symbolic link\\)",
	"dangling link": "is a symbolic link|something that is no socket is there \\(a symbolic link\\)",
	"hard link":     "names \\(hard links\\)|more than one name \\(hard links\\)",
	"FIFO":          "is not a plain file|is not a regular file|no socket is there \\(a named pipe\\)",
	"directory":     "is not a plain file|is not a regular file|no socket is there \\(a directory\\)",
}

// TestT16_PlantedFilesAreRefused plants each thing in place of each file of a
// node: the start is refused with the path and the reason, and nothing is made,
// changed or removed. There is no pid file, and no log file but standard error.
func TestT16_PlantedFilesAreRefused(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{"", "-wal", "-shm", "-journal", ".lock", ".sock", ".token"} {
		for name, plant := range plants {
			t.Run("d.db"+suffix+" "+name, func(t *testing.T) {
				t.Parallel()
				s := newSite(t, "")
				path := s.path("d.db" + suffix)
				plant(t, s, path)
				before := tree(t, s.dir)
				code, out := s.run("serve")
				require.Equal(t, 2, code, out)
				require.Contains(t, out, path)
				require.Regexp(t, reasons[name], out)
				require.Equal(t, before, tree(t, s.dir))
			})
		}
	}
}

// T16: others cannot be allowed to write where the files are.
func TestT16_AnOpenDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	for _, mode := range []fs.FileMode{0o770, 0o707, 0o777 | fs.ModeSticky} {
		s := newSite(t, "")
		require.NoError(t, os.Chmod(s.dir, mode))
		before := tree(t, s.dir)
		code, out := s.run("serve")
		require.Equal(t, 2, code, out)
		require.Contains(t, out, s.dir)
		require.Contains(t, out, "chmod go-w")
		require.Equal(t, before, tree(t, s.dir))
		require.NoError(t, os.Chmod(s.dir, 0o700))
	}
}

// tree is all that is in a directory: names, kinds, modes, owners, times and
// contents.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) && path != dir { // of a directory of the system
			found[path] += " unreadable"
			return nil
		}
		if err != nil || path == dir {
			return err
		}
		fi, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) { // a temporary one, renamed meanwhile
			return nil
		}
		if err != nil {
			return err
		}
		st := fi.Sys().(*syscall.Stat_t)
		what := fmt.Sprint(fi.Mode(), st.Ino, st.Uid, st.Gid, st.Nlink, fi.ModTime().UnixNano())
		if fi.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil && !errors.Is(err, fs.ErrPermission) {
				return err
			}
			what += string(b)
		}
		found[path] = what
		return nil
	}))
	return found
}

// T17, R97: whatever the umask, all files are for their owner alone: after the
// start, after work, and after the end.
func TestT17_FilesAreForTheirOwnerAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t, "{HTTP}[[handler]]\nname = \"note\"\nkind = \"log\"\n"+route("note", "*"))
	s.umask = "000"
	s.start()
	private := func(when string, least int) {
		found := 0
		for path := range tree(t, s.dir) {
			fi, err := os.Lstat(path)
			if errors.Is(err, fs.ErrNotExist) { // renamed meanwhile
				continue
			}
			require.NoError(t, err)
			require.Zero(t, fi.Mode().Perm()&0o077, "%s: %s has %s", when, path, fi.Mode())
			found++
		}
		require.GreaterOrEqual(t, found, least, when)
	}
	private("after the start", 7) // config, database, log, shared memory, lock, owner's lock, socket, token: at least
	for i := range 10 {
		s.ok("send", "--type", "t", "--subject", fmt.Sprint(i%3), "--data", strings.Repeat("x", 10000))
	}
	private("after work", 7)
	s.ok("check", "--full")
	private("after a check", 7)
	s.stop()
	private("after the end", 4)
	s.start()
	private("after another start", 7)
	require.NoError(t, s.cmd.Process.Kill())
	<-s.done
	private("after a crash", 6)
}
