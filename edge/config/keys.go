package config

import (
	"slices"
	"strings"
)

// When says when a changed key takes effect. docs/configuration.md says it of
// each key in these words.
type When string

// Values of When.
const (
	// AtReload: as soon as a reload has answered. For a route: the next
	// event that is accepted.
	AtReload When = "reload"
	// AtClaim: with the next claim of a delivery. What runs at the time of
	// the reload ends as it began.
	AtClaim When = "next claim"
	// AtRestart: not before the node is restarted. A reload that changes
	// such a key is refused whole.
	AtRestart When = "restart"
)

// Key is one key of the file.
type Key struct {
	Section string // as it is written in the file: "[node]", "[[handler]]"
	Name    string
	When    When
	of      func(*Config) any // its value; nil in a list of tables
}

// Path is the key as a fault names it, as in node.workers; in a list of tables
// without its number, as in handler.url.
func (k Key) Path() string { return strings.Trim(k.Section, "[]") + "." + k.Name }

// timed has a row for each key outside of lists of tables, and for those keys of
// [[handler]] and [[route]] that do not follow the rule of their list: a handler
// changes with the next claim, a route with the reload.
var timed = map[string]struct {
	when When
	of   func(*Config) any
}{
	"node.data":                {AtRestart, func(c *Config) any { return c.Node.Data }},
	"node.durability":          {AtRestart, func(c *Config) any { return c.Node.Durability }},
	"node.on_loss":             {AtRestart, func(c *Config) any { return c.Node.OnLoss }},
	"node.workers":             {AtReload, func(c *Config) any { return c.Node.Workers }},
	"node.lease_s":             {AtRestart, func(c *Config) any { return c.Node.Lease }},
	"node.shutdown_grace_s":    {AtReload, func(c *Config) any { return c.Node.ShutdownGrace }},
	"node.log_level":           {AtReload, func(c *Config) any { return c.Node.LogLevel }},
	"node.log_format":          {AtRestart, func(c *Config) any { return c.Node.LogFormat }},
	"node.allow_private":       {AtClaim, func(c *Config) any { return c.Node.AllowPrivate }},
	"node.allow_addresses":     {AtClaim, func(c *Config) any { return c.Node.AllowAddresses }},
	"node.allow_root_commands": {AtReload, func(c *Config) any { return c.Node.AllowRootCommands }},

	"http.listen":             {AtRestart, func(c *Config) any { return c.HTTP.Listen }},
	"http.allowed_hosts":      {AtReload, func(c *Config) any { return c.HTTP.AllowedHosts }},
	"http.token_file":         {AtRestart, func(c *Config) any { return c.HTTP.TokenFile }},
	"http.metrics_token_file": {AtRestart, func(c *Config) any { return c.HTTP.MetricsTokenFile }},
	"http.max_body_bytes":     {AtReload, func(c *Config) any { return c.HTTP.MaxBodyBytes }},
	"http.socket":             {AtRestart, func(c *Config) any { return c.HTTP.Socket }},
	"http.socket_group":       {AtRestart, func(c *Config) any { return c.HTTP.SocketGroup }},

	"retention.succeeded_days":  {AtReload, func(c *Config) any { return c.Retention.Succeeded }},
	"retention.succeeded_bytes": {AtReload, func(c *Config) any { return c.Retention.SucceededBytes }},
	"retention.failed_days":     {AtReload, func(c *Config) any { return c.Retention.Failed }},
	"retention.failed_bytes":    {AtReload, func(c *Config) any { return c.Retention.FailedBytes }},
	"retention.dedupe_days":     {AtReload, func(c *Config) any { return c.Retention.Dedupe }},

	"storage.max_backlog_bytes": {AtReload, func(c *Config) any { return c.Storage.MaxBacklogBytes }},
	"storage.at_backlog_bound":  {AtReload, func(c *Config) any { return c.Storage.AtBacklogBound }},
	"storage.drop_handlers":     {AtReload, func(c *Config) any { return c.Storage.DropHandlers }},
	"storage.low_water_bytes":   {AtReload, func(c *Config) any { return c.Storage.LowWaterBytes }},

	"handler.concurrency": {AtReload, nil},
}

// Keys lists every key that the package knows, in the order of the sections and
// then of the alphabet. A key that belongs to several kinds of handlers is
// listed once.
func Keys() []Key {
	var all []Key
	for _, s := range sections() {
		names := keysOf(s.read)
		if s.form == "[[handler]]" {
			for _, more := range kindKeys {
				names = append(names, more...)
			}
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			k := Key{Section: s.form, Name: name}
			row, timed := timed[k.Path()]
			switch {
			case timed:
				k.When, k.of = row.when, row.of
			case s.form == "[[handler]]":
				k.When = AtClaim
			case s.form == "[[route]]", s.form == "[[uplink]]":
				k.When = AtReload
			}
			all = append(all, k)
		}
	}
	return all
}
