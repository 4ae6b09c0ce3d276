package config_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge/config"
)

// Beginnings of files for the table below.
const (
	w   = "[[handler]]\nname = \"h\"\nkind = \"webhook\"\nurl = \"http://a.example/\"\n" // 4 lines
	cmd = "[[handler]]\nname = \"h\"\nkind = \"command\"\nargv = [\"/bin/true\"]\n"      // 4 lines
	l   = "[[handler]]\nname = \"h\"\nkind = \"log\"\n"                                  // 3 lines
	r   = l + "[[route]]\nname = \"r\"\nhandler = \"h\"\n"                               // 6 lines
)

// exe is a command of these arguments.
func exe(argv ...string) string {
	return "[[handler]]\nname = \"h\"\nkind = \"command\"\nargv = ['" + strings.Join(argv, "', '") + "']\n"
}

type bad struct {
	text    string
	line    int
	key     string
	problem string // part of it
	allowed string // part of it
}

var badFiles = map[string]bad{
	// TOML itself.
	"no value":              {"[node]\nworkers =\n", 2, "", "value", "toml.io"},
	"an open string":        {"[node]\n\ndata = \"x\n", 3, "", "", "toml.io"},
	"an open list":          {"[http]\nallowed_hosts = [\"a\"", 2, "", "incomplete", "toml.io"},
	"two keys on a line":    {"[node]\nworkers = 1 lease_s = 2\n", 2, "", "expected newline", "toml.io"},
	"an open header":        {"[node\nworkers = 1\n", 1, "", "", "toml.io"},
	"a bare word":           {"[node]\ndata = fencepost\n", 2, "", "", "toml.io"},
	"a leading zero":        {"[node]\nworkers = 010\n", 2, "", "", "toml.io"},
	"a control character":   {"[node]\ndata = \"a\x00b\"\n", 2, "", "", "toml.io"},
	"a number of 30 digits": {"[node]\nworkers = 100000000000000000000000000000\n", 2, "", "too large", "toml.io"},
	"a key twice":           {"[node]\nworkers = 1\nworkers = 2\n", 3, "node.workers", "already", "once"},
	"a section twice":       {"[node]\nworkers = 1\n[node]\nlease_s = 60\n", 3, "node", "already", "once"},
	"a key twice in a list": {l + "effect = \"once\"\neffect = \"once\"\n", 5, "handler[1].effect", "already", "once"},
	"a header twice":        {w + "[handler.headers]\nX-A = \"1\"\nX-A = \"2\"\n", 7, "handler[1].headers.X-A", "already", "once"},
	"a section and a list":  {"[handler]\nname = \"h\"\n[[handler]]\nname = \"i\"\n", 3, "handler", "already", "once"},
	"bad UTF-8":             {"[node]\n# caf\xe9\n", 2, "", "not valid UTF-8", "save the file as UTF-8"},
	"UTF-16":                {"\xff\xfe[\x00n\x00", 1, "", "not valid UTF-8", "save the file as UTF-8"},
	"deep nesting":          {"[node]\nx = [[[[[[[[[[1]]]]]]]]]]\n", 2, "", "nested too deeply", "at most 8"},
	"a deep key":            {"a.b.c.d.e.f.g.h.i.j = 1\n", 1, "", "nested too deeply", "at most 8"},
	"a deep header":         {"\n[a.b.c.d.e.f.g.h.i.j]\n", 2, "", "nested too deeply", "at most 8"},
	"a deep table":          {"a = {b={c={d={e={f={g={h={i={j=1}}}}}}}}}\n", 1, "", "nested too deeply", "at most 8"},
	"too many keys":         {"[node]\n" + many("key% = 1\n", 1001), 1002, "node", "the table has too many keys", "at most 1000"},
	"too many tables":       {many("[t%]\n", 1001), 1001, "", "the table has too many keys", "at most 1000"},
	"too many items":        {"x = [\n" + many("%,\n", 10_001) + "]", 10_002, "x", "the list has too many items", "at most 10000"},
	"too many routes":       {many("[[route]]\n", 10_001), 10_001, "route", "the list has too many items", "at most 10000"},
	"very deep nesting":     {"x = " + strings.Repeat("[", 20_000), 1, "", "nested", ""},
	// Keys that nobody knows.
	"an unknown section":     {"\n[nodes]\nworkers = 1\n", 2, "nodes", "unknown key", "did you mean node?"},
	"an unknown top key":     {"workers = 1\n", 1, "workers", "unknown key", "it is a key of [node]"},
	"a top key of nobody":    {"wombats = 1\n", 1, "wombats", "unknown key", "known are handler, http, node, retention, route, storage"},
	"a key of [http]":        {"[node]\nlisten = \":1\"\n", 2, "node.listen", "unknown key", "it is a key of [http]"},
	"a key of [node]":        {"[http]\ndata = \"x\"\n", 2, "http.data", "unknown key", "it is a key of [node]"},
	"a key of a route":       {l + "ttl_s = 1\n", 4, "handler[1].ttl_s", "unknown key", "it is a key of [[route]]"},
	"a key of a command":     {r + "argv = []\n", 7, "route[1].argv", "unknown key", "it is a key of [[handler]]"},
	"a key of two":           {"name = \"x\"\n", 1, "name", "unknown key", "it is a key of [[uplink]] and [[handler]] and [[route]]"},
	"a whole command line":   {"[[handler]]\nname = \"h\"\nkind = \"command\"\nargv = [\"bin/x --token canary\"]\n", 4, "handler[1].argv[1]", "it is not the absolute path", "each argument as a text of its own"},
	"a program near by":      {"[[handler]]\nname = \"h\"\nkind = \"command\"\nargv = [\"./backup.sh\"]\n", 4, "handler[1].argv[1]", `"./backup.sh" is not the absolute path`, "such as /usr/local/bin/backup.sh, or a bare name that is found in PATH"},
	"a misspelt key":         {"[node]\nworker = 1\n", 2, "node.worker", "unknown key", "did you mean workers?"},
	"letters swapped":        {"[http]\nlitsen = \"\"\n", 2, "http.litsen", "unknown key", "did you mean listen?"},
	"a missing unit":         {"[node]\nlease = 60\n", 2, "node.lease", "unknown key", "did you mean lease_s?"},
	"a unit far away":        {"[retention]\nfailed = 7\n", 2, "retention.failed", "unknown key", "did you mean failed_days?"},
	"a misspelt handler key": {w + "uri = \"x\"\n", 5, "handler[1].uri", "unknown key", "did you mean url?"},
	"a misspelt route key":   {r + "handlers = \"h\"\n", 7, "route[1].handlers", "unknown key", "did you mean handler?"},
	"a key with a space":     {"[node]\n\"wor kers\" = 1\n", 2, `node."wor kers"`, "unknown key", "workers"},
	"a key with a line end":  {"[node]\n\"a\\nb\" = 1\n", 2, `node."a\nb"`, "unknown key", "known are"},
	"a dotted key":           {"node.wrokers = 1\n", 1, "node.wrokers", "unknown key", "did you mean workers?"},
	"a table too many":       {"[node.workers]\nx = 1\n", 1, "node.workers", "is a table", "a whole number"},
	// Wrong types.
	"node is a number":     {"node = 1\n", 1, "node", "is a whole number", "[node]"},
	"node is a list":       {"[[node]]\nworkers = 1\n", 1, "node", "is a list", "[node]"},
	"handler is a table":   {"[handler]\nname = \"h\"\n", 1, "handler", "is a table", "[[handler]]"},
	"route holds a string": {"route = [\"x\"]\n", 1, "route[1]", "is a string", "[[route]]"},
	"a number as text":     {"[node]\nworkers = \"64\"\n", 2, "node.workers", "is a string", "a whole number"},
	"a fraction":           {"[node]\nlease_s = 1.5\n", 2, "node.lease_s", "is a number with a fraction", "a whole number"},
	"infinity":             {"[node]\nlease_s = inf\n", 2, "node.lease_s", "is a number with a fraction", "a whole number"},
	"a date":               {"[node]\nlease_s = 2026-01-01\n", 2, "node.lease_s", "is a date or time", "a whole number"},
	"text as a number":     {"[node]\ndata = 1\n", 2, "node.data", "is a whole number", "a string"},
	"hosts as text":        {"[http]\nallowed_hosts = \"a\"\n", 2, "http.allowed_hosts", "is a string", "a list"},
	"a host as a number":   {"[http]\nallowed_hosts = [\n  \"a\",\n  2,\n]\n", 4, "http.allowed_hosts[2]", "is a whole number", "a string"},
	"a flag as text":       {w + "success_409 = \"yes\"\n", 5, "handler[1].success_409", "is a string", "true or false"},
	"headers as a list":    {w + "headers = []\n", 5, "handler[1].headers", "is a list", "a table of strings"},
	"a header as a number": {w + "[handler.headers]\nX-A = 1\n", 6, "handler[1].headers.X-A", "is a whole number", "a string"},
	// [node] and [http].
	"no data":                {"[node]\ndata = \"\"\n", 2, "node.data", "is empty", "path"},
	"an unknown on_loss":     {"[node]\non_loss = \"ignore\"\n", 2, "node.on_loss", "unknown value", `"hold", "refuse"`},
	"an unknown durability":  {"[node]\ndurability = \"off\"\n", 2, "node.durability", "unknown value", `"full", "normal"`},
	"no workers":             {"[node]\nworkers = 0\n", 2, "node.workers", "0 is out of range", "1 to 1024"},
	"too many workers":       {"[node]\nworkers = 1025\n", 2, "node.workers", "1025 is out of range", "1 to 1024"},
	"a negative lease":       {"[node]\nlease_s = -1\n", 2, "node.lease_s", "-1 is out of range", "5 to 600"},
	"the least number":       {"[node]\nlease_s = -9223372036854775808\n", 2, "node.lease_s", "out of range", "5 to 600"},
	"the largest number":     {"[retention]\nfailed_days = 9223372036854775807\n", 2, "retention.failed_days", "out of range", "1 to 3650"},
	"a long grace":           {"[node]\nshutdown_grace_s = 3601\n", 2, "node.shutdown_grace_s", "out of range", "0 to 3600"},
	"an unknown level":       {"[node]\nlog_level = \"INFO\"\n", 2, "node.log_level", "unknown value", `"info"`},
	"an unknown format":      {"[node]\nlog_format = \"xml\"\n", 2, "node.log_format", "unknown value", `"text", "json"`},
	"no dedupe":              {"[retention]\ndedupe_days = 0\n", 2, "retention.dedupe_days", "out of range", "1 to 3650"},
	"bytes that are few":     {"[storage]\nmax_backlog_bytes = 100\n", 2, "storage.max_backlog_bytes", "less than a mebibyte", "0 for no bound, or at least 1048576"},
	"negative bytes":         {"[retention]\nfailed_bytes = -1\n", 2, "retention.failed_bytes", "out of range", "0, or 1048576 to 1125899906842624"},
	"nothing to drop":        {"[storage]\nat_backlog_bound = \"drop_oldest\"\n", 2, "storage.at_backlog_bound", "nothing may be dropped", "drop_handlers"},
	"a drop of nobody":       {"[storage]\nat_backlog_bound = \"drop_oldest\"\ndrop_handlers = [\"ghost\"]\n", 3, "storage.drop_handlers[1]", "no handler", "of this file"},
	"a drop without effect":  {l + "[storage]\ndrop_handlers = [\"h\"]\n", 5, "storage.drop_handlers", "has no effect", "drop_oldest"},
	"a port alone":           {"[http]\nlisten = \"8080\"\n", 2, "http.listen", "not host and port", "host:port"},
	"a port by name":         {"[http]\nlisten = \"localhost:http\"\n", 2, "http.listen", "the port is not", "host:port"},
	"a port too high":        {"[http]\nlisten = \":65536\"\n", 2, "http.listen", "the port is not", "host:port"},
	"a bad address":          {"[http]\nlisten = \"local host:80\"\n", 2, "http.listen", "neither an address nor a name", "host:port"},
	"a host with a scheme":   {"[http]\nallowed_hosts = [\"http://a\"]\n", 2, "http.allowed_hosts[1]", "not a host name", "without scheme"},
	"a host with a star":     {"[http]\nallowed_hosts = [\"*.example\"]\n", 2, "http.allowed_hosts[1]", "not a host name", "without scheme"},
	"no token file":          {"[http]\ntoken_file = \"\"\n", 2, "http.token_file", "is empty", "path"},
	"a small body":           {"[http]\nmax_body_bytes = 1023\n", 2, "http.max_body_bytes", "out of range", "1024 to 16777216"},
	"the database as token":  {"[node]\ndata = \"a/x.db\"\n[http]\ntoken_file = \"a/./x.db\"\n", 4, "http.token_file", "belongs to the database", "another path"},
	"the log as token":       {"[node]\ndata = \"x.db\"\n[http]\ntoken_file = \"x.db-wal\"\n", 4, "http.token_file", "belongs to the database", "another path"},
	"the lock as socket":     {"[node]\ndata = \"x.db\"\n[http]\nsocket = \"x.db.lock\"\n", 4, "http.socket", "belongs to the database", "another path"},
	"the token as socket":    {"[http]\nsocket = \"fencepost.db.token\"\n", 2, "http.socket", "is http.token_file too", "another path"},
	"a path with a line end": {"[http]\nsocket = \"a\\nb\"\n", 2, "http.socket", "control character", "path"},
	// [[handler]].
	"no name":               {"[[handler]]\nkind = \"log\"\n", 1, "handler[1]", "name is missing", "lower-case"},
	"no kind":               {"[[handler]]\nname = \"h\"\n", 1, "handler[1]", "kind is missing", `"webhook", "command", "log"`},
	"an unknown kind":       {"[[handler]]\nname = \"h\"\nkind = \"http\"\nurl = \"x\"\n", 3, "handler[1].kind", "unknown value", `"webhook", "command", "log"`},
	"an upper-case name":    {"[[handler]]\nname = \"H\"\nkind = \"log\"\n", 2, "handler[1].name", "not a name", "lower-case"},
	"a name with a colon":   {"[[handler]]\nname = \"a:b\"\nkind = \"log\"\n", 2, "handler[1].name", "not a name", "lower-case"},
	"a name with a dot up":  {"[[handler]]\nname = \".a\"\nkind = \"log\"\n", 2, "handler[1].name", "not a name", "lower-case"},
	"a long name":           {"[[handler]]\nname = \"" + strings.Repeat("a", 65) + "\"\nkind = \"log\"\n", 2, "handler[1].name", "not a name", "at most 64"},
	"a name twice":          {l + l, 5, "handler[2].name", `"h" is the name of line 2 too`, "once"},
	"url of a command":      {cmd + "url = \"http://a/\"\n", 5, "handler[1].url", "belongs to kind webhook", "of kind command"},
	"argv of a webhook":     {w + "argv = [\"x\"]\n", 5, "handler[1].argv", "belongs to kind command", "of kind webhook"},
	"env of a log":          {l + "env = {}\n", 4, "handler[1].env", "belongs to kind command", "of kind log"},
	"a transactional hook":  {w + "effect = \"transactional\"\n", 5, "handler[1].effect", "unknown value", `"idempotent", "once"`},
	"an unknown ordering":   {l + "ordering = \"fifo\"\nslots = 3\n", 4, "handler[1].ordering", "unknown value", `"strict", "none"`},
	"slots and order":       {l + "slots = 2\n", 4, "handler[1].slots", "not in order", `ordering = "none"`},
	"one slot unordered":    {l + "ordering = \"none\"\nslots = 1\n", 5, "handler[1].slots", "strict order", "2 to 64"},
	"too many slots":        {l + "ordering = \"none\"\nslots = 65\n", 5, "handler[1].slots", "out of range", "1 to 64"},
	"halt without order":    {l + "ordering = \"none\"\non_failure = \"halt\"\n", 5, "handler[1].on_failure", "no line to halt", `"continue"`},
	"an unknown on_failure": {l + "on_failure = \"stop\"\n", 4, "handler[1].on_failure", "unknown value", `"continue", "halt"`},
	"no concurrency":        {l + "concurrency = 0\n", 4, "handler[1].concurrency", "out of range", "1 to 1024"},
	"no timeout":            {l + "timeout_s = 0\n", 4, "handler[1].timeout_s", "0 is out of range", "1 to 86400"},
	"no attempts":           {l + "max_attempts = 0\n", 4, "handler[1].max_attempts", "out of range", "1 to 1000"},
	"many once attempts":    {cmd + "max_attempts = 17\n", 5, "handler[1].max_attempts", "17 is out of range", "1 to 16"},
	"no losses":             {l + "max_losses = 0\n", 4, "handler[1].max_losses", "out of range", "1 to 1000"},
	"giving up at once":     {l + "give_up_after_h = 0\n", 4, "handler[1].give_up_after_h", "out of range", "1 to 8760"},
	"schedule and base":     {l + "retry_schedule_s = [1]\nretry_base_s = 1\n", 5, "handler[1].retry_base_s", "excludes retry_schedule_s", "one of the two"},
	"schedule and max":      {l + "retry_schedule_s = [1]\nretry_max_s = 1\n", 5, "handler[1].retry_max_s", "excludes retry_schedule_s", "one of the two"},
	"no delay":              {l + "retry_schedule_s = [5, 0]\n", 4, "handler[1].retry_schedule_s[2]", "0 is out of range", "1 to 2592000"},
	"a long schedule":       {l + "retry_schedule_s = [" + strings.Repeat("1,", 65) + "]\n", 4, "handler[1].retry_schedule_s", "has 65 items", "at most 64"},
	"max below base":        {l + "retry_base_s = 10\nretry_max_s = 9\n", 5, "handler[1].retry_max_s", "less than retry_base_s", ""},
	// Webhooks.
	"no url":                {"[[handler]]\nname = \"h\"\nkind = \"webhook\"\n", 1, "handler[1]", "url is missing", "receiver"},
	"ftp":                   {"[[handler]]\nname = \"h\"\nkind = \"webhook\"\nurl = \"ftp://a/\"\n", 4, "handler[1].url", "not an http or https URL", "http://"},
	"a relative url":        {"[[handler]]\nname = \"h\"\nkind = \"webhook\"\nurl = \"/hook\"\n", 4, "handler[1].url", "not an http or https URL", "http://"},
	"no host in the url":    {"[[handler]]\nname = \"h\"\nkind = \"webhook\"\nurl = \"http:///x\"\n", 4, "handler[1].url", "has no host", "http://"},
	"a fragment":            {"[[handler]]\nname = \"h\"\nkind = \"webhook\"\nurl = \"http://a/#b\"\n", 4, "handler[1].url", "has a fragment", "http://"},
	"port 0":                {"[[handler]]\nname = \"h\"\nkind = \"webhook\"\nurl = \"http://a:0/\"\n", 4, "handler[1].url", "the port is not", "http://"},
	"a broken url":          {"[[handler]]\nname = \"h\"\nkind = \"webhook\"\nurl = \"http://a b/\"\n", 4, "handler[1].url", "not a URL", "http://"},
	"a secret in the file":  {w + "secrets = [\"env:A\", \"whsec_c2VjcmV0\"]\n", 5, "handler[1].secrets[2]", "must not stand in the file", `"env:NAME" or "file:/path"`},
	"an empty secret":       {w + "secrets = [\"\"]\n", 5, "handler[1].secrets[1]", "must not stand in the file", `"env:NAME"`},
	"a relative secret":     {w + "secrets = [\"file:secret\"]\n", 5, "handler[1].secrets[1]", "not a well-formed reference", `"file:/path"`},
	"a strange variable":    {w + "secrets = [\"env:A-B\"]\n", 5, "handler[1].secrets[1]", "not a well-formed reference", `"env:NAME"`},
	"a literal credential":  {w + "headers = { Authorization = \"Bearer abc\" }\n", 5, "handler[1].headers.Authorization", "must not stand in the file", `"env:NAME"`},
	"a reserved header":     {w + "headers = { Host = \"a\" }\n", 5, "handler[1].headers.Host", "set by the delivery or by HTTP", "any other name"},
	"a header of ours":      {w + "headers = { webhook-id = \"a\" }\n", 5, "handler[1].headers.webhook-id", "set by the delivery", "other name"},
	"a header with a colon": {w + "headers = { \"X:\" = \"a\" }\n", 5, `handler[1].headers."X:"`, "not a header name", "letters"},
	"a split header":        {w + "headers = { X-A = \"a\\r\\nX-B: c\" }\n", 5, "handler[1].headers.X-A", "control character U+000D", "without control"},
	"a header by two names": {w + "[handler.headers]\nx-a = \"1\"\nX-A = \"2\"\n", 6, "handler[1].headers.x-a", "given twice", "once"},
	"too many headers":      {w + "[handler.headers]\n" + many("X-%=\"1\"\n", 33), 5, "handler[1].headers", "has 33 entries", "at most 32"},
	"status 200":            {w + "permanent_status = [200]\n", 5, "handler[1].permanent_status[1]", "200 is out of range", "300 to 599"},
	"a status twice":        {w + "permanent_status = [404, 404]\n", 5, "handler[1].permanent_status[2]", "404 is given twice", "once"},
	// Commands.
	"no argv":              {"[[handler]]\nname = \"h\"\nkind = \"command\"\n", 1, "handler[1].argv", "there is no program", "argv = ["},
	"an empty argv":        {"[[handler]]\nname = \"h\"\nkind = \"command\"\nargv = []\n", 4, "handler[1].argv", "there is no program", "argv = ["},
	"an empty program":     {"[[handler]]\nname = \"h\"\nkind = \"command\"\nargv = [\"\", \"a\"]\n", 4, "handler[1].argv[1]", "not the absolute path or the bare name", "absolute path"},
	"a relative program":   {"[[handler]]\nname = \"h\"\nkind = \"command\"\nargv = [\"bin/x\"]\n", 4, "handler[1].argv[1]", "not the absolute path or the bare name", "absolute path"},
	"long arguments":       {"[[handler]]\nname = \"h\"\nkind = \"command\"\nargv = [" + strings.Repeat("\""+strings.Repeat("a", 4096)+"\",", 9) + "]\n", 4, "handler[1].argv", "has 36864 bytes", "at most 32768"},
	"a relative dir":       {cmd + "dir = \"tmp\"\n", 5, "handler[1].dir", "is not absolute", "an absolute path"},
	"status 410":           {w + "permanent_status = [404, 410]\n", 5, "handler[1].permanent_status[2]", "410 has a meaning", "any other"},
	"url of a number":      {"[[handler]]\nname = \"h\"\nkind = \"webhook\"\nurl = \"http://2130706433/\"\n", 4, "handler[1].url", "the host is a number", "192.0.2.1"},
	"rate as a text":       {w + "rate_per_s = \"1\"\n", 5, "handler[1].rate_per_s", "is a string", "must be a number"},
	"rate not a number":    {w + "rate_per_s = nan\n", 5, "handler[1].rate_per_s", "out of range", "0 to 10000"},
	"rate too slow":        {w + "rate_per_s = 1e-9\n", 5, "handler[1].rate_per_s", "less than one a day", "0 for no limit"},
	"gate off, no breaker": {w + "breaker_failures = 0\ngate_off_after_h = 1\n", 6, "handler[1].gate_off_after_h", "nothing tells", "breaker_failures"},
	"no such uplink":       {"[[uplink]]\nname = \"wan\"\nprobe = \"a.example:1\"\n" + w + "uplink = \"wam\"\n", 8, "handler[1].uplink", "no uplink is named \"wam\"", "did you mean wan?"},
	"uplink twice":         {"[[uplink]]\nname = \"u\"\nprobe = \"a:1\"\n[[uplink]]\nname = \"u\"\nprobe = \"a:1\"\n", 5, "uplink[2].name", "is the name of line 2 too", "each name once"},
	"uplink over http":     {"[[uplink]]\nname = \"u\"\nprobe = \"http://a.example/\"\n", 3, "uplink[1].probe", "not an https URL", "a.example:443"},
	"uplink without probe": {"[[uplink]]\nname = \"u\"\n", 1, "uplink[1]", "probe is missing", "https URL"},
	"uplink port":          {"[[uplink]]\nname = \"u\"\nprobe = \"a.example:0\"\n", 3, "uplink[1].probe", "the port", "a.example:443"},
	"address as a name":    {w + "allow_addresses = [\"localhost\"]\n", 5, "handler[1].allow_addresses[1]", "neither an address nor a range", "127.0.0.0/8"},
	"address with a zone":  {w + "allow_addresses = [\"fe80::1%lo\"]\n", 5, "handler[1].allow_addresses[1]", "neither an address nor a range", "127.0.0.0/8"},
	"range with host bits": {w + "allow_addresses = [\"::1\", \"127.0.0.1/8\"]\n", 5, "handler[1].allow_addresses[2]", "bits beyond its range", "127.0.0.0/8"},
	"range mapped":         {w + "allow_addresses = [\"::ffff:127.0.0.0/104\"]\n", 5, "handler[1].allow_addresses[1]", "IPv4 range in the form of IPv6", "127.0.0.0/8"},
	"status 409 both ways": {w + "success_409 = true\npermanent_status = [409]\n", 6, "handler[1].permanent_status[1]", "409 is success", "one of the two"},
	"too many secrets":     {w + "secrets = [" + strings.Repeat("\"env:A\",", 9) + "]\n", 5, "handler[1].secrets", "has 9 items", "at most 8"},
	"argv as text":         {"[[handler]]\nname = \"h\"\nkind = \"command\"\nargv = \"echo a\"\n", 4, "handler[1].argv", "is a string", "a list"},
	"an argument with NUL": {"[[handler]]\nname = \"h\"\nkind = \"command\"\nargv = [\"a\", \"\\u0000\"]\n", 4, "handler[1].argv[2]", "holds NUL", "without NUL"},
	"a variable with =":    {cmd + "env = { \"A=B\" = \"1\" }\n", 5, `handler[1].env."A=B"`, "not the name of an environment variable", "letters"},
	"a variable of ours":   {cmd + "env = { FENCEPOST_KEY = \"1\" }\n", 5, "handler[1].env.FENCEPOST_KEY", "set by the node", "FENCEPOST_"},
	"a literal password":   {cmd + "env = { DB_PASSWORD = \"1\" }\n", 5, "handler[1].env.DB_PASSWORD", "must not stand in the file", `"env:NAME"`},
	"exit 256":             {cmd + "success_exit = [256]\n", 5, "handler[1].success_exit[1]", "256 is out of range", "0 to 255"},
	"an exit of both":      {cmd + "success_exit = [0, 3]\nretry_exit = [3]\n", 6, "handler[1].retry_exit", "3 means both", "one list"},
	"a default exit":       {cmd + "success_exit = [0, 75]\n", 5, "handler[1].success_exit", "75 means both", "retry_exit = [75]"},
	// [[route]].
	"no route name":        {l + "[[route]]\nhandler = \"h\"\n", 4, "route[1]", "name is missing", "lower-case"},
	"no route handler":     {l + "[[route]]\nname = \"r\"\n", 4, "route[1]", "handler is missing", "[[handler]]"},
	"a route name twice":   {r + "[[route]]\nname = \"r\"\nhandler = \"h\"\n", 8, "route[2].name", `"r" is the name of line 5 too`, "once"},
	"an unknown handler":   {"[[handler]]\nname = \"hello\"\nkind = \"log\"\n[[route]]\nname = \"r\"\nhandler = \"helo\"\n", 6, "route[1].handler", `no handler is named "helo"`, "did you mean hello?"},
	"a handler far away":   {l + "[[route]]\nname = \"r\"\nhandler = \"completely-else\"\n", 6, "route[1].handler", "no handler is named", "such as h"},
	"no handlers at all":   {"[[route]]\nname = \"r\"\nhandler = \"h\"\n", 3, "route[1].handler", "no handler is named", "there is no handler"},
	"an empty pattern":     {r + "type = \"\"\n", 7, "route[1].type", "the pattern is empty", "any run of characters"},
	"a long pattern":       {r + "source = \"" + strings.Repeat("a", 513) + "\"\n", 7, "route[1].source", "has 513 bytes", "512"},
	"a pattern with a tab": {r + "subject = \"a\\t\"\n", 7, "route[1].subject", "U+0009", "control characters"},
	"time as key":          {r + "key = \"time\"\n", 7, "route[1].key", "cannot be a key", `"subject"`},
	"a url of data":        {"[[handler]]\nname = \"h\"\nkind = \"webhook\"\nurl = \"http://${data.host}/\"\n", 4, "handler[1].url", "holds ${", "cannot decide where a request goes"},
	"a path of data":       {"[[handler]]\nname = \"h\"\nkind = \"webhook\"\nurl = \"http://a.example/${data.x}\"\n", 4, "handler[1].url", "holds ${", "headers or body"},
	"a program of data":    {"[[handler]]\nname = \"h\"\nkind = \"command\"\nargv = [\"/bin/${data.x}\"]\n", 4, "handler[1].argv[1]", "the program holds ${", "write the program"},
	"a directory of data":  {cmd + "dir = \"/srv/${data.x}\"\n", 5, "handler[1].dir", "holds ${", "where a program runs"},
	"a header template":    {w + "headers = { X-A = \"${data.x +}\" }\n", 5, "handler[1].headers.X-A", "${...} number 1: column 8", "see docs/expressions.md"},
	"a header of lines":    {w + "headers = { X-A = \"${id}\\r\\nX-B: 1\" }\n", 5, "handler[1].headers.X-A", "control character", "see docs/expressions.md"},
	"a header of a list":   {w + "headers = { X-A = \"${[id]}\" }\n", 5, "handler[1].headers.X-A", "number 1 gives a list", "see docs/expressions.md"},
	"a token of data":      {w + "headers = { X-Token = \"${data.t}\" }\n", 5, "handler[1].headers.X-Token", "a secret must not stand in the file", "env:NAME"},
	"Host of data":         {w + "headers = { Host = \"${data.t}\" }\n", 5, "handler[1].headers.Host", "set by the delivery or by HTTP", "any other name"},
	"a reference of data":  {w + "headers = { X-A = \"env:${data.x}\" }\n", 5, "handler[1].headers.X-A", "not a well-formed reference", "env:NAME"},
	"a body of text":       {w + "body = \"hello ${id}\"\n", 5, "handler[1].body", "it is not JSON", "text/plain; charset=utf-8"},
	"a body half quoted":   {w + "body = '{\"a\": \"${id}}'\n", 5, "handler[1].body", "it is not JSON", "content_type"},
	"a body, long":         {w + "body = '\"" + strings.Repeat("x", 4096) + "\"'\n", 5, "handler[1].body", "has 4098 bytes", "at most 4096"},
	"a type alone":         {w + "content_type = \"text/plain\"\n", 5, "handler[1].content_type", "there is no body", "with its own type"},
	"a type of data":       {w + "body = \"1\"\ncontent_type = \"${id}/x\"\n", 6, "handler[1].content_type", "not a content type", "a media type"},
	"a type without /":     {w + "body = \"x\"\ncontent_type = \"json\"\n", 6, "handler[1].content_type", "not a content type", "a media type"},
	"body of a command":    {cmd + "body = \"1\"\n", 5, "handler[1].body", "belongs to kind webhook", "of kind command"},
	"stdin of a webhook":   {w + "stdin = \"1\"\n", 5, "handler[1].stdin", "belongs to kind command", "of kind webhook"},
	"a stdin template":     {cmd + "stdin = \"${\"\n", 5, "handler[1].stdin", "has no }", "see docs/expressions.md"},
	"an option of data":    {exe("/bin/echo", "--${data.x}"), 4, "handler[1].argv[2]", "must not decide the name of an option", "see docs/expressions.md"},
	"half an option":       {exe("/bin/echo", "-l${data.x}"), 4, "handler[1].argv[2]", "must not decide the name of an option", "see docs/expressions.md"},
	"an argument template": {exe("/bin/echo", "x", "${dta}"), 4, "handler[1].argv[3]", "dta is not known", "docs/expressions.md"},
	"code of data":         {exe("/bin/sh", "-c", "echo ${data.x}"), 4, "handler[1].argv[3]", "takes this argument for code", "standard input"},
	"code, letters joined": {exe("bash", "-euxo", "pipefail", "-lc", "echo ${data.x}"), 4, "handler[1].argv[5]", "takes this argument for code", "standard input"},
	"code of python":       {exe("/usr/bin/python3.12", "-c", "print(${data.x})"), 4, "handler[1].argv[3]", "takes this argument for code", "standard input"},
	"code of perl":         {exe("perl", "-ne", "${data.x}"), 4, "handler[1].argv[3]", "takes this argument for code", "standard input"},
	"code by --eval":       {exe("node", "--eval", "${data.x}"), 4, "handler[1].argv[3]", "takes this argument for code", "standard input"},
	"code of awk":          {exe("awk", "{print ${data.x}}"), 4, "handler[1].argv[2]", "takes this argument for code", "standard input"},
	"a script of data":     {exe("sh", "${data.x}"), 4, "handler[1].argv[2]", "takes this argument for code", "standard input"},
	"a script after -I":    {exe("perl", "-I", "/srv/lib", "${data.x}"), 4, "handler[1].argv[4]", "takes this argument for code", "standard input"},
	"a script after -W":    {exe("python3", "-bW", "ignore", "${data.x}"), 4, "handler[1].argv[4]", "takes this argument for code", "standard input"},
	"a script after -O":    {exe("bash", "-O", "extglob", "${data.x}"), 4, "handler[1].argv[4]", "takes this argument for code", "standard input"},
	"the value of -I":      {exe("ruby", "-I", "${data.x}", "/srv/a.rb"), 4, "handler[1].argv[3]", "takes this argument for code", "standard input"},
	"code after a group":   {exe("bash", "-Bo", "pipefail", "-lc", "${data.x}"), 4, "handler[1].argv[5]", "takes this argument for code", "standard input"},
	"code after code":      {exe("perl", "-e", "1", "-e", "${data.x}"), 4, "handler[1].argv[5]", "takes this argument for code", "standard input"},
	"an option of sed":     {exe("sed", "s/a/b/", "--expression=${data.x}"), 4, "handler[1].argv[3]", "takes this argument for code", "standard input"},
	"an option's value":    {exe("sh", "--rcfile=${data.x}"), 4, "handler[1].argv[2]", "takes this argument for code", "standard input"},
	"code under sudo":      {exe("sudo", "-n", "/bin/bash", "-c", "${data.x}"), 4, "handler[1].argv[5]", "takes this argument for code", "standard input"},
	"code of busybox":      {exe("busybox", "sh", "-c", "${data.x}"), 4, "handler[1].argv[4]", "takes this argument for code", "standard input"},
	"code over ssh":        {exe("ssh", "host", "logger", "${data.x}"), 4, "handler[1].argv[4]", "takes this argument for code", "standard input"},
	"PATH of data":         {cmd + "env = { PATH = \"${data.x}\" }\n", 5, "handler[1].env.PATH", "decides what code runs", "without ${...}"},
	"LD_PRELOAD of data":   {cmd + "env = { LD_PRELOAD = \"${data.x}\" }\n", 5, "handler[1].env.LD_PRELOAD", "decides what code runs", "without ${...}"},
	"a variable template":  {cmd + "env = { A = \"${data.}\" }\n", 5, "handler[1].env.A", "number 1", "see docs/expressions.md"},
	"an empty when":        {r + "when = \"\"\n", 7, "route[1].when", "is empty", "such as when = "},
	"half a when":          {r + "when = \"data.amount >\"\n", 7, "route[1].when", "column 13: the expression ends too early", "docs/expressions.md"},
	"when without data":    {r + "when = \"amount > 1\"\n", 7, "route[1].when", "column 1: amount is not known; the names are id,", "docs/expressions.md"},
	"when with a clock":    {r + "when = \"now() > time\"\n", 7, "route[1].when", "reads no clock", "see docs/expressions.md"},
	"when gives a number":  {r + "when = \"1 + 1\"\n", 7, "route[1].when", "it gives a number", "see docs/expressions.md"},
	"when of other kinds":  {r + "when = \"type == 1\"\n", 7, "route[1].when", "column 6: a text is compared with a number", "see docs/expressions.md"},
	"when on two lines":    {r + "when = \"true and\\n  type @ 1\"\n", 7, "route[1].when", "line 2, column 8", "see docs/expressions.md"},
	"an open key":          {r + "key = \"${data.id\"\n", 7, "route[1].key", "${...} number 1 has no }", "see docs/expressions.md"},
	"a bad key template":   {r + "key = \"a-${id}-${dta.id}\"\n", 7, "route[1].key", "${...} number 2: column 1: dta is not known", "docs/expressions.md"},
	"a key of control":     {r + "key = \"${id}\\n\"\n", 7, "route[1].key", "control character", "see docs/expressions.md"},
	"a key expression":     {r + "key = \"data.id\"\n", 7, "route[1].key", "not the name of an attribute", `"subject"`},
	"a negative ttl":       {r + "ttl_s = -1\n", 7, "route[1].ttl_s", "-1 is out of range", "0 to 31536000"},
}

func many(line string, n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Replace(line, "%", strconv.Itoa(i), 1))
	}
	return b.String()
}

func TestBadFiles(t *testing.T) {
	t.Parallel()
	for name, tc := range badFiles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := config.Parse("bad.toml", []byte(tc.text))
			var errs config.Errors
			require.ErrorAs(t, err, &errs)
			require.Len(t, errs, 1, "%v", err)
			f := errs[0]
			require.Equal(t, tc.line, f.Line, "%v", f)
			require.Equal(t, tc.key, f.Key)
			require.Contains(t, f.Problem, tc.problem)
			require.Contains(t, f.Allowed, tc.allowed)
			require.NotEmpty(t, f.Allowed)
			require.True(t, strings.HasPrefix(f.Error(), "bad.toml:"+strconv.Itoa(tc.line)+":"), f.Error())
			require.NotContains(t, f.Error(), "canary")
			require.NotContains(t, f.Error(), "\n")
		})
	}
}

func TestAllFaultsAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := config.Parse("f.toml", []byte(strings.Join([]string{
		"[node]",
		"wokers = 1",
		"lease_s = 1",
		"[[handler]]",
		`name = "hello"`,
		`kind = "webhook"`,
		`url = "ftp://x"`,
		`dir = "/"`,
		"[[route]]",
		`name = "r"`,
		`handler = "hallo"`,
	}, "\n")))
	require.EqualError(t, err, strings.Join([]string{
		`f.toml:2:1: node.wokers: unknown key; did you mean workers?`,
		`f.toml:3:1: node.lease_s: 1 is out of range; 5 to 600`,
		`f.toml:7:1: handler[1].url: not an http or https URL; http:// or https://, host and path, at most 2048 bytes`,
		`f.toml:8:1: handler[1].dir: belongs to kind command; this handler is of kind webhook; remove the key or change the kind`,
		`f.toml:11:1: route[1].handler: no handler is named "hallo"; did you mean hello?`,
	}, "\n"))
	var one config.Fault
	require.ErrorAs(t, err, &one)
	require.Equal(t, 2, one.Line)
}

func TestFaultsAreBounded(t *testing.T) {
	t.Parallel()
	_, err := config.Parse("f.toml", []byte("[node]\n"+many("key% = 1\n", 1000)))
	var errs config.Errors
	require.ErrorAs(t, err, &errs)
	require.Len(t, errs, config.MaxFaults+1)
	require.Equal(t, "f.toml: 900 more faults are not listed; mend these first", errs[config.MaxFaults].Error())
}

func TestNumberOfHandlersAndRoutes(t *testing.T) {
	t.Parallel()
	_, err := config.Parse("f.toml", []byte(many("[[handler]]\nname=\"h%\"\nkind=\"log\"\n", config.MaxHandlers+1)))
	require.ErrorContains(t, err, "handler: there are 1001; at most 1000")
	c, err := config.Parse("f.toml", []byte(l+many("[[route]]\nname=\"r%\"\nhandler=\"h\"\n", config.MaxRoutes)))
	require.NoError(t, err)
	require.Len(t, c.Routes, config.MaxRoutes)
}

func TestTooLargeFile(t *testing.T) {
	t.Parallel()
	_, err := config.Parse("f.toml", []byte(strings.Repeat("#", config.MaxFileBytes+1)))
	require.EqualError(t, err, "f.toml: the file is too large; at most 1048576 bytes")
	_, err = config.Parse("f.toml", []byte(strings.Repeat("#", config.MaxFileBytes)))
	require.NoError(t, err)
}

// canary stands where a secret could stand; no fault may show it.
const canary = "canaryZ9Z8Z7"

func TestNoFaultShowsASecret(t *testing.T) {
	t.Parallel()
	q := `"` + canary + `"`
	for name, text := range map[string]string{
		"secret":             w + "secrets = [" + q + "]",
		"secret as text":     w + "secrets = " + q,
		"secret unquoted":    w + "secrets = [" + canary + "]",
		"secret unclosed":    w + "secrets = [\"" + canary + "]",
		"secret escaped":     w + "secrets = [\"\\q" + canary + "\"]",
		"a wrong reference":  w + "secrets = [\"env:" + canary + "-\"]",
		"a wrong path":       w + "secrets = [\"file:" + canary + "\"]",
		"an unknown key":     w + "secret = " + q,
		"an unknown section": "[secrets]\na = " + q,
		"a key twice":        w + "secrets = [" + q + "]\nsecrets = [" + q + "]",
		"userinfo":           "[[handler]]\nname=\"h\"\nkind=\"webhook\"\nurl = \"http://me:" + canary + "@a.example/\"",
		"a broken url":       "[[handler]]\nname=\"h\"\nkind=\"webhook\"\nurl = \"http://a.example/" + canary + "%zz\"",
		"a url with a port":  "[[handler]]\nname=\"h\"\nkind=\"webhook\"\nurl = \"http://me:" + canary + "/\"",
		"a bad url":          "[[handler]]\nname=\"h\"\nkind=\"webhook\"\nurl = " + q,
		"a credential":       w + "headers = { Authorization = \"Bearer " + canary + "\" }",
		"a cookie":           w + "headers = { Cookie = " + q + " }",
		"an API key":         w + "headers = { X-Api-Key = " + q + " }",
		"a split header":     w + "headers = { X-A = \"" + canary + "\\n\" }",
		"a reserved header":  w + "headers = { Host = " + q + " }",
		"a list of headers":  w + "headers = [" + q + "]",
		"an argument":        "[[handler]]\nname=\"h\"\nkind=\"command\"\nargv = [\"a\", \"" + canary + "\\u0000\"]",
		"argv as text":       "[[handler]]\nname=\"h\"\nkind=\"command\"\nargv = " + q,
		"argv of a webhook":  w + "argv = [" + q + "]",
		"a password":         cmd + "env = { PASSWORD = " + q + " }",
		"a bad variable":     cmd + "env = { \"A B\" = " + q + " }",
		"a token":            "[http]\ntoken = " + q,
		"a token as a list":  "[http]\ntoken_file = [" + q + "]",
		"a level":            "[node]\nlog_level = " + q,
		"a name":             "[[handler]]\nname = " + q + "\nkind = \"log\"",
		"a kind":             "[[handler]]\nname = \"h\"\nkind = " + q,
		"a handler":          l + "[[route]]\nname = \"r\"\nhandler = " + q,
		"a key attribute":    r + "key = " + q,
		"a key template":     r + "key = '${data " + q + "}'",
		"when":               r + "when = '1 " + q + "'",
		"when, unfinished":   r + "when = 'type == (" + q + " '",
		"a pattern":          r + "type = \"" + canary + "\\n\"",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := config.Parse("f.toml", []byte(text))
			require.Error(t, err)
			for _, part := range []string{canary, canary[:6], canary[6:]} {
				require.NotContains(t, err.Error(), part)
			}
		})
	}
}

func TestP26_EveryFaultNamesFileAndWayOut(t *testing.T) {
	t.Parallel()
	// Each line of the example, damaged in a few ways, either loads or says where and what.
	lines := strings.Split(readExample(t), "\n")
	faults := 0
	for i, line := range lines {
		if line == "" || line[0] == '#' {
			continue
		}
		for _, damaged := range []string{line + " x", "x" + line, strings.ReplaceAll(line, "\"", ""), line + "\n" + line, strings.Replace(line, "=", "= -", 1)} {
			changed := append([]string{}, lines...)
			changed[i] = damaged
			_, err := config.Parse("f.toml", []byte(strings.Join(changed, "\n")))
			var errs config.Errors
			if !errors.As(err, &errs) {
				require.NoError(t, err)
				continue
			}
			for _, f := range errs {
				faults++
				require.Equal(t, "f.toml", f.File)
				require.Positive(t, f.Line, "%v", f)
				require.NotEmpty(t, f.Problem)
				require.NotEmpty(t, f.Allowed)
			}
		}
	}
	require.Greater(t, faults, 100)
}
