package node

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"fencepost/edge"
	"fencepost/edge/config"
	"fencepost/handlers"
)

// handler warns of handler i of the file.
func (w *warner) handler(i int) {
	h := &w.c.Handlers[i]
	at := fmt.Sprintf("handler[%d]", i+1)
	if !w.routed(h.Name) {
		w.add("handler_unrouted", at+".name", "no route leads to this handler: only work that it was owed before is done", "add a [[route]], or remove the handler")
	}
	if h.Concurrency > w.c.Node.Workers {
		w.add("concurrency_unreached", at+".concurrency", fmt.Sprintf("is %d, but node.workers lets only %d deliveries run at once in all", h.Concurrency, w.c.Node.Workers), "raise workers, or lower this")
	}
	if h.Halt {
		w.add("halts", at+".on_failure", "one delivery that fails stops all others of its target until a person acts", "watch for it: fencepost target --stalled lists such lines, fencepost target resume and redrive end the stop")
	}
	if h.Effect == edge.Once && h.Timeout > w.c.Node.ShutdownGrace {
		w.add("grace_short", at+".timeout_s", fmt.Sprintf("is %s, longer than shutdown_grace_s (%s): what runs when the node stops is cut then, and of effect once it is blocked until a person decides", h.Timeout, w.c.Node.ShutdownGrace), "lower it, or raise node.shutdown_grace_s (and TimeoutStopSec of the unit)")
	}
	w.retry(h, at)
	for _, ref := range secretRefs(h) {
		if _, err := handlers.ResolveSecret(ref); err != nil {
			w.add("secret_missing", w.refPlace(h, at, ref), err.Error()+": deliveries are blocked until it is there", "supply it to the node; this check sees the environment and the rights of who runs it, which may differ from the node's")
		}
	}
	if k := w.checks[h.Name]; k != nil {
		if err := k.Check(); err != nil {
			w.add("program_missing", at+".argv", strings.ReplaceAll(err.Error(), "\n", "; ")+": deliveries are blocked until it is there", "install it, or give its absolute path")
		}
	}
	switch {
	case h.Webhook != nil:
		w.webhook(h, at)
	case h.Command != nil:
		w.command(h, at)
	}
}

// refPlace is the key in which a reference stands.
func (w *warner) refPlace(h *config.Handler, at, ref string) string {
	if h.Webhook != nil {
		for i, s := range h.Webhook.Secrets {
			if s == ref {
				return fmt.Sprintf("%s.secrets[%d]", at, i+1)
			}
		}
		return placeIn(at+".headers", h.Webhook.Headers, ref)
	}
	if h.Command != nil {
		return placeIn(at+".env", h.Command.Env, ref)
	}
	return at
}

func placeIn(at string, values map[string]string, ref string) string {
	for name, v := range values {
		if v == ref {
			return at + "." + name
		}
	}
	return at
}

func (w *warner) routed(handler string) bool {
	for i := range w.c.Routes {
		if w.c.Routes[i].Handler == handler {
			return true
		}
	}
	return false
}

// retry warns of delays that never come.
func (w *warner) retry(h *config.Handler, at string) {
	most, giveUp := h.Retry.Budget()
	var sum time.Duration
	for i, d := range h.Retry.Schedule {
		sum += d
		switch {
		case !w.src.Has(at + ".retry_schedule_s"): // the default's tail is for those who raise the limit
			return
		case most > 0 && i >= most-1:
			w.add("retry_unreached", at+".retry_schedule_s", fmt.Sprintf("the delays after number %d are never used: max_attempts is %d", i, most), "raise max_attempts, or shorten the list")
			return
		case giveUp > 0 && sum > giveUp:
			w.add("retry_unreached", at+".retry_schedule_s", fmt.Sprintf("the delays from number %d on are never used: a delivery is given up %s after its first start", i+1, giveUp), "raise give_up_after_h, or shorten the list")
			return
		}
	}
	if len(h.Retry.Schedule) > 0 {
		return
	}
	longest := h.Retry.Base
	for n := 2; n < most && longest < h.Retry.Max; n++ {
		longest *= 2
	}
	if w.src.Has(at+".retry_max_s") && longest < h.Retry.Max {
		w.add("retry_unreached", at+".retry_max_s", fmt.Sprintf("is never reached: the longest of %d attempts' delays is %s", most, longest), "raise max_attempts or retry_base_s, or lower this")
	}
	if most == 1 {
		w.add("no_retry", at+".max_attempts", "there is no second attempt: whatever goes wrong once fails the delivery", "2 or more, unless that is meant")
	}
}

func (w *warner) webhook(h *config.Handler, at string) {
	u, err := url.Parse(h.Webhook.URL)
	if err != nil {
		return
	}
	if h.Effect == edge.Once {
		w.add("once_webhook", at+".effect", "when an answer does not arrive, nobody knows whether the receiver acted: the delivery is blocked until a person decides", `"idempotent", if the receiver knows a repeated Webhook-Id`)
	}
	secret := len(h.Webhook.Secrets) > 0
	for _, v := range h.Webhook.Headers {
		secret = secret || handlers.IsSecretRef(v)
	}
	if !secret {
		w.add("unsigned", at+".url", "requests are not signed and carry no secret: the receiver cannot tell them from anyone's", `secrets = ["env:NAME"]`)
	}
	if u.Scheme == "http" && !near(u.Hostname()) {
		w.add("plain_http", at+".url", "events travel in clear over the network", "https://")
	}
	if loopbackRefused(u.Hostname(), webhookPolicy(h.Webhook)) {
		w.add("loopback_refused", at+".url", "the name stands for this host, whose own address is refused: deliveries are blocked with address_refused", `allow_addresses = ["127.0.0.1", "::1"], if that is meant`)
	}
	if w.own(u) {
		w.add("own_door", at+".url", "is the node's own listener: an event would make events without end", "the address of another program")
	}
}

// near reports whether a host is on this machine or in a private network, as far
// as its name tells.
func near(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		a = a.Unmap()
		return a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast()
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	for _, end := range []string{"localhost", ".local", ".lan", ".internal", ".home.arpa", ".test"} {
		if strings.HasSuffix(host, end) {
			return true
		}
	}
	return !strings.Contains(host, ".")
}

// own reports whether a URL leads to the node's own listener.
func (w *warner) own(u *url.URL) bool {
	host, port, err := net.SplitHostPort(w.c.HTTP.Listen)
	if err != nil || port == "0" || u.Port() != port {
		return false
	}
	ip := net.ParseIP(host)
	local := u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()
	return u.Hostname() == host || local && (ip == nil || ip.IsLoopback() || ip.IsUnspecified())
}

func (w *warner) command(h *config.Handler, at string) {
	c := h.Command
	if h.Effect == edge.Idempotent {
		w.add("command_repeated", at+".effect", "after a crash, a timeout or a lost lease the command is run again with the same FENCEPOST_KEY", `"once", unless a second run does no harm`)
	}
	if len(c.SuccessExit) == 0 {
		w.add("no_success", at+".success_exit", "no exit code means success: no delivery can succeed", "such as [0]")
	}
	if len(c.Argv) == 0 || !filepath.IsAbs(c.Argv[0]) || runtime.GOOS == "windows" {
		return
	}
	if m := mode(c.Argv[0]); m&0o022 != 0 {
		w.add("program_writable", at+".argv[1]", fmt.Sprintf("others can write the program (mode %04o), and the node would run what they write", m), "chmod go-w it")
	}
}
