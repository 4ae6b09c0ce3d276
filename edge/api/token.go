package api

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// Bounds of a token file. A token shorter than the least could be guessed.
const (
	tokenBytes    = 32 // 256 bits
	minTokenChars = 16
	maxTokenFile  = 4096
)

// EnsureToken reads the bearer token from a file and returns its hash. A file
// that is not there is written with a new random token of 256 bits, readable by
// its owner only; created tells. A file that is a link or no regular file, that
// others can read or write, that is not ours, or that holds no token is refused
// and left as it is.
func EnsureToken(path string) (h TokenHash, created bool, err error) {
	token, err := ReadToken(path)
	if errors.Is(err, fs.ErrNotExist) {
		token, err = createToken(path)
		created = err == nil
	}
	if err != nil {
		return TokenHash{}, false, fmt.Errorf("token file %s: %w", path, err)
	}
	return HashToken(token), created, nil
}

func createToken(path string) (string, error) {
	var b [tokenBytes]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read does not fail
	token := base64.RawURLEncoding.EncodeToString(b[:])
	return token, writePrivate(path, token+"\n")
}

// ReadToken reads the token of a file that is as EnsureToken wants it. An error
// never shows what the file holds.
func ReadToken(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0)
	if err != nil {
		if fi, lerr := os.Lstat(path); lerr == nil && fi.Mode()&fs.ModeSymlink != 0 {
			return "", errors.New("is a symbolic link: put the file itself there")
		}
		return "", err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return "", err
	}
	if err := privateFile(fi); err != nil {
		return "", err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxTokenFile+1))
	if err != nil {
		return "", err
	}
	token := strings.TrimRight(string(data), "\r\n")
	if err := checkToken(token); err != nil {
		return "", err
	}
	return token, nil
}

// privateFile refuses what others can read or write.
func privateFile(fi fs.FileInfo) error {
	switch {
	case !fi.Mode().IsRegular():
		return errors.New("is not a regular file")
	case fi.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("has mode %04o, so others can use it: chmod 600 it, and make a new token if it was read", fi.Mode().Perm())
	}
	return ours(fi)
}

func checkToken(token string) error {
	if strings.TrimSpace(token) == "" {
		return errors.New("is empty: remove it to get a new token")
	}
	if len(token) < minTokenChars || len(token) >= maxTokenFile {
		return fmt.Errorf("holds %d characters: a token has %d to %d; remove it to get a new one", len(token), minTokenChars, maxTokenFile-1)
	}
	for _, c := range []byte(token) {
		if c <= 0x20 || c > 0x7e {
			return errors.New("holds more than one token on one line: write the token alone, in printable ASCII without spaces")
		}
	}
	return nil
}
