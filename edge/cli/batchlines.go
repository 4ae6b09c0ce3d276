package cli

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// eventLine is one event of a file. number is its line, from 1: of an event of an
// array, the line on which it begins. place is what its id is made of: the line,
// or the place in the array.
type eventLine struct {
	number, place int
	object        []byte
}

// id is the id of an event that has none: the same for the same content at the
// same place.
func (l eventLine) id() string {
	sum := sha256.Sum256(l.object)
	return fmt.Sprintf("line-%d-%s", l.place, strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10])))
}

// eventLines reads a file of events: JSON lines, or one JSON array. It holds one
// event at a time.
type eventLines struct {
	in     *countingReader
	buffer *bufio.Reader
	array  *json.Decoder // nil for JSON lines
	begun  bool
	number int // lines read, or events of the array
	most   int // bytes of one event
}

// newEventLines reads from in. The data of an event has at most maxData bytes;
// base64 and attributes need more.
func newEventLines(in io.Reader, maxData int) *eventLines {
	c := &countingReader{in: in}
	return &eventLines{in: c, buffer: bufio.NewReaderSize(c, 64<<10), most: maxData + maxData/2 + 128<<10}
}

// read is how many bytes of the file have been read.
func (l *eventLines) read() int64 { return l.in.n }

// next returns the next event; io.EOF after the last. With an error the line is
// that of the fault.
func (l *eventLines) next() (eventLine, error) {
	if !l.begun {
		if err := l.begin(); err != nil {
			return eventLine{number: 1}, err
		}
	}
	if l.array != nil {
		return l.nextElement()
	}
	return l.nextLine()
}

// begin looks at the first character that is no space.
func (l *eventLines) begin() error {
	l.begun = true
	for n := 1; ; n++ {
		b, err := l.buffer.Peek(n)
		if len(b) < n {
			if err == io.EOF || errors.Is(err, bufio.ErrBufferFull) {
				return nil
			}
			return err
		}
		switch b[n-1] {
		case ' ', '\t', '\r', '\n', 0xef, 0xbb, 0xbf: // and the mark that some editors write
			continue
		case '[':
			l.skipMark()
			l.in.allow(0, l.most)
			l.array = json.NewDecoder(l.in.through(l.buffer))
			_, err := l.array.Token()
			return err
		}
		l.skipMark()
		return nil
	}
}

func (l *eventLines) skipMark() {
	if b, _ := l.buffer.Peek(3); bytes.Equal(b, []byte("\xef\xbb\xbf")) {
		_, _ = l.buffer.Discard(3)
	}
}

// nextLine returns the next line that is not blank.
func (l *eventLines) nextLine() (eventLine, error) {
	for {
		line, err := l.readLine()
		if len(line) > 0 || err == nil {
			l.number++
		}
		at := eventLine{number: l.number, place: l.number, object: bytes.TrimSpace(line)}
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return at, err
		case len(at.object) > 0:
			return at, nil
		case err != nil:
			return at, io.EOF
		}
	}
}

// readLine reads to the end of the line, but not more than an event may have.
func (l *eventLines) readLine() ([]byte, error) {
	var line []byte
	for {
		part, err := l.buffer.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > l.most:
			return line, fmt.Errorf("has more than %d bytes, which no event may have", l.most)
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		}
	}
}

// nextElement returns the next event of the array.
func (l *eventLines) nextElement() (eventLine, error) {
	at := func() int { return 1 + l.in.newlinesBefore(l.array.InputOffset()) }
	if !l.array.More() {
		if _, err := l.array.Token(); err != nil {
			return eventLine{number: l.lineOf(err, at())}, notClosed(err)
		}
		if _, err := l.array.Token(); !errors.Is(err, io.EOF) {
			return eventLine{number: at()}, errors.New("there is more after the end of the array")
		}
		return eventLine{number: at()}, io.EOF
	}
	var object json.RawMessage
	l.in.allow(l.array.InputOffset(), l.most)
	err := l.array.Decode(&object)
	l.number++
	if err != nil {
		return eventLine{number: l.lineOf(err, at())}, notClosed(err)
	}
	return eventLine{number: at() - bytes.Count(object, []byte("\n")), place: l.number, object: object}, nil
}

// lineOf is the line of a fault: where the file ends, when that is the fault.
func (l *eventLines) lineOf(err error, at int) int {
	if early(err) {
		return 1 + l.in.newlinesBefore(l.in.offset)
	}
	return at
}

func early(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

func notClosed(err error) error {
	if early(err) {
		return errors.New("the array ends early")
	}
	return fmt.Errorf("is not valid JSON: %w", err)
}
