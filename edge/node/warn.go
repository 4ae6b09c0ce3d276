package node

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"time"

	"fencepost/edge/api"
	"fencepost/edge/config"
)

// warner looks for what is allowed and yet will surprise.
type warner struct {
	c      *config.Config
	src    *config.Source
	checks map[string]checker
	found  []Warning
}

// add notes a warning at the place of a key.
func (w *warner) add(code, key, problem, advice string) {
	w.found = append(w.found, Warning{Fault: w.src.Fault(key, problem, advice), Code: code})
}

func (w *warner) all() []Warning {
	w.node()
	w.doors()
	w.retention()
	for i := range w.c.Handlers {
		w.handler(i)
	}
	w.uplinks()
	w.routes()
	sort.SliceStable(w.found, func(i, j int) bool {
		a, b := w.found[i], w.found[j]
		return a.Line < b.Line || a.Line == b.Line && a.Column < b.Column
	})
	return w.found
}

func (w *warner) node() {
	if w.c.Node.Durability == config.Normal {
		w.add("durability_normal", "node.durability", "a power loss may cost about the last second of what was acknowledged", `"full" costs one sync of the disk per commit`)
	}
	dir := filepath.Dir(w.c.Node.Data)
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		w.add("data_directory", "node.data", "the directory "+dir+" is not there, so the node would not start", "make it, owned by the user of the node, with mode 0700")
	}
	if m := mode(w.c.File); runtime.GOOS != "windows" && m&0o022 != 0 {
		w.add("config_writable", "", fmt.Sprintf("others can write this file (mode %04o), and so have the node run commands of theirs", m), "chmod go-w it")
	}
	if os.Geteuid() == 0 && !w.c.Node.AllowRootCommands && w.hasCommands() {
		w.add("root_commands", "node.allow_root_commands", "as root, who runs this check, the node would refuse to start: its commands would run as root", "run it as a user of its own")
	}
	if len(w.c.Handlers) == 0 {
		w.add("no_handlers", "", "there is no handler: events are stored and go nowhere", "add a [[handler]] and a [[route]]; config.example.toml has some of each kind")
	}
}

func (w *warner) hasCommands() bool {
	for i := range w.c.Handlers {
		if w.c.Handlers[i].Kind == config.KindCommand {
			return true
		}
	}
	return false
}

func (w *warner) doors() {
	h := w.c.HTTP
	switch host, _, err := net.SplitHostPort(h.Listen); {
	case h.Listen == "" && h.Socket == "":
		w.add("no_door", "http.listen", "neither listen nor socket is set: nobody can send events", "set one of them")
	case err != nil:
	case host != "localhost" && !net.ParseIP(host).IsLoopback():
		w.add("listen_open", "http.listen", "other hosts can reach the listener, and the token travels in clear", "put a TLS proxy in front, or listen on 127.0.0.1")
	}
	if h.Socket == "" {
		w.add("no_socket", "http.socket", "there is no socket: fencepost status, reload and all other commands cannot reach the node", "give it a path")
	} else if _, err := api.CheckSocket(h.Socket, api.SocketOptions{Group: h.SocketGroup}); err != nil {
		w.add("socket_refused", "http.socket", "the node would not start: "+err.Error(), "another path, or remove what is there")
	}
	if h.Listen == "" {
		return
	}
	for _, f := range (&tokens{}).files(w.c) {
		if _, err := api.ReadToken(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.add("token_refused", f.key, "the node would not start: the token file "+f.path+" "+err.Error(), "make it a file of the node's user that nobody else can read")
		}
	}
}

// shortDedupe is less than many producers go on repeating an event.
const shortDedupe = 3 * 24 * time.Hour

func (w *warner) retention() {
	r := w.c.Retention
	if r.Dedupe < r.Succeeded {
		w.add("dedupe_short", "retention.dedupe_days", "is less than succeeded_days: an event is remembered as long as one of its deliveries is kept, so this has little effect", "at least succeeded_days, so that it is clear how long a repeated event is known")
	}
	if r.Dedupe < shortDedupe {
		w.add("dedupe_brief", "retention.dedupe_days", "an event that its producer repeats later than that is delivered a second time", "more days than any producer goes on trying")
	}
}
