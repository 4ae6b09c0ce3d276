package service

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// The files of an installation as they are in this program.
var (
	//go:embed files/fencepost.service
	unitText string
	//go:embed files/sysusers.conf
	sysusersText string
	//go:embed files/fencepost.toml
	configText string
)

// User is the user and the group that a node runs as once it is installed.
const User = "fencepost"

// Paths of an installation.
const (
	BinaryPath   = "/usr/local/bin/fencepost"
	ConfigPath   = "/etc/fencepost/fencepost.toml"
	UnitPath     = "/etc/systemd/system/fencepost.service"
	SysusersPath = "/etc/sysusers.d/fencepost.conf"
	StatePath    = "/var/lib/fencepost"
	// PackageUnitPath is where the unit of a package is. Both at once are
	// one too many.
	PackageUnitPath = "/usr/lib/systemd/system/fencepost.service"
)

// Unit is the text of the unit for a program and a configuration at these paths.
func Unit(binary, config string) string {
	return strings.NewReplacer("@BINARY@", binary, "@CONFIG@", config).Replace(unitText)
}

// Sysusers is the text that makes the user, for systemd-sysusers(8).
func Sysusers() string { return sysusersText }

// Config is the configuration that an installation begins with.
func Config() string { return configText }

// File is a file or a directory of an installation.
type File struct {
	Path  string      `json:"path"` // as the host sees it
	Mode  fs.FileMode `json:"-"`
	Group string      `json:"group"` // of the file; its owner is root
	// State is what there is now: absent, same, outdated (ours and unchanged,
	// of another version), kept (there, and never overwritten) or changed
	// (by a person: nothing is installed over it).
	State string `json:"state"`
	Diff  string `json:"diff,omitempty"` // of a changed one: what is there against what would be

	dir    bool
	text   string
	source string // a file that is copied, in place of text
	keep   bool   // never overwritten once it is there
}

// States of a file.
const (
	Absent   = "absent"
	Same     = "same"
	Outdated = "outdated"
	Kept     = "kept"
	Changed  = "changed"
)

// Plan is what makes a host run a node as a service.
type Plan struct {
	Root     string     `json:"root,omitempty"` // directory in place of /; "" is / itself
	Files    []File     `json:"files"`
	Commands [][]string `json:"commands"` // run in this order, after the files; none below another root
	Next     []string   `json:"next"`     // what is left to a person
}

// NewPlan looks at what is below root ("" for /) and says what is to be done. The
// program at binary is the one that is installed.
func NewPlan(root, binary string) (*Plan, error) {
	p := &Plan{
		Root: strings.TrimSuffix(root, "/"),
		Files: []File{
			{Path: SysusersPath, Mode: 0o644, Group: "root", text: sealed(sysusersText)},
			{Path: BinaryPath, Mode: 0o755, Group: "root", source: binary},
			{Path: "/etc/fencepost", Mode: 0o750, Group: User, dir: true},
			{Path: ConfigPath, Mode: 0o640, Group: User, text: configText, keep: true},
			{Path: UnitPath, Mode: 0o644, Group: "root", text: sealed(Unit(BinaryPath, ConfigPath))},
		},
		Commands: [][]string{
			{"systemd-sysusers", SysusersPath},
			{"systemctl", "daemon-reload"},
		},
		Next: []string{
			"edit " + ConfigPath + ": what happens with events",
			"systemctl enable --now fencepost",
			"systemctl status fencepost, and journalctl -u fencepost",
			"fencepost status --config " + ConfigPath,
		},
	}
	if p.Root != "" {
		p.Next = append([]string{"on the host itself: systemd-sysusers, and chgrp " + User + " /etc/fencepost " + ConfigPath}, p.Next...)
	}
	if _, err := os.Lstat(p.at(PackageUnitPath)); err == nil {
		return nil, fmt.Errorf("%s is there: a package has installed fencepost as a service already; change its settings with systemctl edit fencepost", p.at(PackageUnitPath))
	}
	for i := range p.Files {
		if err := p.inspect(&p.Files[i]); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *Plan) at(path string) string { return p.Root + path }

// Changed are the files that a person has changed; nothing is done while there
// are any.
func (p *Plan) Changed() []File {
	var changed []File
	for _, f := range p.Files {
		if f.State == Changed {
			changed = append(changed, f)
		}
	}
	return changed
}

// inspect says what there is in place of a file.
func (p *Plan) inspect(f *File) error {
	path := p.at(f.Path)
	fi, err := os.Lstat(path)
	switch {
	case os.IsNotExist(err):
		f.State = Absent
		return nil
	case err != nil:
		return err
	case fi.IsDir() != f.dir || !fi.IsDir() && !fi.Mode().IsRegular():
		return fmt.Errorf("%s is something else (%s): move it away", path, fi.Mode().Type())
	case f.dir:
		f.State = Same
		return nil
	case f.keep:
		f.State = Kept
		return nil
	case f.source != "":
		return p.inspectProgram(f)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	switch there := string(b); {
	case there == f.text:
		f.State = Same
	case unsealed(there):
		f.State = Outdated
	default:
		f.State, f.Diff = Changed, diff(there, f.text)
	}
	return nil
}

// seal is the first line of a file that we wrote: with it one can tell later
// whether a person changed the rest.
const seal = "# Written by fencepost install-service, unchanged: "

func sealed(text string) string { return seal + sum(text) + "\n" + text }

// unsealed reports whether a file is as we wrote it.
func unsealed(there string) bool {
	first, rest, _ := strings.Cut(there, "\n")
	given, ours := strings.CutPrefix(first, seal)
	return ours && given == sum(rest)
}

func sum(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:8])
}

// diff is the lines that only one of two texts has: it is for looking, not for
// patching.
func diff(there, wanted string) string {
	var b strings.Builder
	only := func(mark, text, other string) {
		has := map[string]bool{}
		for line := range strings.Lines(other) {
			has[strings.TrimSuffix(line, "\n")] = true
		}
		for line := range strings.Lines(text) {
			if line = strings.TrimSuffix(line, "\n"); !has[line] && !strings.HasPrefix(line, seal) {
				b.WriteString(mark + line + "\n")
			}
		}
	}
	only("-", there, wanted)
	only("+", wanted, there)
	return b.String()
}
