package edge

import (
	"fmt"
	"time"
)

// Rate is a limit of how often deliveries of one handler are claimed: a token
// bucket of Burst tokens into which one comes every Interval. The zero value is
// no limit.
//
// A bucket is one number: the time at which it is full again if nothing is taken.
// A store keeps it, so that no restart fills a bucket.
type Rate struct {
	Interval time.Duration // between two tokens; whole microseconds
	Burst    int           // tokens of a full bucket
}

// Bounds of a Rate.
const (
	MinRateInterval = 10 * time.Microsecond
	MaxRateInterval = 24 * time.Hour
	MaxRateBurst    = 1_000_000
)

// PerSecond is the rate of n deliveries a second, n above 0.
func PerSecond(n float64, burst int) Rate {
	return Rate{Interval: time.Duration(1e6/n+0.5) * time.Microsecond, Burst: burst}
}

// Limited reports whether r is a limit.
func (r Rate) Limited() bool { return r.Interval > 0 }

// Validate reports the first fault of r.
func (r Rate) Validate() error {
	switch {
	case r == Rate{}:
		return nil
	case r.Interval < MinRateInterval || r.Interval > MaxRateInterval || r.Interval%time.Microsecond != 0:
		return fmt.Errorf("Rate.Interval: %s, must be %s to %s in whole microseconds", r.Interval, MinRateInterval, MaxRateInterval)
	case r.Burst < 1 || r.Burst > MaxRateBurst:
		return fmt.Errorf("Rate.Burst: %d, must be 1 to %d", r.Burst, MaxRateBurst)
	}
	return nil
}

// ReadyMS is when the next token is there, in milliseconds UTC, of a bucket that
// is full at fullUS (microseconds UTC). Of no limit it is 0.
func (r Rate) ReadyMS(fullUS int64) int64 {
	if !r.Limited() {
		return 0
	}
	return (fullUS - int64(r.Burst-1)*r.Interval.Microseconds() + 999) / 1000
}

// Take takes a token that is there: it returns when the bucket is full then.
func (r Rate) Take(fullUS, nowMS int64) int64 {
	return max(fullUS, nowMS*1000) + r.Interval.Microseconds()
}

// Clamp is when a bucket is full, of which a clock that was stepped back, or
// another limit, says that it is full at fullUS: none is emptier than empty.
func (r Rate) Clamp(fullUS, nowMS int64) int64 {
	return min(fullUS, nowMS*1000+int64(r.Burst)*r.Interval.Microseconds())
}
