package node_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge/config"
	"fencepost/edge/node"
)

// Files of the table below: %[1]s is the directory of the site.
const (
	placesHead = "[node]\ndata = \"%[1]s/db\"\n"
	calm       = "[[handler]]\nname = \"h\"\nkind = \"log\"\n[[route]]\nname = \"r\"\nhandler = \"h\"\n"
	route1     = "[[route]]\nname = \"r\"\nhandler = \"h\"\n"
	hookHead   = "[[handler]]\nname = \"h\"\nkind = \"webhook\"\nsecrets = [\"file:%[1]s/secret\"]\n"
	calmHook   = hookHead + "url = \"https://hooks.example/\"\n"
	cmdHead    = "[[handler]]\nname = \"h\"\nkind = \"command\"\n"
	calmCmd    = cmdHead + "argv = [\"/bin/true\"]\n"
)

// surprises has for each warning files that get it, at this line of what is
// written here, and files close to them that do not.
var surprises = map[string]struct {
	bad  map[string]int
	good []string
}{
	"durability_normal": {map[string]int{placesHead + "durability = \"normal\"\n" + calm: 3}, []string{placesHead + "durability = \"full\"\n" + calm}},
	"data_directory":    {map[string]int{"[node]\ndata = \"%[1]s/none/db\"\n[http]\nsocket = \"%[1]s/s\"\n" + calm: 2}, nil},
	"no_handlers":       {map[string]int{placesHead: 0}, nil},
	"no_routes":         {map[string]int{placesHead + "[[handler]]\nname = \"h\"\nkind = \"log\"\n": 0}, nil},
	"no_door":           {map[string]int{placesHead + "[http]\nlisten = \"\"\nsocket = \"\"\n" + calm: 4}, []string{placesHead + "[http]\nlisten = \"\"\n" + calm}},
	"no_socket":         {map[string]int{placesHead + "[http]\nsocket = \"\"\n" + calm: 4}, nil},
	"listen_open": {
		map[string]int{placesHead + "[http]\nlisten = \":80\"\n" + calm: 4, placesHead + "[http]\nlisten = \"192.0.2.1:80\"\n" + calm: 4, placesHead + "[http]\nlisten = \"host.example:80\"\n" + calm: 4},
		[]string{placesHead + "[http]\nlisten = \"[::1]:80\"\n" + calm, placesHead + "[http]\nlisten = \"localhost:80\"\n" + calm, placesHead + "[http]\nlisten = \"\"\n" + calm},
	},
	"socket_refused": {map[string]int{placesHead + "[http]\nsocket = \"%[1]s/plain\"\n" + calm: 4}, nil},
	"token_refused":  {map[string]int{placesHead + "[http]\ntoken_file = \"%[1]s/open\"\n" + calm: 4}, []string{placesHead + "[http]\nlisten = \"\"\ntoken_file = \"%[1]s/open\"\n" + calm}},
	"dedupe_short":   {map[string]int{placesHead + "[retention]\ndedupe_days = 6\n" + calm: 4}, []string{placesHead + "[retention]\ndedupe_days = 7\n" + calm}},
	"dedupe_brief":   {map[string]int{placesHead + "[retention]\ndedupe_days = 2\nsucceeded_days = 1\n" + calm: 4}, []string{placesHead + "[retention]\ndedupe_days = 3\nsucceeded_days = 1\n" + calm}},

	"handler_unrouted":      {map[string]int{placesHead + calm + "[[handler]]\nname = \"i\"\nkind = \"log\"\n": 10}, nil},
	"concurrency_unreached": {map[string]int{placesHead + "workers = 15\n" + calm: 4, placesHead + "workers = 30\n[[handler]]\nname = \"h\"\nkind = \"log\"\nconcurrency = 31\n" + route1: 7}, []string{placesHead + "workers = 16\n" + calm}},
	"halts":                 {map[string]int{placesHead + "[[handler]]\nname = \"h\"\nkind = \"log\"\non_failure = \"halt\"\n" + route1: 6}, nil},
	"halts_all":             {map[string]int{placesHead + "[[handler]]\nname = \"h\"\nkind = \"log\"\non_failure = \"halt\"\n" + route1 + "key = \"\"\n": 10}, []string{placesHead + calm + "key = \"\"\n", placesHead + "[[handler]]\nname = \"h\"\nkind = \"log\"\non_failure = \"halt\"\n" + route1}},
	"grace_short":           {map[string]int{placesHead + calmCmd + "timeout_s = 21\n" + route1: 7, placesHead + calmCmd + route1: 3}, []string{placesHead + calmCmd + "timeout_s = 20\n" + route1, placesHead + "shutdown_grace_s = 30\n" + calmCmd + "timeout_s = 30\n" + route1}},
	"retry_unreached": {
		map[string]int{
			placesHead + calmHook + "retry_schedule_s = [3600, 86400]\n" + route1:                        8,
			placesHead + calmHook + "retry_schedule_s = [1, 2, 3]\nmax_attempts = 3\n" + route1:          8,
			placesHead + calmCmd + "retry_max_s = 60\nmax_attempts = 3\n" + route1:                       7,
			placesHead + calmHook + "retry_schedule_s = [1, 2, 3, 4000]\ngive_up_after_h = 1\n" + route1: 8,
		},
		[]string{placesHead + calmHook + route1, placesHead + calmHook + "retry_schedule_s = [3600, 7200]\n" + route1, placesHead + calmHook + "retry_schedule_s = [1, 2]\nmax_attempts = 3\n" + route1, placesHead + calmCmd + "retry_max_s = 8\n" + route1},
	},
	"no_retry":       {map[string]int{placesHead + calmCmd + "max_attempts = 1\n" + route1: 7}, []string{placesHead + calmCmd + "max_attempts = 2\n" + route1}},
	"secret_missing": {map[string]int{placesHead + "[[handler]]\nname = \"h\"\nkind = \"webhook\"\nurl = \"https://hooks.example/\"\nsecrets = [\"file:%[1]s/secret\",\n \"env:FENCEPOST_TEST_NOT_THERE\"]\n" + route1: 8, placesHead + calmCmd + "env = { A_TOKEN = \"file:%[1]s/none\" }\n" + route1: 7}, nil},
	"program_missing": {map[string]int{placesHead + cmdHead + "argv = [\"%[1]s/none\"]\n" + route1: 6, placesHead + cmdHead + "argv = [\"%[1]s/plain\"]\n" + route1: 6, placesHead + calmCmd + "dir = \"%[1]s/none\"\n" + route1: 6},
		[]string{placesHead + cmdHead + "argv = [\"true\"]\n" + route1}},
	"program_writable": {map[string]int{placesHead + cmdHead + "argv = [\"%[1]s/program\"]\n" + route1: 6}, nil},
	"no_success":       {map[string]int{placesHead + calmCmd + "success_exit = []\n" + route1: 7}, nil},
	"command_repeated": {map[string]int{placesHead + calmCmd + "effect = \"idempotent\"\n" + route1: 7}, nil},
	"once_webhook":     {map[string]int{placesHead + calmHook + "effect = \"once\"\n" + route1: 8}, nil},
	"unsigned":         {map[string]int{placesHead + "[[handler]]\nname = \"h\"\nkind = \"webhook\"\nurl = \"https://hooks.example/\"\n" + route1: 6}, []string{placesHead + "[[handler]]\nname = \"h\"\nkind = \"webhook\"\nurl = \"https://hooks.example/\"\nheaders = { Authorization = \"file:%[1]s/secret\" }\n" + route1}},
	"plain_http": {
		map[string]int{placesHead + hookHead + "url = \"http://hooks.example.com/\"\n" + route1: 7, placesHead + hookHead + "url = \"http://8.8.8.8/\"\n" + route1: 7},
		[]string{placesHead + hookHead + "url = \"http://10.0.0.7/\"\n" + route1, placesHead + hookHead + "url = \"http://printer.local/\"\n" + route1, placesHead + hookHead + "url = \"http://printer/\"\n" + route1},
	},
	"own_door": {
		map[string]int{placesHead + hookHead + "allow_addresses = [\"127.0.0.1\"]\nurl = \"http://127.0.0.1:8080/v1/events\"\n" + route1: 8, placesHead + hookHead + "url = \"http://localhost:8080/\"\n" + route1: 7},
		[]string{placesHead + hookHead + "url = \"http://localhost:8081/\"\n" + route1, placesHead + hookHead + "url = \"http://other:8080/\"\n" + route1},
	},
	"loopback_refused": {
		map[string]int{
			placesHead + hookHead + "url = \"http://localhost:9411/\"\n" + route1: 7, placesHead + hookHead + "url = \"https://A.Localhost./\"\n" + route1: 7,
			placesHead + "[[uplink]]\nname = \"lte\"\nprobe = \"localhost:443\"\n" + calm: 5,
		},
		[]string{placesHead + "allow_addresses = [\"127.0.0.0/8\"]\n" + hookHead + "url = \"http://localhost:9411/\"\n" + route1, placesHead + hookHead + "url = \"http://localhost.example/\"\n" + route1},
	},

	"uplink_unused": {
		map[string]int{placesHead + "[[uplink]]\nname = \"lte\"\nprobe = \"192.0.43.8:443\"\n" + calm: 4},
		[]string{placesHead + "[[uplink]]\nname = \"lte\"\nprobe = \"192.0.43.8:443\"\n" + calmHook + "uplink = \"lte\"\n" + route1},
	},

	"route_shadowed": {
		map[string]int{placesHead + calm + "[[route]]\nname = \"s\"\ntype = \"a\"\nhandler = \"h\"\n": 10, placesHead + calm + "key = \"id\"\n[[route]]\nname = \"s\"\nhandler = \"h\"\nkey = \"id\"\nwhen = \"data.a > 1\"\n": 11},
		[]string{placesHead + calm + "type = \"a*\"\n[[route]]\nname = \"s\"\ntype = \"b*\"\nhandler = \"h\"\n", placesHead + calm + "when = \"data.a > 1\"\n[[route]]\nname = \"s\"\nhandler = \"h\"\n"},
	},
	"route_doubled": {map[string]int{placesHead + calm + "[[route]]\nname = \"s\"\ntype = \"a\"\nhandler = \"h\"\nkey = \"type\"\n": 10}, nil},
	"route_never":   {map[string]int{placesHead + calm + "when = \"false\"\n": 9}, []string{placesHead + calm + "when = \"data.a > 1\"\n"}},
	"pattern_odd":   {map[string]int{placesHead + calm + "type = \"^a$\"\n": 9, placesHead + calm + "source = \"a|b\"\n": 9, placesHead + calm + "subject = \"a**\"\n": 9}, []string{placesHead + calm + "type = \"a.*\"\n"}},
	"key_id":        {map[string]int{placesHead + calm + "key = \"id\"\n": 9}, []string{placesHead + "[[handler]]\nname = \"h\"\nkind = \"log\"\nordering = \"none\"\n" + route1 + "key = \"id\"\n"}},
	"ttl_short":     {map[string]int{placesHead + calmHook + route1 + "ttl_s = 4\n": 11}, []string{placesHead + calmHook + route1 + "ttl_s = 5\n"}},
}

// checkSite is a site with what the table needs.
func checkSite(t *testing.T) site {
	t.Helper()
	s := newSite(t)
	for name, mode := range map[string]os.FileMode{"plain": 0o600, "secret": 0o600, "open": 0o644, "program": 0o777} {
		require.NoError(t, os.WriteFile(s.path(name), []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"), 0o600))
		require.NoError(t, os.Chmod(s.path(name), mode))
	}
	return s
}

// check judges a text; %[1]s in it is the directory of the site.
func (s site) check(t *testing.T, text string) *node.Checked {
	t.Helper()
	if strings.Contains(text, "%[1]s") {
		text = fmt.Sprintf(text, s.dir)
	}
	require.NoError(t, os.WriteFile(s.path("f.toml"), []byte(text), 0o600))
	k, err := node.CheckFile(s.path("f.toml"))
	require.NoError(t, err, text)
	return k
}

func TestCheckWarns(t *testing.T) {
	t.Parallel()
	for code, tc := range surprises {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			s := checkSite(t)
			for text, line := range tc.bad {
				i := slices.IndexFunc(s.check(t, text).Warnings, func(w node.Warning) bool { return w.Code == code })
				require.GreaterOrEqual(t, i, 0, "no warning for:\n%s", text)
				w := s.check(t, text).Warnings[i]
				want := line
				if !strings.Contains(text, keyOf(w)+" = ") && line > 0 {
					want = w.Line // it stands at its table
				}
				require.Equal(t, want, w.Line, "%v\n%s", w, text)
				require.NotEmpty(t, w.Problem)
				require.NotEmpty(t, w.Allowed)
				require.NotContains(t, w.Error(), "\n")
				require.NotContains(t, w.Error(), "MfKQ9r8GKYqr")
			}
			for _, text := range tc.good {
				for _, w := range s.check(t, text).Warnings {
					require.NotEqual(t, code, w.Code, "%v\n%s", w, text)
				}
			}
		})
	}
}

// keyOf is the last key of a warning's path.
func keyOf(w node.Warning) string {
	key := w.Key[strings.LastIndex(w.Key, ".")+1:]
	name, _, _ := strings.Cut(key, "[")
	return name
}

// A plain configuration has no warnings; what depends on who runs the test aside.
func TestCheckIsQuiet(t *testing.T) {
	t.Parallel()
	s := checkSite(t)
	for _, text := range []string{placesHead + calm, placesHead + calmHook + route1, placesHead + calmCmd + "timeout_s = 20\n" + route1} {
		for _, w := range s.check(t, text).Warnings {
			require.Equal(t, "root_commands", w.Code, "%v", w)
		}
	}
}

func TestCheckWarnsOfAFileThatOthersCanWrite(t *testing.T) {
	t.Parallel()
	s := checkSite(t)
	s.check(t, placesHead+calm)
	require.NoError(t, os.Chmod(s.path("f.toml"), 0o622))
	k, err := node.CheckFile(s.path("f.toml"))
	require.NoError(t, err)
	require.Len(t, k.Warnings, 1)
	require.Equal(t, "config_writable", k.Warnings[0].Code)
}

// The list of warnings in docs/configuration.md is that of the code.
func TestWarningsAreDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/configuration.md")
	require.NoError(t, err)
	_, list, found := strings.Cut(string(doc), "\n## What config check warns of\n")
	require.True(t, found)
	list, _, _ = strings.Cut(list, "\n## ")
	var documented, known []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(list, -1) {
		documented = append(documented, m[1])
	}
	for _, file := range []string{"warn.go", "warn_handler.go", "warn_route.go"} {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`w\.add\("([a-z_]+)"`).FindAllStringSubmatch(string(b), -1) {
			if !slices.Contains(known, m[1]) {
				known = append(known, m[1])
			}
		}
	}
	require.ElementsMatch(t, known, documented)
	for _, code := range known {
		if code != "config_writable" && code != "root_commands" { // tested on their own, or not testable as any user
			require.Contains(t, surprises, code, "no test gets this warning")
		}
	}
}

func TestCheckFindsWhatAStartRefuses(t *testing.T) {
	t.Parallel()
	s := checkSite(t)
	require.NoError(t, os.WriteFile(s.path("f.toml"), []byte("[[handler]]\nname = \"a\"\nkind = \"webhook\"\nurl = \"http://127.0.0.1/\"\n\n[[handler]]\nname = \"b\"\nkind = \"webhook\"\nurl = \"http://169.254.169.254/\"\n"), 0o600))
	_, err := node.CheckFile(s.path("f.toml"))
	var faults config.Errors
	require.ErrorAs(t, err, &faults)
	require.Len(t, faults, 2, "%v", err)
	require.Equal(t, []int{4, 9}, []int{faults[0].Line, faults[1].Line})
	require.Contains(t, faults[0].Problem, "allow_addresses")
}

func TestPlansOfAnEvent(t *testing.T) {
	t.Parallel()
	s := checkSite(t)
	k := s.check(t, placesHead+"[http]\nmax_body_bytes = 1024\n"+calm+"type = \"a\"\nttl_s = 9\n[[route]]\nname = \"s\"\nhandler = \"h\"\nwhen = \"data.x > 1\"\n")
	plans, err := k.Plans([]byte(` [{"specversion":"1.0","id":"1","source":"/x","type":"a","subject":"k","data":{"x":2}}, {"specversion":"1.0","id":"2","source":"/x","type":"b","data":{}, "expirytime": "soon"}]`))
	require.NoError(t, err)
	require.Len(t, plans, 2)
	require.True(t, plans[0].Routes[0].Takes)
	require.Equal(t, "k", plans[0].Routes[0].To.Key)
	require.EqualValues(t, 9000, plans[0].Routes[0].To.TTLMS)
	require.Contains(t, plans[0].Routes[1].Why, "route r leads to the same target")
	require.Empty(t, plans[0].Refused)
	require.False(t, plans[1].Routes[0].Takes)
	require.NotEmpty(t, plans[1].Routes[1].To.Fault)
	require.Contains(t, plans[1].Refused, "expirytime")
	for _, text := range []string{"", "x", `{"id":"1"}`, `{"specversion":"1.0","id":"1","source":"/x","type":"a","data":"` + strings.Repeat("x", 2000) + `"}`} {
		_, err := k.Plans([]byte(text))
		require.Error(t, err, text)
	}
}

// Addresses that would be refused are told with all other faults of the file, each
// at its place, with the list that allows it.
func TestCheckTellsRefusedAddressesWithTheRest(t *testing.T) {
	t.Parallel()
	s := checkSite(t)
	text := "[node]\nworkers = 0\n" + // 2
		"[[handler]]\nname = \"h\"\nkind = \"webhook\"\nurl = \"http://127.0.0.1:1/\"\n" + // 6
		"[[handler]]\nname = \"i\"\nkind = \"webhook\"\nurl = \"http://[ff02::1]/\"\n" + // 10
		"[[handler]]\nname = \"j\"\nkind = \"webhook\"\nurl = \"http://[::1]/\"\nallow_addresses = [\"::1\"]\n" +
		"[[uplink]]\nname = \"u\"\nprobe = \"https://127.0.0.1/\"\n" // 18
	require.NoError(t, os.WriteFile(s.path("f.toml"), []byte(text), 0o600))
	_, err := node.CheckFile(s.path("f.toml"))
	var faults config.Errors
	require.ErrorAs(t, err, &faults)
	require.Len(t, faults, 4, "%v", err)
	for i, want := range []struct {
		line    int
		key     string
		allowed string
	}{
		{2, "node.workers", "1 to 1024"},
		{6, "handler[1].url", `"127.0.0.1" in allow_addresses of this handler, or of [node]`},
		{10, "handler[2].url", "the address of one host"},
		{18, "uplink[1].probe", `"127.0.0.1" in allow_addresses of [node]`},
	} {
		require.Equal(t, want.line, faults[i].Line, "%v", faults[i])
		require.Equal(t, want.key, faults[i].Key)
		require.Contains(t, faults[i].Allowed, want.allowed)
	}
}
