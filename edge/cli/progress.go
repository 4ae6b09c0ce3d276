package cli

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// progressBar tells people how far a file is: a bar at a terminal, elsewhere a
// line now and then.
type progressBar struct {
	w     io.Writer
	size  int64 // of the file; 0 = not known
	quiet bool  // only what is said
	drawn bool
	next  time.Time // when to draw again
	told  int       // events at the last line
	began time.Time
}

const (
	barWidth  = 24
	barPause  = 200 * time.Millisecond
	lineEvery = 10_000 // events, where there is no terminal
)

// show tells how many events are done and how many bytes of the file are read.
func (b *progressBar) show(events int, read int64) {
	if b.began.IsZero() {
		b.began = time.Now()
	}
	switch {
	case b.quiet:
	case isTerminal(b.w):
		if now := time.Now(); !now.Before(b.next) {
			b.next, b.drawn = now.Add(barPause), true
			fmt.Fprint(b.w, "\r"+b.bar(events, read)+"\x1b[K")
		}
	case events-b.told >= lineEvery:
		b.told = events
		fmt.Fprintf(b.w, "%d events handed in%s\n", events, b.share(read))
	}
}

// bar is one line for a terminal, of less than 80 columns.
func (b *progressBar) bar(events int, read int64) string {
	rate := ""
	if took := time.Since(b.began).Seconds(); took >= 1 {
		rate = fmt.Sprintf(", %.0f/s", float64(events)/took)
	}
	if b.size <= 0 {
		return fmt.Sprintf("%d events%s", events, rate)
	}
	filled := int(min(read, b.size) * barWidth / b.size)
	return fmt.Sprintf("[%s%s]%s  %d events%s", strings.Repeat("#", filled), strings.Repeat(".", barWidth-filled), b.share(read), events, rate)
}

func (b *progressBar) share(read int64) string {
	if b.size <= 0 {
		return ""
	}
	return fmt.Sprintf(" %3d%%", min(read, b.size)*100/b.size)
}

// say writes a line of its own.
func (b *progressBar) say(format string, args ...any) {
	b.clear()
	fmt.Fprintf(b.w, "fencepost: "+format+"\n", args...)
}

// clear takes the bar away.
func (b *progressBar) clear() {
	if b.drawn {
		fmt.Fprint(b.w, "\r\x1b[K")
		b.drawn, b.next = false, time.Time{}
	}
}
