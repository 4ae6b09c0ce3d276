package api_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func jsonText(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return string(data)
}
