// Package config reads fencepost's configuration: one TOML file, strict, with
// every fault reported at once by file, line and key.
//
// [Load] reads a file, [Parse] reads bytes. Both either return a whole, valid
// [Config] or an [Errors] that lists what is wrong and what is allowed; there is
// nothing in between. A key that the package does not know is a fault, so a
// misspelt key can never be silently without effect. Secrets are never written
// into the file: where one is needed the file says where it is, as env:NAME or
// file:/path, and no fault ever shows the text that stood in its place.
//
// A relative path is relative to the directory of the file that [Load] reads;
// [Parse], which knows of no file, leaves paths as they are written.
//
// To add a key, touch three places; tests tell of the one that was forgotten:
//
//   - here: a field of [Config] with its default in [Default], a line in the
//     reader of its section that reads and checks it, and a row in keys.go that
//     says when a change takes effect (a key of [[handler]] or [[route]] needs a
//     row only if it does not follow the rule of its list; a new section is
//     also named in sections.go and in parse);
//   - config.example.toml: the key at its default, with one sentence;
//   - docs/configuration.md: a row with type, allowed values, default and when a
//     change takes effect.
//
// A key that [AtReload] promises for is applied by package node when it reloads.
package config

import (
	"log/slog"
	"net/netip"
	"runtime"
	"time"

	"fencepost/edge"
)

// Config is a whole configuration. A Config returned by [Parse] or [Load] is
// valid; it is not changed afterwards and may be read from many goroutines.
type Config struct {
	File      string // what [Load] or [Parse] was given as name; "" for Default
	Node      Node
	HTTP      HTTP
	Retention Retention
	Storage   Storage
	Handlers  []Handler // in the order of the file
	Routes    []Route   // in the order of the file
	Uplinks   []Uplink  // in the order of the file
}

// Node is the section [node].
type Node struct {
	Data          string        // data: path of the database file
	Durability    Durability    // durability
	OnLoss        OnLoss        // on_loss: what a start does when commits have vanished
	Workers       int           // workers: deliveries that run at once, over all handlers
	Lease         time.Duration // lease_s
	ShutdownGrace time.Duration // shutdown_grace_s: how long running work may end by itself
	LogLevel      slog.Level    // log_level
	LogFormat     LogFormat     // log_format
	// AllowPrivate, allow_private: connections may go to private addresses.
	AllowPrivate bool
	// AllowAddresses, allow_addresses: ranges to which every handler may
	// connect, though they are special.
	AllowAddresses []netip.Prefix
	// AllowRootCommands is allow_root_commands: whether a node that runs as root
	// may have handlers of kind "command".
	AllowRootCommands bool
}

// HTTP is the section [http].
type HTTP struct {
	Listen       string   // listen: host:port; "" = no TCP listener
	AllowedHosts []string // allowed_hosts: Host names beside the loopback ones, lower case, without port
	// MetricsTokenFile is metrics_token_file: file that holds the token that
	// may read the metrics, and do nothing else; "" = nobody may.
	MetricsTokenFile string
	TokenFile        string // token_file: file that holds the access token
	MaxBodyBytes     int    // max_body_bytes: limit of one event's data
	Socket           string // socket: path of the Unix socket; "" = none
	SocketGroup      string // socket_group: whose members may use the socket too; "" = nobody's
}

// Handler is one [[handler]]. Exactly one of Webhook and Command is set for
// those kinds, none for [KindLog].
type Handler struct {
	Name        string
	Kind        Kind
	Effect      edge.Effect
	Slots       int           // deliveries of one target at once: 1 = strict order, more = ordering "none"
	Concurrency int           // deliveries of this handler at once
	Timeout     time.Duration // of one execution
	Halt        bool          // on_failure = "halt"
	Retry       edge.RetryPolicy
	MaxLosses   int
	Rate        edge.Rate    // rate_per_s, rate_burst; the zero value is no limit
	Breaker     edge.Breaker // breaker_failures, gate_off_after_h
	Uplink      string       // uplink: name of an [[uplink]] of this file; "" = none
	Webhook     *Webhook
	Command     *Command
	Line        int // of the handler in the file
}

// Webhook holds the keys of a handler of kind "webhook".
type Webhook struct {
	URL             string
	Secrets         []string          // references to signing secrets, newest first; none = not signed
	Headers         map[string]string // extra headers by canonical name; a secret is a reference, and a text may be a template
	Body            string            // template of the body; "" = the event's data as received
	ContentType     string            // of Body; "" without one
	PermanentStatus []int             // HTTP statuses that repeating cannot help
	Success409      bool              // 409 Conflict means "had it already"
	AllowPrivate    bool              // that of [Node]
	AllowAddresses  []netip.Prefix    // special ranges to which it may connect: those of [Node], then its own
}

// Command holds the keys of a handler of kind "command".
type Command struct {
	Argv        []string          // program and arguments, never given to a shell; an argument may be a template
	Dir         string            // working directory, absolute; "" = the handler's default
	Env         map[string]string // further variables; a secret is a reference, and a text may be a template
	Stdin       string            // template of the standard input; "" = the event's data as received
	SuccessExit []int             // exit codes that mean succeeded
	RetryExit   []int             // exit codes that mean "try again"
}

// Route is one [[route]]. Patterns match whole attributes; `*` stands for any
// run of characters.
type Route struct {
	Name    string
	Type    string // pattern of the event's type; "*" = all
	Source  string // pattern of the source; "*" = all
	Subject string // pattern of the subject; "*" = all, none too
	When    string // condition, see package expression; "true" = always
	Handler string // name of a handler of this file
	// Key names the attribute that becomes the target's key, or is a template
	// with ${...}; "" = one line for the whole handler; nil = the default
	// rule, [edge.DefaultKey].
	Key  *string
	TTL  time.Duration // deliveries expire this long after accept; 0 = never
	Line int           // of the route in the file
}

// Durability is what an acknowledged write survives.
type Durability string

// Values of durability.
const (
	Full   Durability = "full"   // power loss
	Normal Durability = "normal" // a crash of the process; power loss may cost the last second
)

// OnLoss is what a start does when the database and its side file disagree.
type OnLoss string

// Values of on_loss.
const (
	LossHold   OnLoss = "hold"   // take events, deliver nothing until a person decides
	LossRefuse OnLoss = "refuse" // do not start
)

// LogFormat is the form of the log.
type LogFormat string

// Values of log_format.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// Kind is the kind of a handler.
type Kind string

// Values of kind.
const (
	KindWebhook Kind = "webhook"
	KindCommand Kind = "command"
	KindLog     Kind = "log"
)

// Limits of a configuration. What is larger is a fault.
const (
	MaxFileBytes = 1 << 20 // the whole file
	MaxHandlers  = 1000
	MaxRoutes    = 10000
	MaxHeaders   = 32
	MaxEnv       = 64
	MaxArgs      = 256
	MaxListItems = 64       // of any other list
	MaxBodyBytes = 16 << 20 // that http.max_body_bytes can be
	MaxTextBytes = 4096     // of any string but names, patterns and URLs
	MaxURLBytes  = 2048
	MaxNameBytes = 64 // names of handlers and routes
	MaxFaults    = 100
	maxNesting   = 8 // of tables, lists and dotted keys
)

const day = 24 * time.Hour

// Suffixes of the files beside the database.
const (
	tokenSuffix  = ".token"
	socketSuffix = ".sock"
)

// Default is the configuration of an empty file.
func Default() Config {
	const data = "fencepost.db"
	return Config{
		Node: Node{
			Data:          data,
			Durability:    Full,
			OnLoss:        LossHold,
			Workers:       64,
			Lease:         edge.DefaultLease,
			ShutdownGrace: 20 * time.Second,
			LogLevel:      slog.LevelInfo,
			LogFormat:     LogText,

			AllowPrivate:   true,
			AllowAddresses: []netip.Prefix{},
		},
		HTTP: HTTP{
			Listen:       "127.0.0.1:8080",
			AllowedHosts: []string{},
			TokenFile:    data + tokenSuffix,
			MaxBodyBytes: edge.MaxDataBytes,
			Socket:       data + socketSuffix,
		},
		Retention: defaultRetention(),
		Storage:   defaultStorage(),
		Uplinks:   []Uplink{},
		Handlers:  []Handler{},
		Routes:    []Route{},
	}
}

// defaultHandler is a handler of this kind of which only the kind is given.
func defaultHandler(k Kind) Handler {
	h := Handler{
		Kind:        k,
		Effect:      edge.Idempotent,
		Slots:       1,
		Concurrency: 16,
		Timeout:     5 * time.Second,
		Retry:       edge.RetryPolicy{Base: time.Second, Max: time.Minute, MaxAttempts: 5},
		MaxLosses:   edge.DefaultMaxLosses,
	}
	switch k {
	case KindWebhook:
		h.Timeout = 20 * time.Second
		h.Retry = edge.RetryPolicy{Schedule: edge.WebhookSchedule, GiveUpAfter: day}
		h.Breaker = edge.Breaker{Failures: 5, GateOffAfter: 5 * day}
		h.Webhook = &Webhook{AllowPrivate: true, Secrets: []string{}, Headers: map[string]string{}, PermanentStatus: []int{}, AllowAddresses: []netip.Prefix{}}
	case KindCommand:
		h.Effect = edge.Once
		h.Concurrency = runtime.NumCPU()
		h.Timeout = 5 * time.Minute
		h.Command = &Command{Env: map[string]string{}, SuccessExit: []int{0}, RetryExit: []int{75}}
	case KindLog:
	}
	return h
}
