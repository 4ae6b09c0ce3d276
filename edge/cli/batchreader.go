package cli

import (
	"errors"
	"io"
	"sort"
)

// countingReader counts what is read of a file. For an array it remembers where
// lines end, as far as they are still of interest, and bounds what one event may
// take.
type countingReader struct {
	in io.Reader
	n  int64 // bytes read

	offset int64   // bytes handed to the decoder
	ends   []int64 // offsets of newlines at and after the oldest of interest
	passed int     // newlines before those
	most   int64   // offset up to which the decoder may read
}

// Read reads and counts.
func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.n += int64(n)
	return n, err
}

// through hands to a decoder what comes out of buffer.
func (c *countingReader) through(buffer io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		if c.offset > c.most {
			return 0, errors.New("an event has more bytes than any may have")
		}
		n, err := buffer.Read(p)
		for i, b := range p[:n] {
			if b == '\n' {
				c.ends = append(c.ends, c.offset+int64(i))
			}
		}
		c.offset += int64(n)
		return n, err
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// allow lets the decoder read most bytes on from an offset.
func (c *countingReader) allow(from int64, most int) { c.most = from + int64(most) }

// newlinesBefore counts the newlines before an offset, which never goes back.
func (c *countingReader) newlinesBefore(offset int64) int {
	i := sort.Search(len(c.ends), func(i int) bool { return c.ends[i] >= offset })
	c.passed += i
	c.ends = c.ends[i:]
	return c.passed
}
