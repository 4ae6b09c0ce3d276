package service

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Variables of the service manager (sd_notify(3), sd_watchdog_enabled(3)).
const (
	notifyVariable      = "NOTIFY_SOCKET"
	watchdogVariable    = "WATCHDOG_USEC"
	watchdogPIDVariable = "WATCHDOG_PID"
)

// Notifier tells the service manager how the process is. All methods may be
// called from many goroutines and on nil, where they do nothing. A message that
// cannot be sent is dropped: whether the manager listens is not the node's
// business, and one that does not would end the service by itself.
type Notifier struct {
	conn     *net.UnixConn
	watchdog time.Duration
}

// NewNotifier takes the address of the service manager from the environment, and
// takes the variables out of it, so that no program that is started gets them. It
// returns nil when there is no manager that wants to be told.
func NewNotifier() (*Notifier, error) {
	address := os.Getenv(notifyVariable)
	watchdog, watchErr := watchdogTime(os.Getenv(watchdogVariable), os.Getenv(watchdogPIDVariable))
	for _, name := range []string{notifyVariable, watchdogVariable, watchdogPIDVariable} {
		_ = os.Unsetenv(name)
	}
	if address == "" {
		return nil, nil
	}
	if watchErr != nil {
		return nil, watchErr
	}
	// A path, or with @ in front a name in the abstract name space, which Go
	// writes in the same way.
	if !strings.HasPrefix(address, "/") && !strings.HasPrefix(address, "@") {
		return nil, fmt.Errorf("%s=%q: neither an absolute path nor an abstract name", notifyVariable, address)
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", notifyVariable, err)
	}
	return &Notifier{conn: conn, watchdog: watchdog}, nil
}

// watchdogTime is the time within which the manager wants a sign of life; 0 when
// it wants none of this process.
func watchdogTime(usec, pid string) (time.Duration, error) {
	if usec == "" || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0, nil
	}
	n, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || n <= 0 || n > int64(1<<62)/int64(time.Microsecond) {
		return 0, fmt.Errorf("%s=%q: not a number of microseconds", watchdogVariable, usec)
	}
	return time.Duration(n) * time.Microsecond, nil
}

// Watchdog is the time within which the manager wants [Notifier.Alive]; 0 means
// that it does not watch.
func (n *Notifier) Watchdog() time.Duration {
	if n == nil {
		return 0
	}
	return n.watchdog
}

// Ready says that the start, or a reload, is done.
func (n *Notifier) Ready(status string) { n.send("READY=1", "STATUS="+oneLine(status)) }

// Reloading says that a new configuration is being read; Ready ends it.
func (n *Notifier) Reloading() {
	n.send("RELOADING=1", "MONOTONIC_USEC="+strconv.FormatInt(monotonicUsec(), 10), "STATUS=reading the configuration")
}

// Stopping says that the stop has begun, and how long it may take.
func (n *Notifier) Stopping(most time.Duration) {
	n.send("STOPPING=1", "EXTEND_TIMEOUT_USEC="+strconv.FormatInt(most.Microseconds(), 10), "STATUS=stopping: running work may end by itself")
}

// Status says in one line what the node is doing.
func (n *Notifier) Status(text string) { n.send("STATUS=" + oneLine(text)) }

// Alive is a sign of life. When none comes in time, the manager ends the process.
func (n *Notifier) Alive(status string) { n.send("WATCHDOG=1", "STATUS="+oneLine(status)) }

// Close gives up the connection.
func (n *Notifier) Close() error {
	if n == nil {
		return nil
	}
	return n.conn.Close()
}

// sendAtMost bounds one message: the manager's queue may be full.
const sendAtMost = time.Second

func (n *Notifier) send(lines ...string) {
	if n == nil {
		return
	}
	if n.conn.SetWriteDeadline(time.Now().Add(sendAtMost)) == nil {
		_, _ = n.conn.Write([]byte(strings.Join(lines, "\n"))) // dropped, see Notifier
	}
}

func oneLine(s string) string { return strings.NewReplacer("\n", " ", "\r", " ").Replace(s) }
