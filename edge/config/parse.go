package config

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Judge finds faults that this package cannot know of. It gets what could be read
// of a file that may have others: what is at fault there has its zero value. All
// faults are reported together.
type Judge func(c *Config, src *Source) []Fault

// Load reads the file at path. A file that cannot be read, is not a regular
// file, or is larger than [MaxFileBytes] is an error that names it; faults of
// its content are [Errors]. Relative paths in it are relative to its directory;
// the Config has them absolute. Only the socket may be relative to the working
// directory, when that is shorter: the path of a socket is limited.
func Load(path string, more ...Judge) (*Config, error) {
	c, _, err := Read(path, more...)
	return c, err
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot be read: %w", path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, Errors{{File: path, Problem: "is not a regular file", Allowed: "name a TOML file"}}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot be read: %w", path, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1)) // one more, so that Parse sees that it is too large
	if err != nil {
		return nil, fmt.Errorf("%s: cannot be read: %w", path, err)
	}
	return b, nil
}

// Parse reads a configuration from b; name stands for the file in faults. The
// error is an [Errors]. A syntax fault or a key given twice ends the reading;
// all other faults are reported together. Paths are left as they are written.
func Parse(name string, b []byte) (*Config, error) {
	c, _, err := parse(name, b, "")
	return c, err
}

// parse reads b; relative paths are relative to dir, or left alone when it is "".
func parse(name string, b []byte, dir string, more ...Judge) (*Config, *document, error) {
	doc, errs := readDocument(name, b)
	if errs != nil {
		return nil, nil, errs.finish(name)
	}
	root := table{doc: doc, values: doc.values}
	c := readPlaces(&root)
	c.File = name
	root.section("retention", func(t *table) { c.Retention = readRetention(t) })
	root.section("storage", func(t *table) { c.Storage = readStorage(t) })
	root.each("uplink", MaxUplinks, func(t *table) { c.Uplinks = append(c.Uplinks, readUplink(t)) })
	root.each("handler", MaxHandlers, func(t *table) { c.Handlers = append(c.Handlers, readHandler(t)) })
	root.each("route", MaxRoutes, func(t *table) { c.Routes = append(c.Routes, readRoute(t)) })
	root.unknown()
	c.spreadAddresses()
	checkNames(doc, &c)
	checkUplinks(doc, &c)
	checkDrop(doc, &c)
	for _, p := range []*string{&c.Node.Data, &c.HTTP.TokenFile, &c.HTTP.MetricsTokenFile, &c.HTTP.Socket} {
		*p = within(dir, *p)
	}
	checkFiles(doc, &c)
	for _, judge := range more {
		doc.faults = append(doc.faults, judge(&c, &Source{doc})...)
	}
	if err := doc.faults.finish(name); err != nil {
		return nil, nil, err
	}
	return &c, doc, nil
}

// readPlaces reads [node] and [http], which say where the files of the node are.
func readPlaces(root *table) Config {
	c := Default()
	root.section("node", func(t *table) { c.Node = readNode(t) })
	c.HTTP.TokenFile = c.Node.Data + tokenSuffix
	c.HTTP.Socket = c.Node.Data + socketSuffix
	root.section("http", func(t *table) { readHTTP(t, &c.HTTP) })
	return c
}

// within is path seen from dir; "" stays.
func within(dir, path string) string {
	if dir == "" || path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// shorter is the absolute path, or the same seen from the working directory when
// that is shorter.
func shorter(path string) string {
	if path == "" {
		return path
	}
	here, err := os.Getwd()
	if err != nil {
		return path
	}
	best := path
	if rel, err := filepath.Rel(here, path); err == nil && filepath.IsLocal(rel) && len(rel) < len(best) {
		best = rel
	}
	// A way up is what it looks like only from a directory without symbolic links.
	if here, err = filepath.EvalSymlinks(here); err != nil {
		return best
	}
	if rel, err := filepath.Rel(here, path); err == nil && len(rel) < len(best) {
		best = rel
	}
	return best
}
