package node

import (
	"errors"
	"fmt"
	"io/fs"

	"fencepost/edge"
	"fencepost/edge/api"
	"fencepost/edge/config"
)

// tokens are the tokens of the network listener. The zero value of one closes
// what it is for.
type tokens struct {
	events  api.TokenHash
	metrics api.TokenHash
}

// tokenFile is a key of the configuration that names a file with a token.
type tokenFile struct {
	key, path string
	into      *api.TokenHash
}

func (t *tokens) files(c *config.Config) []tokenFile {
	files := []tokenFile{{"http.token_file", c.HTTP.TokenFile, &t.events}}
	if c.HTTP.MetricsTokenFile != "" {
		files = append(files, tokenFile{"http.metrics_token_file", c.HTTP.MetricsTokenFile, &t.metrics})
	}
	return files
}

// lookForTokens refuses files that stand in place of a token file; one that is
// not there is made later.
func lookForTokens(c *config.Config) error {
	for _, f := range (&tokens{}).files(c) {
		if _, err := api.ReadToken(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %s: token file %s: %w", edge.ErrInvalid, f.key, f.path, err)
		}
	}
	return nil
}

// ensureTokens reads the token files and makes those that are not there.
func (n *Node) ensureTokens(c *config.Config) (tokens, error) {
	var t tokens
	for _, f := range t.files(c) {
		hash, created, err := api.EnsureToken(f.path)
		if err != nil {
			return tokens{}, fmt.Errorf("%w: %s: %w", edge.ErrInvalid, f.key, err)
		}
		if created {
			n.log.Info("token file written", "path", f.path)
		}
		*f.into = hash
	}
	return t, t.distinct()
}

// readTokens reads the token files. One that was removed is no wish for a new
// token.
func readTokens(c *config.Config) (tokens, error) {
	var t tokens
	for _, f := range t.files(c) {
		token, err := api.ReadToken(f.path)
		if err != nil {
			return tokens{}, fmt.Errorf("%w: %s: token file %s: %w", edge.ErrInvalid, f.key, f.path, err)
		}
		*f.into = api.HashToken(token)
	}
	return t, t.distinct()
}

// distinct refuses one token for two things: each has one scope.
func (t *tokens) distinct() error {
	if t.metrics == t.events && t.metrics != (api.TokenHash{}) {
		return fmt.Errorf("%w: http.metrics_token_file holds the token of http.token_file: remove it to get one of its own, which may only read the metrics", edge.ErrInvalid)
	}
	return nil
}
