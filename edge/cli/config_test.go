package cli_test

import (
	"os"
	"strings"
	"testing"

	"fencepost/edge/api"

	"github.com/stretchr/testify/require"
)

const checkable = "[[handler]]\nname = \"one\"\nkind = \"log\"\n[[handler]]\nname = \"two\"\nkind = \"log\"\n" +
	"[[route]]\nname = \"all\"\nhandler = \"one\"\nttl_s = 60\n[[route]]\nname = \"paid\"\ntype = \"order.paid\"\nhandler = \"one\"\nkey = \"source\"\n" +
	"[[route]]\nname = \"large\"\nhandler = \"two\"\nwhen = \"data.amount > 100\"\n"

func TestConfigCheck_AGoodFile(t *testing.T) {
	t.Parallel()
	s := newSite(t, strings.ReplaceAll(checkable, "two", "one"))
	s.configure(t, checkable)
	file := s.path("fencepost.toml")
	require.NoError(t, os.WriteFile(s.path("event.json"), []byte(`{"specversion":"1.0","id":"e1","source":"/till/7","type":"order.paid","data":{"amount":50}}`), 0o600))
	out := s.ok(t, "config", "check", file, "--event", s.path("event.json"))
	require.Contains(t, out, file+" is good: 2 handlers, 3 routes")
	require.Contains(t, out, "event e1 of /till/7, type order.paid")
	require.Regexp(t, `(?m)^all +yes +one +one: +after 1m0s +-$`, out)
	require.Regexp(t, `(?m)^paid +yes +one +one:/till/7 +never +-$`, out)
	require.Regexp(t, `(?m)^large +no +two +- +- +when is false: "data.amount > 100"$`, out)
	require.Contains(t, out, "\n2 deliveries\n")
	require.Contains(t, out, "warning: "+file)

	// By --config, from standard input, as JSON.
	r := s.runWith(t, strings.NewReader(`{"specversion":"1.0","id":"e2","source":"/x","type":"y"}`), "config", "check", "--json", "--event", "-")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, `"good": true`)
	require.Contains(t, r.out, `"code": "route_doubled"`)
	require.Contains(t, r.out, `"fault": "when: `)
	require.NoFileExists(t, s.path("db"), "nothing is made")
	require.NoFileExists(t, s.path("db.token"))

	r = s.run(t, "config", "check", "--strict")
	require.Equal(t, api.ExitFailed, r.code)
	require.Empty(t, r.err)
}

func TestConfigCheck_FaultsAndMisuse(t *testing.T) {
	t.Parallel()
	s := newSite(t, "wokers = 1\n[[handler]]\nname = \"a\"\nkind = \"log\"\n[[route]]\nname = \"r\"\nhandler = \"b\"\nwhen = \"data.x >\"\n")
	r := s.run(t, "config", "check")
	require.Equal(t, api.ExitUsage, r.code)
	require.Empty(t, r.out)
	require.Contains(t, r.err, "http.wokers: unknown key")
	require.Contains(t, r.err, `route[1].handler: no handler is named "b"; did you mean a?`)
	require.Regexp(t, `fencepost\.toml:\d+:1: route\[1\]\.when: column \d+: `, r.err)
	r = s.run(t, "config", "check", "--json")
	require.Equal(t, api.ExitUsage, r.code)
	require.Contains(t, r.out, `"good": false`)
	require.Contains(t, r.out, `"key": "route[1].when"`)

	s.configure(t, checkable)
	for _, args := range [][]string{
		{"config"}, {"config", "check", "a", "b"}, {"config", "check", s.path("none.toml")}, {"config", "check", "--event", s.path("none.json")},
	} {
		r := s.run(t, args...)
		require.Equal(t, api.ExitUsage, r.code, "%v: %s", args, r.err)
		require.NotEmpty(t, r.err)
	}
	r = s.runWith(t, strings.NewReader(`{"specversion":"1.0","id":"e2"}`), "config", "check", "--event", "-")
	require.Equal(t, api.ExitUsage, r.code)
	require.Contains(t, r.err, "--event -: /source: must not be empty")
}

// An example event goes as far as the texts that its handlers make of it, needs no
// more than send --batch does, and is told all that is wrong with it.
func TestConfigCheck_TheEventInTheHandler(t *testing.T) {
	t.Parallel()
	s := newSite(t, "[[handler]]\nname = \"greet\"\nkind = \"command\"\nargv = [\"/bin/echo\", \"${data.name}\"]\n"+
		"[[handler]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \"https://a.example/\"\nbody = '{\"n\":${json(data.count)}}'\n"+
		"[[route]]\nname = \"one\"\nhandler = \"greet\"\n[[route]]\nname = \"two\"\nhandler = \"hook\"\n")
	check := func(event string, args ...string) result {
		return s.runWith(t, strings.NewReader(event), append([]string{"config", "check", "--event", "-"}, args...)...)
	}
	r := check(`{"id":"1","source":"/x","type":"y","data":{"name":"-Ana"}}`)
	require.Zero(t, r.code, r.err)
	require.Regexp(t, `(?m)^one +blocked +greet +greet: +\S.* template_error: argv\[2\]: `, r.out)
	require.Regexp(t, `(?m)^two +blocked +hook +hook: +\S.* template_error: body: .*data.count`, r.out)
	r = check(`{"id":"1","source":"/x","type":"y","data":{"name":"-Ana","count":1}}`, "--json")
	require.Zero(t, r.code, r.err)
	require.Equal(t, 1, strings.Count(r.out, `"template_fault": "argv[2]: `), r.out)
	require.NotContains(t, r.out, `"template_fault": "body`)
	r = check(`{"id":"1","source":"/x","type":"y","data":{"name":"Ana","count":1}}`)
	require.NotContains(t, r.out, "template_error")
	require.Contains(t, r.out, "\n2 deliveries\n")

	r = check(`[{"id":"1","type":"y"},{"id":"2","source":"/x"},{"specversion":"0.3","id":"3","source":"/x","type":"y"}]`)
	require.Equal(t, api.ExitUsage, r.code)
	for _, pointer := range []string{"/0/source: ", "/1/type: ", "/2/specversion: "} {
		require.Contains(t, r.err, "--event -: "+pointer)
	}
	require.NotContains(t, r.err, "more)")
}
