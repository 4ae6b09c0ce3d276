package config

import (
	"fmt"
	"path/filepath"
)

// Source says where the keys of a file stand, so that a fault that is found
// after the reading can name its place too.
type Source struct{ doc *document }

// Read is [Load] that also tells where each key stands.
func Read(path string, more ...Judge) (*Config, *Source, error) {
	b, err := readFile(path)
	if err != nil {
		return nil, nil, err
	}
	file, err := filepath.Abs(path)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: the working directory is not known: %w; name the file by its absolute path", path, err)
	}
	c, doc, err := parse(path, b, filepath.Dir(file), more...)
	if err != nil {
		return nil, nil, err
	}
	c.HTTP.Socket = shorter(c.HTTP.Socket)
	return c, &Source{doc}, nil
}

// Fault is a fault of a key by its path, as in handler[2].url. Of a key that is
// not in the file it names the place of the table it would be in, or the file.
func (s *Source) Fault(key, problem, allowed string) Fault {
	return s.doc.fault(s.doc.offset(key), key, problem, allowed)
}

// Has reports whether the file gives the key.
func (s *Source) Has(key string) bool {
	_, ok := s.doc.at[key]
	return ok
}

// Empty reports whether the file says nothing at all.
func (s *Source) Empty() bool { return len(s.doc.at) == 0 }

// Finish orders faults by their place and bounds them; nil when there are none.
func (s *Source) Finish(faults []Fault) error { return Errors(faults).finish(s.doc.file) }

// Socket is the path of the Unix socket that the file at path names, as far as
// that can be told although the file has faults; "" when it cannot, or when there
// is none. Who looks for a running node needs no more of its file.
func Socket(path string) string {
	b, err := readFile(path)
	if err != nil {
		return ""
	}
	file, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	doc, errs := readDocument(path, b)
	if errs != nil {
		return ""
	}
	c := readPlaces(&table{doc: doc, values: doc.values})
	for _, f := range doc.faults {
		if f.Key == "node.data" || f.Key == "http.socket" || f.Key == "node" || f.Key == "http" {
			return ""
		}
	}
	return shorter(within(filepath.Dir(file), c.HTTP.Socket))
}
