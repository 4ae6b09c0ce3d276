// Package badconfig holds configurations that must be refused, each with one
// fault of its own, for the tests of whoever reads configurations.
package badconfig

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

//go:embed bad.txt
var text string

// Canary stands in the files where a secret could stand. No fault may show it.
const Canary = "canaryZ9Z8Z7"

// File is one bad configuration with what its only fault must say.
type File struct {
	Name    string // what is wrong with it
	Text    string
	Line    int
	Key     string
	Problem string // part of it
	Allowed string // part of it
}

// Files are all files. bad.txt has, for each, a line with its name, a line with
// what is wanted (line | key | problem | allowed), and then its text.
func Files() []File {
	var files []File
	for _, part := range strings.Split("\n"+text, "\n-- ")[1:] {
		name, rest, _ := strings.Cut(part, " --\n")
		want, body, _ := strings.Cut(rest, "\n")
		fields := strings.Split(want, " | ")
		if len(fields) != 4 {
			panic(fmt.Sprintf("badconfig: %s: %q: four fields are wanted", name, want))
		}
		line, err := strconv.Atoi(fields[0])
		if err != nil {
			panic("badconfig: " + name + ": " + err.Error())
		}
		files = append(files, File{name, body + "\n", line, fields[1], fields[2], fields[3]})
	}
	return files
}
