package edge

import (
	"math/rand/v2"
	"time"
)

// RetryPolicy says when the next attempt is made and when to give up. The zero
// value is 1 s doubling to 60 s, 5 attempts.
type RetryPolicy struct {
	// Schedule lists the delays after the 1st, 2nd, ... attempt. The last
	// one repeats. When set, Base is not used.
	Schedule []time.Duration
	Base     time.Duration // first delay; default 1 s, doubled each time
	Max      time.Duration // cap of any delay, Retry-After included; default 60 s, with a Schedule its longest delay or 24 h
	// MaxAttempts gives up by count; 0 means 5 without a Schedule, and no
	// limit by count with one.
	MaxAttempts int
	// GiveUpAfter gives up when the next attempt would be later than this
	// after the first start; 0 means no limit by time, with a Schedule 24 h.
	GiveUpAfter time.Duration
}

// WebhookSchedule is the retry schedule that Standard Webhooks suggests.
var WebhookSchedule = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
	10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

const (
	defaultRetryBase   = time.Second
	defaultRetryMax    = time.Minute
	defaultMaxAttempts = 5
	defaultGiveUpAfter = 24 * time.Hour
	jitterShare        = 10 // up to a tenth of the delay is added
)

// Budget returns the limits by count and by time; 0 means none.
func (p RetryPolicy) Budget() (maxAttempts int, giveUpAfter time.Duration) {
	maxAttempts, giveUpAfter = p.MaxAttempts, p.GiveUpAfter
	if len(p.Schedule) == 0 {
		if maxAttempts <= 0 {
			maxAttempts = defaultMaxAttempts
		}
		return maxAttempts, giveUpAfter
	}
	if giveUpAfter <= 0 {
		giveUpAfter = defaultGiveUpAfter
	}
	return maxAttempts, giveUpAfter
}

// Delay is the time from the end of attempt number attempt (from 1) to the
// next: the longer of the policy's own backoff and asked, capped, plus up to a
// tenth. What was asked for counts for at most half of the time after which the
// delivery is given up, so that no receiver can end a delivery by asking for
// patience. r draws from [0, 1); nil means a random source.
func (p RetryPolicy) Delay(attempt int, asked time.Duration, r func() float64) time.Duration {
	if r == nil {
		r = rand.Float64
	}
	if _, giveUp := p.Budget(); giveUp > 0 {
		asked = min(asked, giveUp/2)
	}
	d := min(max(p.backoff(attempt), asked), p.limit())
	return d + time.Duration(float64(d)/jitterShare*r())
}

func (p RetryPolicy) backoff(attempt int) time.Duration {
	if attempt < 1 {
		attempt = 1
	}
	if n := len(p.Schedule); n > 0 {
		return p.Schedule[min(attempt, n)-1]
	}
	d := p.Base
	if d <= 0 {
		d = defaultRetryBase
	}
	limit := p.limit()
	for i := 1; i < attempt && d < limit; i++ {
		d *= 2
	}
	return min(d, limit)
}

func (p RetryPolicy) limit() time.Duration {
	if p.Max > 0 {
		return p.Max
	}
	if len(p.Schedule) > 0 {
		longest := 24 * time.Hour
		for _, d := range p.Schedule {
			longest = max(longest, d)
		}
		return longest
	}
	return defaultRetryMax
}
