package node_test

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
)

// dumpVariable names the directory where the test program, run as a command,
// writes what it sees.
const dumpVariable = "NODE_TEST_DUMP"

// seen is what a program sees.
type seen struct {
	Args, Env []string
	In        string
}

func dump(dir string) {
	in, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
	}
	b, err := json.Marshal(seen{os.Args, os.Environ(), string(in)})
	if err != nil {
		panic(err)
	}
	if err := os.WriteFile(filepath.Join(dir, os.Getenv("FENCEPOST_DELIVERY")), b, 0o600); err != nil {
		panic(err)
	}
}
