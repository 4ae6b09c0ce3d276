package schedule_test

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/schedule"
)

const starBit = uint64(1) << 63

// oracle reads six fields with robfig/cron alone.
func oracle(text string) (*cron.SpecSchedule, error) {
	parser := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	s, err := parser.Parse(text)
	if err != nil {
		return nil, err
	}
	return s.(*cron.SpecSchedule), nil
}

// requireSame compares an accepted expression with what robfig/cron makes of the
// same text. Only where we know better may they differ: 7 is Sunday for us.
func requireSame(t *testing.T, text string, e *schedule.Expr) {
	t.Helper()
	words := strings.Fields(text)
	if strings.Contains(words[len(words)-1], "7") {
		return
	}
	s, err := oracle(text)
	require.NoError(t, err, text)
	require.Equal(t, s.Second&^starBit, e.Second, text)
	require.Equal(t, s.Minute&^starBit, e.Minute, text)
	require.Equal(t, s.Hour&^starBit, e.Hour, text)
	require.Equal(t, s.Dom&^starBit, e.Dom, text)
	require.Equal(t, s.Month&^starBit, e.Month, text)
	require.Equal(t, s.Dow&^starBit, e.Dow, text)
	require.Equal(t, s.Dom&starBit != 0, e.AnyDom, text)
	require.Equal(t, s.Dow&starBit != 0, e.AnyDow, text)
}

// What we accept robfig/cron reads the same; what it refuses we refuse too, but
// for the 7 that means Sunday.
func TestValidationAgreesWithRobfig(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	accepted, refused, stricter := 0, 0, 0
	for range 20_000 {
		text := randomFields(r)
		e, err := schedule.Parse(text)
		if err == nil {
			accepted++
			requireSame(t, text, e)
			continue
		}
		refused++
		require.ErrorIs(t, err, edge.ErrInvalid)
		if _, err := oracle(text); err == nil {
			stricter++
			requireStricter(t, text)
		}
	}
	require.Greater(t, accepted, 2000)
	require.Greater(t, refused, 2000)
	require.Greater(t, stricter, 20)
}

// requireStricter checks that we refuse what robfig/cron accepts only for the
// reasons that we mean to.
func requireStricter(t *testing.T, text string) {
	t.Helper()
	_, err := schedule.Parse(text)
	for _, reason := range []string{
		"an item of the list is empty", "is larger than the field", "? can only stand", "? takes no step", "no day ever matches",
		"cannot be the end of a range",
	} {
		if strings.Contains(err.Error(), reason) {
			return
		}
	}
	require.Fail(t, "refused without a known reason", "%q: %v", text, err)
}

// randomFields makes fields of which about half are legal.
func randomFields(r *rand.Rand) string {
	limits := [6][2]int{{0, 59}, {0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}}
	first := r.IntN(2)
	var words []string
	for _, limit := range limits[first:] {
		var items []string
		for range 1 + r.IntN(3) {
			items = append(items, randomItem(r, limit[0], limit[1]))
		}
		words = append(words, strings.Join(items, ","))
	}
	return strings.Join(words, " ")
}

func randomItem(r *rand.Rand, low, high int) string {
	value := func() string {
		if r.IntN(60) == 0 {
			return []string{"60", "x", "", "?", "jan", "SUN"}[r.IntN(6)]
		}
		return strconv.Itoa(low + r.IntN(high-low+1))
	}
	s := "*"
	switch r.IntN(4) {
	case 0:
		s = value()
	case 1:
		a := low + r.IntN(high-low+1)
		s = strconv.Itoa(a) + "-" + strconv.Itoa(a+r.IntN(high-a+1))
	case 2:
		s = value()
		if r.IntN(20) == 0 {
			s += "-" + value()
		}
	}
	if r.IntN(3) == 0 {
		s += "/" + strconv.Itoa(r.IntN(40)%(high-low+2)+r.IntN(12)/11)
	}
	return s
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"* * * * *", "0 0 1-7/2 JAN SUN", "*/15 9-17 * * mon-fri", "@every 1h30m", "@daily", "TZ=Europe/Paris 0 6 * * *", "TZ=", "TZ=UTC",
		"CRON_TZ=UTC", "1,,2 * * * *", "*/70 * * * *", "0 0 31 2 *", "0 0 * * 5-7", "? ? ? ? ?", "\x00", "TZ= 0 0 * * *", "@every 99999999999999h",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := schedule.Parse(text)
		if err != nil {
			require.Nil(t, e)
			require.ErrorIs(t, err, edge.ErrInvalid)
			require.True(t, strings.HasPrefix(err.Error(), "cron: "))
			return
		}
		if e.Every > 0 {
			require.Zero(t, e.Second|e.Minute|e.Hour|e.Dom|e.Month|e.Dow)
			return
		}
		for name, bits := range map[string][2]uint64{
			"second": {e.Second, span(0, 59, 1)}, "minute": {e.Minute, span(0, 59, 1)}, "hour": {e.Hour, span(0, 23, 1)},
			"dom": {e.Dom, span(1, 31, 1)}, "month": {e.Month, span(1, 12, 1)}, "dow": {e.Dow, span(0, 6, 1)},
		} {
			require.NotZero(t, bits[0], "%s of %q", name, text)
			require.Zero(t, bits[0]&^bits[1], "%s of %q", name, text)
		}
		if !strings.ContainsAny(text, "@=") {
			requireSame(t, text, e)
		}
	})
}
