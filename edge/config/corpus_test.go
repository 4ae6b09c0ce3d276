package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge/config"
	"fencepost/edge/internal/badconfig"
)

// P26: each of the bad files has the fault that is expected of it, and no other,
// with file, line, key and a way out, and shows no secret.
func TestP26_EachBadFileHasItsFault(t *testing.T) {
	t.Parallel()
	files := badconfig.Files()
	require.GreaterOrEqual(t, len(files), 300)
	for _, f := range files {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			_, err := config.Parse("bad.toml", []byte(f.Text))
			var errs config.Errors
			require.ErrorAs(t, err, &errs, f.Text)
			require.Len(t, errs, 1, "%v", err)
			require.Equal(t, f.Line, errs[0].Line, "%v", err)
			require.Positive(t, errs[0].Column, "%v", err)
			require.Equal(t, f.Key, errs[0].Key, "%v", err)
			require.Contains(t, errs[0].Problem, f.Problem, "%v", err)
			require.Contains(t, errs[0].Allowed, f.Allowed, "%v", err)
			require.NotEmpty(t, errs[0].Problem)
			require.NotEmpty(t, errs[0].Allowed)
			require.NotContains(t, err.Error(), badconfig.Canary)
		})
	}
}
