package handlers_test

import (
	"testing"

	"fencepost/handlers"

	"github.com/stretchr/testify/require"
)

// TestDetailKeepsTextReadableBesideShortValues redacts secrets, and not each
// occurrence of a value of one character.
func TestDetailKeepsTextReadableBesideShortValues(t *testing.T) {
	t.Parallel()
	secrets := []handlers.Secret{handlers.NewSecret("1"), handlers.NewSecret("s3cr3t")}
	require.Equal(t, "dial 127.0.0.1: token [redacted]", handlers.Detail("dial 127.0.0.1: token s3cr3t", nil, false, secrets))
}
