// Sbom writes the bill of materials of a Go program in CycloneDX 1.6 JSON: what
// the program itself says that it was built from, and nothing else. Equal
// programs give equal bytes.
//
//	sbom PROGRAM VERSION EPOCH > PROGRAM.cdx.json
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"time"
)

type bom struct {
	Schema       string       `json:"$schema"`
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Serial       string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Purl       string     `json:"purl,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Alg     string `json:"alg"`
	Content string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("usage: sbom PROGRAM VERSION EPOCH")
	}
	epoch, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return err
	}
	b, err := describe(args[0], args[1], time.Unix(epoch, 0).UTC())
	if err != nil {
		return err
	}
	enc := json.NewEncoder(os.Stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(b)
}

func describe(path, version string, at time.Time) (*bom, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(program)
	b := &bom{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", Spec: "1.6",
		Serial: serial(sum), Version: 1,
		Metadata: metadata{Timestamp: at.Format(time.RFC3339), Component: component{
			Type: "application", Ref: info.Main.Path, Name: filepath.Base(info.Main.Path), Version: version,
			Hashes: []hash{{"SHA-256", hex.EncodeToString(sum[:])}}, Properties: settings(info.Settings),
		}},
		Components: []component{standardLibrary(info.GoVersion)},
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		b.Components = append(b.Components, module(m))
	}
	sort.Slice(b.Components, func(i, j int) bool { return b.Components[i].Ref < b.Components[j].Ref })
	all := dependency{Ref: info.Main.Path}
	for _, c := range b.Components {
		all.DependsOn = append(all.DependsOn, c.Ref)
	}
	b.Dependencies = []dependency{all}
	return b, nil
}

// serial is a random-looking UUID (RFC 9562, version 8) that the content decides.
func serial(sum [32]byte) string {
	u := sum[:16]
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

func settings(all []debug.BuildSetting) []property {
	var ps []property
	for _, s := range all {
		if s.Key == "GOOS" || s.Key == "GOARCH" || s.Key == "GOARM" || s.Key == "GOAMD64" || s.Key == "CGO_ENABLED" || s.Key == "-trimpath" {
			ps = append(ps, property{"go:build:" + s.Key, s.Value})
		}
	}
	return ps
}

func standardLibrary(version string) component {
	v := strings.TrimPrefix(version, "go")
	purl := "pkg:golang/std@" + v
	return component{Type: "library", Ref: purl, Name: "std", Version: v, Purl: purl}
}

// module is a dependency; its checksum is that of go.sum, which covers the tree
// of its files and is none of the algorithms that CycloneDX names.
func module(m *debug.Module) component {
	purl := "pkg:golang/" + strings.ReplaceAll(url.PathEscape(m.Path), "%2F", "/") + "@" + url.PathEscape(m.Version)
	return component{
		Type: "library", Ref: purl, Name: m.Path, Version: m.Version, Purl: purl,
		Properties: []property{{"go:sum", m.Sum}},
	}
}
