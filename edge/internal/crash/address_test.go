package crash_test

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"fencepost/edge"

	"github.com/stretchr/testify/require"
)

// canary counts the connections to a port, at any address of this host.
func canary(t *testing.T) (port string, connections *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	connections = new(atomic.Int64)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			_ = c.Close()
		}
	})
	t.Cleanup(func() { _ = l.Close(); accepting.Wait() })
	_, port, err = net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port, connections
}

// forged are hosts that lead, by one resolver or another, to this host, to one that
// gives out credentials, or past the check to either.
var forged = []string{
	"127.0.0.1", "127.0.0.2", "127.255.255.254", "127.1", "127.0.1", "127.0.0.1.", "2130706433", "0x7f000001", "0x7f.1", "0x7f.0x0.0x0.0x1", "0X7F000001",
	"017700000001", "0177.0.0.1", "00000177.1", "0", "0.0.0.0", "0x0", "00", "[::1]", "[0:0:0:0:0:0:0:1]", "[0000::0001]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
	"[::127.0.0.1]", "[::ffff:0:127.0.0.1]", "[::ffff:0.0.0.0]", "[64:ff9b::7f00:1]", "[64:ff9b::127.0.0.1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[2001:0:7f00:1::]",
	"[fe80::1]", "[fe80::1%25lo]", "[fec0::1]", "[ff02::1]", "224.0.0.1", "169.254.169.254", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]", "2852039166", "0xa9fea9fe",
	"0251.0376.0251.0376", "169.254.43518", "[fd00:ec2::254]", "100.100.100.200", "168.63.129.16", "192.0.0.192", "100.64.0.1", "198.18.0.1", "240.0.0.1", "255.255.255.255",
	"localhost", "LOCALHOST", "localhost.", "good.example@127.0.0.1", "good.example#@127.0.0.1", `127.0.0.1\@good.example`, "①②⑦.⓪.⓪.①", "127。0。0。1", "ip6-localhost",
	"localhost%00.example", "[::1]%23.example", " 127.0.0.1", "127.0.0.1 ", "127.0.0.1\t",
}

// TestT8_DX1_ForgedURLsConnectNowhere gives the program URLs that would lead it to
// this host or to the metadata of a cloud (OneUptime#2578, plunk#449). Each is refused
// as a configuration, or its delivery is blocked when the address is dialled, or its
// name does not resolve. Nothing ever connects.
func TestT8_DX1_ForgedURLsConnectNowhere(t *testing.T) {
	t.Parallel()
	require.GreaterOrEqual(t, len(forged), 60)
	port, connections := canary(t)
	hookTo := func(name, url string, more ...string) string {
		return fmt.Sprintf("[[handler]]\nname = %q\nkind = \"webhook\"\nurl = %q\nretry_schedule_s = [1]\nbreaker_failures = 0\ntimeout_s = 5\n%s\n", name, url, strings.Join(more, "\n")) + route(name, name+".*")
	}
	n := newNode(t, "")
	accepted, refused := "", 0
	var names []string
	for i, host := range forged {
		name, url := fmt.Sprint("hook", i), "http://"+host+":"+port+"/"
		n.configure(hookTo(name, url))
		_, fault, code := n.run("config", "check", n.config)
		if code == 0 {
			accepted += hookTo(name, url)
			names = append(names, name)
			continue
		}
		require.Equal(t, 2, code, "%s: %s", url, fault)
		require.Regexp(t, `toml:\d+:\d+: .*url`, fault)
		refused++
	}
	require.Greater(t, refused, 50)
	require.GreaterOrEqual(t, len(names), 4, "some are known only when they are dialled: %s", accepted)

	n.configure(accepted + hookTo("listed", "http://127.0.0.1:"+port+"/", `allow_addresses = ["127.0.0.1"]`))
	n.start()
	blocked := 0
	for _, name := range names {
		id := n.sendOne(name+".x", "t", name)
		await(t, n, name+" is dialled", func() bool {
			x := n.delivery(id)
			return x.Delivery.State == edge.Blocked || len(x.Executions) > 0 && x.Executions[0].Outcome != ""
		})
		switch d := n.delivery(id); d.Delivery.State {
		case edge.Blocked:
			require.Equal(t, "address_refused", d.Delivery.Code)
			require.Zero(t, d.Delivery.Attempts, "not retried")
			blocked++
		default:
			require.Equal(t, "dns_failed", d.Executions[0].Code, "%s is neither refused nor unresolved", name)
		}
	}
	require.Positive(t, blocked, "no name led to this host")
	require.Zero(t, connections.Load())

	id := n.sendOne("listed.x", "t", "control")
	await(t, n, "the control is tried", func() bool { return n.delivery(id).Delivery.Attempts > 0 || connections.Load() > 0 })
	require.Positive(t, connections.Load(), "what is listed does connect")
	t.Logf("%d hosts: %d refused by the configuration, %d blocked, %d did not resolve", len(forged), refused, blocked, len(names)-blocked)
}

// TestT8_ARedirectIsNotFollowed answers with redirects to an address that is
// refused, and to one that is not.
func TestT8_ARedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	port, connections := canary(t)
	places := []string{"http://169.254.169.254/latest/meta-data/", "http://127.0.0.1:" + port + "/", "//[::1]:" + port + "/", "/elsewhere"}
	statuses := []int{301, 302, 303, 307, 308}
	raw := newWire(t, func(path string) string {
		var status, place int
		if _, err := fmt.Sscanf(path, "/%d/%d", &status, &place); err != nil {
			return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" // it was followed
		}
		return fmt.Sprintf("HTTP/1.1 %d Moved\r\nLocation: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status, places[place])
	})
	text := ""
	for _, status := range statuses {
		for i := range places {
			name := fmt.Sprintf("to%d-%d", status, i)
			text += fmt.Sprintf("[[handler]]\nname = %q\nkind = \"webhook\"\nurl = \"http://%s/%d/%d\"\nallow_addresses = [\"127.0.0.0/8\"]\nmax_attempts = 1\nretry_schedule_s = [1]\n", name, raw.Addr(), status, i) + route(name, name+".*")
		}
	}
	n := newNode(t, text)
	n.start()
	for _, status := range statuses {
		for i := range places {
			name := fmt.Sprintf("to%d-%d", status, i)
			require.Equal(t, fmt.Sprint("http_", status), n.awaitState(n.sendOne(name+".x", "t", name), edge.Failed).Code)
		}
	}
	require.Zero(t, connections.Load())
	require.Len(t, raw.all(), len(statuses)*len(places), "one request each")
	n.clean()
}
