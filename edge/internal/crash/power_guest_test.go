//go:build power && linux && amd64

package crash_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"fencepost/edge"
	"fencepost/edge/api"
	"fencepost/edge/sqlite"

	"golang.org/x/sys/unix"
)

// guestProgram is the name under which the test binary is the first process of
// the virtual machine.
const guestProgram = "power-guest"

func init() { otherPrograms[guestProgram] = guestMain }

// order is what the machine is told, on a second disk, when it starts.
type order struct {
	Boot       int      `json:"boot"`
	Durability string   `json:"durability"`
	Verify     []stream `json:"verify"` // what was acknowledged before
	Run        bool     `json:"run"`    // then work until the power goes; else drain and power off
}

// stream is the events that one producer had acknowledged in one boot: the first
// N of them, since it sends one after another.
type stream struct {
	Boot, Producer, N int
}

// event is the nth event of a stream, n from 1.
func (s stream) event(n int) sent {
	e := sent{
		source: "/power", id: fmt.Sprintf("b%d-p%d-%d", s.Boot, s.Producer, n),
		kind: "record.x", subject: fmt.Sprint("t", n%5), body: fmt.Sprintf(`{"n":%d}`, n),
	}
	if n%12 == 0 {
		e.kind = "once.x"
	}
	return e
}

// report is one line that the machine says on its second serial port.
type report struct {
	Kind string `json:"kind"` // booted, started, verified, ack, log, fault, off
	Text string `json:"text,omitempty"`
	Ack  stream `json:"ack,omitzero"` // N is the event that was acknowledged
	MS   int64  `json:"ms"`           // since the boot

	// verified
	Known      int         `json:"known,omitempty"` // acknowledged before, and known now
	Lost       []string    `json:"lost,omitempty"`
	Violations []string    `json:"violations,omitempty"`
	Twice      []string    `json:"twice,omitempty"`   // keys of once work that began more than once
	Began      int         `json:"began,omitempty"`   // once work that began, in all boots
	Blocked    int         `json:"blocked,omitempty"` // decided by a person
	Open       int64       `json:"open,omitempty"`
	Losses     []edge.Loss `json:"losses,omitempty"` // as recorded in the database
}

// guest is the first process of the virtual machine.
type guest struct {
	mu    sync.Mutex
	port  io.Writer
	begun time.Time
	order order
	http  *http.Client

	serve *exec.Cmd
	addr  string
	token string
}

// guestMain never returns unless the machine cannot be ended.
func guestMain() int {
	g := &guest{begun: time.Now(), port: os.Stdout, http: &http.Client{Timeout: hangGuard}}
	if err := errors.Join(g.prepare(), g.work()); err != nil {
		g.say(report{Kind: "fault", Text: err.Error()})
	}
	g.end()
	return 1
}

func (g *guest) say(r report) {
	r.MS = time.Since(g.begun).Milliseconds()
	text, err := json.Marshal(r)
	if err != nil {
		text = []byte(`{"kind":"fault","text":"a report has no JSON"}`)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	_, _ = g.port.Write(append(text, '\n')) // nobody is left to tell
}

func (g *guest) end() {
	_ = syscall.Unmount("/data", 0)
	syscall.Sync()
	g.say(report{Kind: "off"})
	_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_RESTART) // the machine does not start again
}

// prepare makes a system of a kernel: file systems, disks, a network of one.
func (g *guest) prepare() error {
	for _, m := range [][3]string{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp", "mode=0700"}} {
		if err := syscall.Mount(m[0], m[1], m[0], 0, m[2]); err != nil {
			return fmt.Errorf("mount %s: %w", m[1], err)
		}
	}
	port, err := os.OpenFile("/dev/ttyS1", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	g.port = port
	g.say(report{Kind: "booted"})
	for _, name := range []string{"virtio", "virtio_ring", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci", "virtio_blk"} {
		if err := loadModule("/modules/" + name + ".ko"); err != nil {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	if err := g.readOrder(); err != nil {
		return err
	}
	if err := syscall.Mount("/dev/vda", "/data", "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount the disk: %w", err)
	}
	return raiseLoopback()
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

func (g *guest) readOrder() error {
	for _, disk := range []string{"/dev/vda", "/dev/vdb"} { // there when its driver has found it
		end := time.Now().Add(hangGuard)
		for {
			if _, err := os.Stat(disk); err == nil {
				break
			}
			if time.Now().After(end) {
				return fmt.Errorf("there is no %s", disk)
			}
			wait(5 * time.Millisecond)
		}
	}
	text, err := os.ReadFile("/dev/vdb")
	if err != nil {
		return err
	}
	text, _, _ = bytes.Cut(text, []byte{0})
	return json.Unmarshal(text, &g.order)
}

func raiseLoopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, r)
}

const (
	guestConfig = "/tmp/n.toml"
	guestLedger = "/data/ledger"
	guestData   = "/data/d.db"
)

func (g *guest) work() error {
	if err := os.MkdirAll(guestLedger, 0o700); err != nil {
		return err
	}
	text := fmt.Sprintf("[node]\ndata = %q\ndurability = %q\nallow_root_commands = true\nlog_format = \"json\"\n[http]\nlisten = \"127.0.0.1:0\"\nsocket = \"/tmp/n.sock\"\n", guestData, g.order.Durability) +
		"[[handler]]\nname = \"record\"\nkind = \"log\"\n" + program(once, "mark", guestLedger) +
		route("record", "record.*") + route(once, "once.*")
	if err := os.WriteFile(guestConfig, []byte(text), 0o600); err != nil {
		return err
	}
	if err := g.start(); err != nil {
		return err
	}
	r, err := g.verify()
	if err != nil {
		return err
	}
	if err := g.stop(); err != nil {
		return err
	}
	if r.Losses, err = recordedLosses(); err != nil {
		return err
	}
	if !g.order.Run {
		g.say(r)
		return nil
	}
	if err := g.start(); err != nil {
		return err
	}
	g.say(r)
	return g.produce()
}

// start starts the program and waits until it is ready.
func (g *guest) start() error {
	g.serve = exec.Command("/fencepost", "serve", "--config", guestConfig)
	g.serve.Env = append(os.Environ(), lifeVariable+fmt.Sprintf("=power-life-%06d", g.order.Boot))
	out, err := g.serve.StderrPipe()
	if err != nil {
		return err
	}
	if err := g.serve.Start(); err != nil {
		return err
	}
	addr := make(chan string, 1)
	go g.follow(out, addr)
	if g.addr = <-addr; g.addr == "" {
		return fmt.Errorf("the program ended before it was ready: %w", g.serve.Wait())
	}
	token, err := os.ReadFile(guestData + ".token")
	if err != nil {
		return err
	}
	g.token = string(bytes.TrimSpace(token))
	for end := time.Now().Add(hangGuard); ; wait(20 * time.Millisecond) {
		resp, err := g.http.Get("http://" + g.addr + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("the program does not become ready: %w", err)
		}
	}
	g.say(report{Kind: "started"})
	return nil
}

// follow reads the program's log: the address it listens at, and what it warns of.
func (g *guest) follow(out io.Reader, addr chan<- string) {
	defer close(addr)
	in := bufio.NewScanner(out)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var e struct{ Msg, Listen, Level string }
		if json.Unmarshal(in.Bytes(), &e) != nil {
			g.say(report{Kind: "log", Text: in.Text()})
			continue
		}
		if e.Msg == "node started" {
			select {
			case addr <- e.Listen:
			default:
			}
		}
		if e.Level == "WARN" || e.Level == "ERROR" {
			g.say(report{Kind: "log", Text: in.Text()})
		}
	}
}

func (g *guest) stop() error {
	if err := g.serve.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return g.serve.Wait()
}

// verify sends all that was acknowledged once more, and checks everything.
func (g *guest) verify() (report, error) {
	r := report{Kind: "verified"}
	for _, s := range g.order.Verify {
		var all []sent
		for n := range s.N {
			all = append(all, s.event(n+1))
		}
		for part := range slices.Chunk(all, 500) {
			items, err := postBatch(g.http, g.addr, g.token, part)
			if err != nil {
				return r, err
			}
			for i, item := range items {
				switch {
				case item.Receipt == nil:
					return r, fmt.Errorf("%s is refused: %d", part[i].id, item.Status)
				case item.Existing:
					r.Known++
				default:
					r.Lost = append(r.Lost, part[i].id)
				}
			}
		}
	}
	if !g.order.Run {
		if err := g.drain(&r); err != nil {
			return r, err
		}
	}
	var check api.CheckReport
	if err := g.ask(&check, "check", "--full"); err != nil {
		return r, err
	}
	for _, v := range check.Violations {
		r.Violations = append(r.Violations, fmt.Sprint(v))
	}
	return r, g.starts(&r)
}

// drain waits until nothing is open, deciding what waits for a person.
func (g *guest) drain(r *report) error {
	for end := time.Now().Add(hangGuard); ; wait(100 * time.Millisecond) {
		var s status
		if err := g.ask(&s, "status"); err != nil {
			return err
		}
		if r.Open = open(s.Counters); r.Open == 0 || time.Now().After(end) {
			return nil
		}
		if s.Counters["state.blocked"] > 0 {
			if err := g.decide(r); err != nil {
				return err
			}
		}
	}
}

// decide says of all blocked work that it failed.
func (g *guest) decide(r *report) error {
	var page api.DeliveryPage
	if err := g.ask(&page, "deliveries", "--state", "blocked", "--limit", "100"); err != nil {
		return err
	}
	for _, d := range page.Deliveries {
		var after api.Delivery
		if err := g.ask(&after, "resolve", d.ID, "--as", "failed", "--version", fmt.Sprint(d.Version), "--reason", "the power went"); err != nil {
			return err
		}
		r.Blocked++
	}
	return nil
}

// starts counts the starts of once work, by the program's own ledger.
func (g *guest) starts(r *report) error {
	paths, err := filepath.Glob(guestLedger + "/*.ledger")
	if err != nil {
		return err
	}
	began := map[string]int{}
	for _, p := range paths {
		ls, err := readLedger(p)
		if err != nil {
			return err
		}
		for _, l := range ls {
			if l.Kind == "start" {
				began[l.Key]++
				r.Began++
			}
		}
	}
	for key, n := range began {
		if n > 1 {
			r.Twice = append(r.Twice, key)
		}
	}
	return nil
}

// ask runs a command of the command line.
func (g *guest) ask(v any, args ...string) error {
	var fault bytes.Buffer
	c := exec.Command("/fencepost", append([]string{"--config", guestConfig, "--json"}, args...)...)
	c.Stderr = &fault
	out, err := c.Output()
	if err != nil {
		return fmt.Errorf("fencepost %v: %w: %s%s", args, err, out, fault.Bytes())
	}
	return json.Unmarshal(out, v)
}

// recordedLosses reads what the program has recorded of losses. It must not run.
func recordedLosses() ([]edge.Loss, error) {
	s, err := sqlite.Open(guestData, sqlite.Options{OnLoss: sqlite.LossLook})
	if err != nil {
		return nil, err
	}
	ls, err := s.Losses(context.Background(), 1000)
	return ls, errors.Join(err, s.Close())
}

// produce posts until the power goes, and says what is acknowledged.
func (g *guest) produce() error {
	var goes sync.WaitGroup
	faults := make([]error, producers)
	for p := range producers {
		goes.Go(func() {
			s := stream{Boot: g.order.Boot, Producer: p}
			for {
				s.N++
				e := s.event(s.N)
				status, err := post(context.Background(), g.http, g.addr, g.token, &e)
				if err != nil || status != http.StatusAccepted {
					faults[p] = fmt.Errorf("%s was answered with %d: %w", e.id, status, err)
					return
				}
				g.say(report{Kind: "ack", Ack: s})
			}
		})
	}
	goes.Wait()
	return errors.Join(faults...)
}
