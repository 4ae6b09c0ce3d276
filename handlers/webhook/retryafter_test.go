package webhook_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/handlers/webhook"
)

func TestParseRetryAfter(t *testing.T) {
	t.Parallel()
	const limit = 24 * time.Hour
	now := time.Date(1994, time.November, 6, 8, 49, 0, 0, time.UTC)
	const date = "Sun, 06 Nov 1994 08:49:07 GMT" // the receiver's clock is 7 s ahead
	for _, c := range []struct {
		value, date string
		want        time.Duration
		ok          bool
	}{
		{"0", "", 0, true},
		{"120", "", 2 * time.Minute, true},
		{"007", "", 7 * time.Second, true},
		{"86400", "", limit, true},
		{"86401", "", limit, true},
		{"99999999999999999999999999999999999999", "", limit, true},
		{"9223372036854775807", "", limit, true},
		{"Sun, 06 Nov 1994 08:49:37 GMT", "", 37 * time.Second, true},
		{"Sunday, 06-Nov-94 08:49:37 GMT", "", 37 * time.Second, true},
		{"Sun Nov  6 08:49:37 1994", "", 37 * time.Second, true},
		{"Sun, 06 Nov 1994 08:49:37 GMT", date, 30 * time.Second, true},
		{"Sun, 06 Nov 1994 08:49:37 GMT", "garbage", 37 * time.Second, true},
		{"Sun, 06 Nov 1994 08:00:00 GMT", "", 0, true},
		{"Fri, 31 Dec 9999 23:59:59 GMT", "", limit, true},
		{"-5", "", 0, false},
		{"+5", "", 0, false},
		{"1.5", "", 0, false},
		{"5s", "", 0, false},
		{"", "", 0, false},
		{" ", "", 0, false},
		{"5 5", "", 0, false},
		{"١٢", "", 0, false},
		{"soon", "", 0, false},
	} {
		got, ok := webhook.ParseRetryAfter(c.value, c.date, now, limit)
		require.Equal(t, c.ok, ok, "%q", c.value)
		require.Equal(t, c.want, got, "%q", c.value)
	}
}
