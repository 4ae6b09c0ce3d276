package service_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// traverse is in every hostile name of TestT15 and in no path of ours.
const traverse = "fp-traverse-mark"

// hostile are names that would lead out of a directory if they were paths.
var hostile = []string{
	"../../../../../../tmp/" + traverse, "/etc/" + traverse, "..\\..\\" + traverse, "./" + traverse, traverse + "/../../x", "....//....//" + traverse,
	"%2e%2e%2f%2e%2e%2f" + traverse, "..%c0%af" + traverse, "..%252f" + traverse, "file:///etc/" + traverse, "~root/" + traverse, "$HOME/" + traverse, "/proc/self/root/" + traverse, "\u2025/" + traverse, "C:\\" + traverse,
}

// TestT15_NamesAreNeverPaths hands in hostile names wherever the outside can give
// one, and looks at every file that the node opened, made or removed meanwhile.
func TestT15_NamesAreNeverPaths(t *testing.T) {
	t.Parallel()
	s := newSite(t, "{HTTP}[[handler]]\nname = \"note\"\nkind = \"log\"\n[[handler]]\nname = \"echo\"\nkind = \"command\"\nargv = [\"/bin/cat\"]\n"+route("note", "*")+route("echo", "*"))
	strace, err := exec.LookPath("strace")
	traced := err == nil && os.Geteuid() == 0 // the node hides its memory, with the paths in it, from others
	if traced {
		s.wrap = []string{strace, "-D", "-f", "-q", "-s", "4096", "-o", s.path("trace"), "-e", "trace=/^(open|unlink|rename|mkdir|rmdir|link|symlink|chmod|fchmodat|chown|lchown|fchownat|truncate|creat|exec)"}
	}
	s.start()
	outside := tree(t, "/etc")
	for i, name := range hostile {
		s.run("send", "--source", name, "--id", fmt.Sprint(i, name), "--type", name, "--subject", name, "--data", name)
		s.run("delivery", name)
		s.run("explain", name)
		s.run("cancel", name)
		s.run("handler", "pause", name)
		s.run("target", "resume", name)
		s.post(name)
		for _, get := range []func(string) int{s.get, s.getLocal} {
			for _, prefix := range []string{"/", "/v1/", "/v1/deliveries/", "/v1/handlers/"} {
				require.NotEqual(t, http.StatusOK, get(prefix+name), prefix+name)
			}
		}
	}
	await(t, "all is done", func() bool { return !regexp.MustCompile(`pending|running|leased`).MatchString(s.ok("deliveries")) })
	s.stop()
	require.Equal(t, outside, tree(t, "/etc"))
	if !traced {
		return
	}
	ours, others := 0, 0
	f, err := os.Open(s.path("trace"))
	require.NoError(t, err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if strings.Contains(line, "exec") || strings.Contains(line, "+++") { // the program of the command handler gets names as variables only
			continue
		}
		require.NotContains(t, line, traverse)
		for _, path := range regexp.MustCompile(`"(/[^"]*)"`).FindAllStringSubmatch(line, -1) {
			switch {
			case strings.HasPrefix(path[1], s.dir):
				ours++
			case path[1] == binary && strings.Contains(line, "O_RDONLY"): // a library reads the program's hash when it begins
				others++
			default:
				others++
				require.Regexp(t, `^/(proc|sys|dev/(null|urandom)$|etc/|usr/|lib|bin/|sbin/|$|tmp$)`, path[1], line)
			}
		}
	}
	require.NoError(t, lines.Err())
	require.Greater(t, ours, 20, "the trace shows what the node opens")
	t.Logf("%d uses of paths of the node, %d of the system's", ours, others)
}

// post hands in an event over the network with a name in every attribute.
func (s *site) post(name string) {
	req, err := http.NewRequest(http.MethodPost, "http://"+s.address()+"/v1/events", strings.NewReader(name))
	require.NoError(s.t, err)
	escaped := strings.NewReplacer("%", "%25", "\u2025", "%E2%80%A5", "\"", "%22").Replace(name)
	for _, h := range []string{"ce-id", "ce-source", "ce-type", "ce-subject", "ce-partitionkey", "Idempotency-Key"} {
		req.Header.Set(h, escaped)
	}
	req.Header.Set("ce-specversion", "1.0")
	req.Header.Set("Authorization", "Bearer "+s.token())
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	require.NoError(s.t, resp.Body.Close())
}

func (s *site) get(path string) int { return s.raw("tcp", s.address(), path) }

func (s *site) getLocal(path string) int { return s.raw("unix", s.path("d.db.sock"), path) }

// raw asks for a path as it is: a client of the library would clean it.
func (s *site) raw(network, address, path string) int {
	conn, err := (&net.Dialer{}).DialContext(context.Background(), network, address)
	require.NoError(s.t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path)
	require.NoError(s.t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	return resp.StatusCode
}
