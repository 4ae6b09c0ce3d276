package service

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
)

// Module is the module path by which one of our programs is known.
const module = "fencepost"

// inspectProgram compares the program that is there with the one that is
// installed. One that is not ours is a changed file.
func (p *Plan) inspectProgram(f *File) error {
	path := p.at(f.Path)
	same, err := sameContent(path, f.source)
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(path)
	switch {
	case same:
		f.State = Same
	case err == nil && info.Main.Path == module:
		f.State = Outdated
	default:
		f.State, f.Diff = Changed, "it is no fencepost program\n"
	}
	return nil
}

func sameContent(a, b string) (bool, error) {
	x, err := os.ReadFile(a)
	if err != nil {
		return false, err
	}
	y, err := os.ReadFile(b)
	return string(x) == string(y), err
}

// ErrChanged says that a person has changed a file.
var ErrChanged = errors.New("nothing is installed over it")

// Apply does what the plan says. It does nothing while a file was changed by a
// person. What it has done already it does not do again. report is told of each
// step before it is done.
func (p *Plan) Apply(ctx context.Context, report func(step string)) error {
	if changed := p.Changed(); len(changed) > 0 {
		return fmt.Errorf("%s was changed: %w; move it away, or keep it and make a drop-in (systemctl edit fencepost)", p.at(changed[0].Path), ErrChanged)
	}
	written := false
	for i := range p.Files {
		if f := &p.Files[i]; f.State == Absent || f.State == Outdated {
			written = true
			if f.Path == "/etc/fencepost" && p.Root == "" {
				// The user is needed from here on.
				if err := run(ctx, p.Commands[0], report); err != nil {
					return err
				}
			}
			report("write " + p.at(f.Path))
			if err := p.write(f); err != nil {
				return err
			}
		}
	}
	if p.Root != "" || !written || !managed() {
		return nil
	}
	for _, c := range p.Commands[1:] {
		if err := run(ctx, c, report); err != nil {
			return err
		}
	}
	return nil
}

// managed reports whether systemd runs this host (sd_booted(3)). Where it does
// not, there is nothing to reload.
func managed() bool {
	fi, err := os.Lstat("/run/systemd/system")
	return err == nil && fi.IsDir()
}

func run(ctx context.Context, argv []string, report func(string)) error {
	report("run " + argv[0] + " " + argv[1])
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v: %w: %s", argv, err, out)
	}
	return nil
}

// write makes a file whole or not at all: a program may be running.
func (p *Plan) write(f *File) error {
	path := p.at(f.Path)
	if f.dir {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.Mkdir(path, f.Mode); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		return p.own(f, path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".fencepost-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	err = fill(tmp, f)
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = p.own(f, tmp.Name())
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

func fill(to *os.File, f *File) error {
	if f.source == "" {
		_, err := to.WriteString(f.text)
		return err
	}
	from, err := os.Open(f.source)
	if err != nil {
		return err
	}
	defer from.Close()
	_, err = io.Copy(to, from)
	return err
}

// own gives a path its mode and group. Below another root there may be no such
// group here: then the host itself has to (see Next).
func (p *Plan) own(f *File, path string) error {
	if err := os.Chmod(path, f.Mode); err != nil {
		return err
	}
	if f.Group == "root" || p.Root != "" {
		return nil
	}
	g, err := user.LookupGroup(f.Group)
	if err != nil {
		return fmt.Errorf("the group %s is not there: %w", f.Group, err)
	}
	gid, err := strconv.Atoi(g.Gid)
	if err != nil {
		return err
	}
	return os.Chown(path, 0, gid)
}
