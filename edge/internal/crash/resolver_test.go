//go:build faults

package crash_test

import (
	dns "encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"fencepost/edge"

	"github.com/stretchr/testify/require"
)

// resolver answers the node's questions for names, as the test says.
type resolver struct {
	net.PacketConn
	mu     sync.Mutex
	asked  map[string]int
	answer func(name string, n int) (addresses []string, code byte) // n: how often the address of the name was asked before
}

// DNS, RFC 1035 4.1.1 and 3.2.2; RFC 3596 2.1.
const (
	dnsFailure     = 2
	dnsNoName      = 3
	dnsA, dnsAAAA  = 1, 28
	dnsHeaderBytes = 12
)

// newResolver starts a resolver that the processes of n use, and nobody else: they
// run in a mount namespace of their own with another /etc/resolv.conf.
func newResolver(t *testing.T, n *node, answer func(string, int) ([]string, byte)) *resolver {
	t.Helper()
	require.Zero(t, os.Geteuid(), "a resolver for one process needs port 53 and a mount namespace: run this as root. Nothing of it was run")
	unshare, err := exec.LookPath("unshare")
	require.NoError(t, err, "this needs unshare of util-linux. Nothing of it was run")
	var r *resolver
	for i := 2; r == nil; i++ { // each test has a loopback address of its own
		require.Less(t, i, 250, "port 53 is taken at every loopback address")
		if c, err := net.ListenPacket("udp", fmt.Sprintf("127.53.53.%d:53", i)); err == nil {
			r = &resolver{PacketConn: c, asked: map[string]int{}, answer: answer}
		}
	}
	var serving sync.WaitGroup
	serving.Go(r.serve)
	t.Cleanup(func() { _ = r.Close(); serving.Wait() })
	conf := filepath.Join(n.dir, "resolv.conf")
	host, _, err := net.SplitHostPort(r.LocalAddr().String())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(conf, []byte("nameserver "+host+"\noptions timeout:1 attempts:1\n"), 0o644))
	n.under = []string{unshare, "-m", "/bin/sh", "-c", `mount --bind "$0" /etc/resolv.conf && exec "$@"`, conf}
	return r
}

func (r *resolver) serve() {
	q := make([]byte, 512)
	for {
		k, from, err := r.ReadFrom(q)
		if err != nil {
			return
		}
		if k > dnsHeaderBytes {
			_, _ = r.WriteTo(r.reply(q[:k]), from) // one that is gone does not matter
		}
	}
}

// reply answers one question.
func (r *resolver) reply(q []byte) []byte {
	var labels []string
	at := dnsHeaderBytes
	for at < len(q) && q[at] != 0 {
		labels = append(labels, string(q[at+1:at+1+int(q[at])]))
		at += 1 + int(q[at])
	}
	at += 5 // the end of the name, type and class
	name, kind := strings.ToLower(strings.Join(labels, ".")), dns.BigEndian.Uint16(q[at-4:])
	r.mu.Lock()
	addresses, code := r.answer(name, r.asked[name])
	if kind == dnsA {
		r.asked[name]++
	}
	r.mu.Unlock()
	a := append([]byte{q[0], q[1], 0x81, 0x80 | code, 0, 1, 0, 0, 0, 0, 0, 0}, q[dnsHeaderBytes:at]...)
	for _, text := range addresses {
		ip := netip.MustParseAddr(text)
		if ip.Is4() == (kind == dnsA) && (kind == dnsA || kind == dnsAAAA) {
			raw := ip.AsSlice()
			a = append(a, 0xc0, dnsHeaderBytes, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(raw)))
			a = append(a, raw...)
			a[7]++ // answers
		}
	}
	return a
}

func (r *resolver) questions(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked[name]
}

// TestR29_ResolverFailsTwice has a resolver that fails, and then knows the name.
func TestR29_ResolverFailsTwice(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, always(http.StatusNoContent))
	n := newNode(t, strings.Replace(r.webhook(hook, "retry_schedule_s = [1]"), "127.0.0.1:"+r.port(), "comes.example:"+r.port(), 1)+route(hook, "*"))
	z := newResolver(t, n, func(name string, k int) ([]string, byte) {
		switch {
		case k == 0:
			return nil, dnsFailure
		case k == 1:
			return nil, dnsNoName
		}
		return []string{"127.0.0.1"}, 0
	})
	n.start()
	id := n.sendOne("x", "t", "e")
	n.awaitState(id, edge.Succeeded)
	x := n.delivery(id)
	require.Len(t, x.Executions, 3)
	require.Equal(t, []string{"dns_failed", "dns_failed", "http_204"}, []string{x.Executions[0].Code, x.Executions[1].Code, x.Executions[2].Code})
	require.GreaterOrEqual(t, z.questions("comes.example"), 3)
	require.Equal(t, 1, r.count(nil))
	n.clean()
}

// TestR99_DX1_ResolverThatLies answers with addresses that are refused, with some of
// each kind, and with a good one first and another one later (getpusk/pusk#149,
// OneUptime#2578). What connects is only ever the address that is listed.
func TestR99_DX1_ResolverThatLies(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, always(http.StatusNoContent))
	port := r.port()
	trap, err := net.Listen("tcp", "127.0.0.2:"+port) // the same port at an address that is not listed
	require.NoError(t, err)
	defer trap.Close()
	sprung := make(chan struct{}, 1)
	go func() {
		for {
			c, err := trap.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
			select {
			case sprung <- struct{}{}:
			default:
			}
		}
	}()
	answers := map[string][]string{
		"refused": {"127.0.0.2"}, "metadata": {"169.254.169.254"}, "mapped": {"::ffff:127.0.0.2"}, "nat64": {"64:ff9b::a9fe:a9fe"}, "six": {"::1"}, "any": {"0.0.0.0", "::"},
		"second": {"169.254.169.254", "127.0.0.2"}, "mixed": {"127.0.0.2", "169.254.169.254", "127.0.0.1"}, "nothing": nil,
	}
	n := newNode(t, "")
	newResolver(t, n, func(name string, k int) ([]string, byte) {
		if name = strings.TrimSuffix(name, ".example"); name == "rebinds" {
			return [][]string{{"127.0.0.1"}, {"127.0.0.2"}}[min(k, 1)], 0
		}
		return answers[name], 0
	})
	text := ""
	names := []string{"rebinds"}
	for name := range answers {
		names = append(names, name)
	}
	for _, name := range names {
		text += fmt.Sprintf("[[handler]]\nname = %q\nkind = \"webhook\"\nurl = \"http://%s.example:%s/\"\nallow_addresses = [\"127.0.0.1\"]\nretry_schedule_s = [1]\nmax_attempts = 2\nheaders = { %s = \"env:%s\" }\n", name, name, port, lifeHeader, lifeVariable) + route(name, name+".*")
	}
	text += fmt.Sprintf("[[handler]]\nname = \"control\"\nkind = \"webhook\"\nurl = \"http://refused.example:%s/\"\nallow_addresses = [\"127.0.0.0/8\"]\n", port) + route("control", "control.*")
	n.configure(text)
	n.start()
	for _, name := range names {
		id := n.sendOne(name+".x", "t", name)
		switch name {
		case "rebinds", "mixed":
			n.awaitState(id, edge.Succeeded)
		case "nothing":
			require.Equal(t, "dns_failed", n.awaitState(id, edge.Failed).Code)
		default:
			require.Equal(t, "address_refused", n.awaitState(id, edge.Blocked).Code, name)
		}
	}
	good := r.count(nil)
	require.Equal(t, 2, good)
	n.stop() // and with it the connection that was good
	n.start()
	id := n.sendOne("rebinds.x", "t", "again")
	require.Equal(t, "address_refused", n.awaitState(id, edge.Blocked).Code)
	require.Equal(t, good, r.count(nil))
	select {
	case <-sprung:
		t.Fatal("an address that is not listed was connected")
	default:
	}
	n.sendOne("control.x", "t", "control")
	<-sprung // where it is listed
	n.clean()
}
