package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTemplatesOfHandlers(t *testing.T) {
	t.Parallel()
	c := mustParse(t, w+`
headers = { X-Order = "order ${subject}", X-Plain = "a" }
body = '{"text": "paid: ${data.amount}", "all": ${data}}'
[[handler]]
name = "text"
kind = "webhook"
url = "http://a.example/"
body = "hello ${id}"
content_type = "text/plain; charset=utf-8"
[[handler]]
name = "plain"
kind = "webhook"
url = "http://a.example/"
body = ""
content_type = ""
[[handler]]
name = "cmd"
kind = "command"
argv = ["/bin/echo", "${data.x}", "--name=${data.y}"]
env = { CITY = "${data.city ?? 'none'}" }
stdin = "${data.text}\n"
`)
	hook := c.Handlers[0].Webhook
	require.Equal(t, map[string]string{"X-Order": "order ${subject}", "X-Plain": "a"}, hook.Headers)
	require.Equal(t, `{"text": "paid: ${data.amount}", "all": ${data}}`, hook.Body) //nolint:testifylint // the text, not its meaning
	require.Equal(t, "application/json", hook.ContentType)
	require.Equal(t, "text/plain; charset=utf-8", c.Handlers[1].Webhook.ContentType)
	require.Empty(t, c.Handlers[2].Webhook.Body)
	require.Empty(t, c.Handlers[2].Webhook.ContentType)
	cmd := c.Handlers[3].Command
	require.Equal(t, []string{"/bin/echo", "${data.x}", "--name=${data.y}"}, cmd.Argv)
	require.Equal(t, "${data.text}\n", cmd.Stdin)
}

// What a shell or an interpreter does not take for code may come from the event.
func TestArgumentsOfInterpreters(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		exe("sh", "-c", `echo "$1"`, "sh", "${data.x}"),
		exe("bash", "-euo", "pipefail", "/srv/job.sh", "${data.x}"),
		exe("python3", "/srv/job.py", "--email=${data.x}"),
		exe("python3", "-W", "ignore", "/srv/job.py", "--email=${data.x}", "-v", "${data.y}"),
		exe("node", "--require", "/srv/a.js", "/srv/job.js", "--email=${data.x}"),
		exe("python3", "/srv/job.py", "--name=x", "${data.x}"),
		exe("python3", "-m", "job", "${data.x}"),
		exe("env", "A=1", "/usr/local/bin/notify", "${data.x}"),
		exe("sudo", "-u", "shop", "/usr/local/bin/notify", "${data.x}"),
		exe("/usr/local/bin/notify", "bash", "-c", "${data.x}"),
	} {
		mustParse(t, text)
	}
}
