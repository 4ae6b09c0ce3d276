package sqlite

import "time"

// pace is how fast the file grows: what it was in each of the last hours.
type pace struct {
	at   []time.Duration // monotonic, oldest first
	size []int64
}

const (
	paceStep  = time.Hour
	paceHours = 24
	paceLeast = 10 * time.Minute // before that nothing is said
)

// note takes a look at the size.
func (p *pace) note(mono time.Duration, size int64) {
	n := len(p.at)
	if n > 0 && mono < p.at[n-1]+paceStep {
		return
	}
	p.at, p.size = append(p.at, mono), append(p.size, size)
	if n >= paceHours {
		p.at, p.size = p.at[1:], p.size[1:]
	}
}

// daysUntil is when a file of this size has grown by room; below 0 when it does
// not grow or nothing is known.
func (p *pace) daysUntil(mono time.Duration, size, room int64) float64 {
	if len(p.at) == 0 || mono < p.at[0]+paceLeast || size <= p.size[0] {
		return -1
	}
	perDay := float64(size-p.size[0]) / (mono - p.at[0]).Hours() * 24
	return max(float64(room), 0) / perDay
}
