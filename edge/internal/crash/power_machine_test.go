//go:build power && linux && amd64

package crash_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// machine is a virtual machine without acceleration whose power can be cut. Its
// disk keeps what its kernel has written to it, and nothing of what its kernel
// still had in memory.
type machine struct {
	t      *testing.T
	dir    string
	kernel string
	p      *powered // the latest boot
}

// powered is one boot of a machine.
type powered struct {
	cmd  *exec.Cmd
	done chan struct{}

	mu      sync.Mutex
	reports []report
	acked   map[int]stream // by producer
	ackMS   []ackTime
	acks    int
}

type ackTime struct {
	id string
	ms int64
}

// kernelVariable names the directory with a kernel and its modules.
const kernelVariable = "FENCEPOST_KERNEL"

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, dir: t.TempDir(), kernel: os.Getenv(kernelVariable)}
	const how = "power cuts need qemu, mke2fs and a kernel: run them by make power. Without, nothing of them was run"
	require.FileExists(t, filepath.Join(m.kernel, "vmlinuz"), how)
	for _, program := range []string{"qemu-system-x86_64", "mkfs.ext4"} {
		_, err := exec.LookPath(program)
		require.NoError(t, err, how)
	}
	m.makeRoot()
	disk := filepath.Join(m.dir, "disk")
	require.NoError(t, os.WriteFile(disk, nil, 0o600))
	require.NoError(t, os.Truncate(disk, 2<<30))
	out, err := exec.Command("mkfs.ext4", "-q", "-F", disk).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Cleanup(m.cut)
	return m
}

// makeRoot writes the file system that the kernel starts with: this test binary
// as its first process, the program, and drivers of the disk.
func (m *machine) makeRoot() {
	m.t.Helper()
	f, err := os.Create(filepath.Join(m.dir, "root"))
	require.NoError(m.t, err)
	a := &archive{w: bufio.NewWriter(f)}
	for _, dir := range []string{"dev", "proc", "sys", "tmp", "data", "etc", "modules"} {
		a.add(dir, 0o040755, nil)
	}
	a.add("etc/machine-id", 0o100644, []byte("0123456789abcdef0123456789abcdef\n"))
	self, err := os.Executable()
	require.NoError(m.t, err)
	for name, from := range map[string]string{"init": self, "fencepost": binary} {
		text, err := os.ReadFile(from)
		require.NoError(m.t, err)
		a.add(name, 0o100755, text)
	}
	modules, err := filepath.Glob(filepath.Join(m.kernel, "modules", "*.ko"))
	require.NoError(m.t, err)
	for _, path := range modules {
		text, err := os.ReadFile(path)
		require.NoError(m.t, err)
		a.add("modules/"+filepath.Base(path), 0o100644, text)
	}
	a.add("TRAILER!!!", 0, nil)
	require.NoError(m.t, a.err)
	require.NoError(m.t, a.w.Flush())
	require.NoError(m.t, f.Close())
}

// archive writes the format that the kernel unpacks its first file system from:
// "newc", Documentation/driver-api/early-userspace/buffer-format.rst.
type archive struct {
	w   *bufio.Writer
	ino int
	err error
}

func (a *archive) add(name string, mode int, text []byte) {
	a.ino++
	head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.ino, mode, 0, 0, 1, 0, len(text), 0, 0, 0, 0, len(name)+1, 0, name)
	for _, part := range []string{head, string(text)} {
		if a.err == nil {
			_, a.err = a.w.WriteString(part + strings.Repeat("\x00", (4-len(part)%4)%4))
		}
	}
}

// boot turns the power on.
func (m *machine) boot(o order) *powered {
	m.t.Helper()
	text, err := json.Marshal(o)
	require.NoError(m.t, err)
	text = append(text, make([]byte, 4096-len(text)%4096)...)
	told := filepath.Join(m.dir, "order")
	require.NoError(m.t, os.WriteFile(told, text, 0o600))
	p := &powered{done: make(chan struct{}), acked: map[int]stream{}}
	p.cmd = exec.Command("qemu-system-x86_64", "-accel", "tcg", "-m", "768", "-smp", "1", "-display", "none", "-nodefaults", "-no-reboot",
		"-kernel", filepath.Join(m.kernel, "vmlinuz"), "-initrd", filepath.Join(m.dir, "root"),
		"-append", "console=ttyS0 loglevel=4 panic=-1 rdinit=/init "+programVariable+"="+guestProgram,
		"-serial", "file:"+filepath.Join(m.dir, "console"), "-serial", "stdio",
		"-drive", "format=raw,if=virtio,cache=writeback,file="+filepath.Join(m.dir, "disk"),
		"-drive", "format=raw,if=virtio,readonly=on,file="+told)
	out, err := p.cmd.StdoutPipe()
	require.NoError(m.t, err)
	p.cmd.Stderr = os.Stderr
	require.NoError(m.t, p.cmd.Start())
	go func() {
		p.read(out)
		_ = p.cmd.Wait() // how it ended is in its state
		close(p.done)
	}()
	m.p = p
	return p
}

// read keeps what the machine says.
func (p *powered) read(out io.Reader) {
	in := bufio.NewScanner(out)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var r report
		if json.Unmarshal(in.Bytes(), &r) != nil {
			continue // cut with the power
		}
		p.mu.Lock()
		if r.Kind == "ack" {
			p.acked[r.Ack.Producer] = r.Ack
			p.ackMS = append(p.ackMS, ackTime{r.Ack.event(r.Ack.N).id, r.MS})
			p.acks++
		} else {
			p.reports = append(p.reports, r)
		}
		p.mu.Unlock()
	}
}

// cut takes the power away, in the middle of whatever the machine does.
func (m *machine) cut() {
	if m.p == nil {
		return
	}
	_ = m.p.cmd.Process.Kill() // it may be over
	<-m.p.done
}

func (p *powered) said(kind string) []report {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []report
	for _, r := range p.reports {
		if r.Kind == kind {
			found = append(found, r)
		}
	}
	return found
}

func (p *powered) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acks
}

// await waits until the machine has done something. An emulated processor is
// slow: the guard is longer than elsewhere.
func (m *machine) await(what string, done func() bool) {
	m.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	guard := time.NewTimer(4 * hangGuard)
	defer guard.Stop()
	for !done() {
		fault := m.p.said("fault")
		require.Empty(m.t, fault, "in the machine, waiting until %s\n%s", what, m.story())
		select {
		case <-tick.C:
		case <-m.p.done:
			if !done() {
				m.t.Fatalf("the machine ended before this: %s\n%s", what, m.story())
			}
		case <-guard.C:
			m.t.Fatalf("this never came: %s\n%s", what, m.story())
		}
	}
}

// story is what the machine said, for a failure.
func (m *machine) story() string {
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	console, _ := os.ReadFile(filepath.Join(m.dir, "console"))
	return fmt.Sprintf("%+v\n%s", m.p.reports, console[max(len(console)-3000, 0):])
}
