package schedule_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/edge"
	"fencepost/edge/schedule"
)

func set(values ...int) (bits uint64) {
	for _, v := range values {
		bits |= 1 << v
	}
	return bits
}

func span(low, high, step int) (bits uint64) {
	for v := low; v <= high; v += step {
		bits |= 1 << v
	}
	return bits
}

var (
	allMinutes = span(0, 59, 1)
	allHours   = span(0, 23, 1)
	allDoms    = span(1, 31, 1)
	allMonths  = span(1, 12, 1)
	allDows    = span(0, 6, 1)
)

func TestParseReadsSets(t *testing.T) {
	t.Parallel()
	every := schedule.Expr{
		Second: set(0), Minute: allMinutes, Hour: allHours, Dom: allDoms, Month: allMonths, Dow: allDows, AnyDom: true, AnyDow: true,
	}
	for text, change := range map[string]func(*schedule.Expr){
		"* * * * *":       func(e *schedule.Expr) { e.Elapsed = true },
		" \t* *  * *\t* ": func(e *schedule.Expr) { e.Elapsed = true },
		"* * * * * *":     func(e *schedule.Expr) { e.Elapsed, e.Second = true, allMinutes },
		"5 */15 * * * *":  func(e *schedule.Expr) { e.Elapsed, e.Second, e.Minute = true, set(5), set(0, 15, 30, 45) },
		"30 2 * * *":      func(e *schedule.Expr) { e.Minute, e.Hour = set(30), set(2) },
		"0 */2 * * *":     func(e *schedule.Expr) { e.Elapsed, e.Minute, e.Hour = true, set(0), span(0, 23, 2) },
		"0 0-23/2 * * *":  func(e *schedule.Expr) { e.Minute, e.Hour = set(0), span(0, 23, 2) },
		"0 0 ? * ?":       func(e *schedule.Expr) { e.Minute, e.Hour = set(0), set(0) },
		"0 0 13 * ?":      func(e *schedule.Expr) { e.Minute, e.Hour, e.Dom, e.AnyDom = set(0), set(0), set(13), false },
		"0 0 */1 * *":     func(e *schedule.Expr) { e.Minute, e.Hour = set(0), set(0) },
		"0 0 */10 * *":    func(e *schedule.Expr) { e.Minute, e.Hour, e.Dom, e.AnyDom = set(0), set(0), set(1, 11, 21, 31), false },
		"0 0 * JAN,mar-May Mon-fri": func(e *schedule.Expr) {
			e.Minute, e.Hour, e.Month, e.Dow, e.AnyDow = set(0), set(0), set(1, 3, 4, 5), span(1, 5, 1), false
		},
		"0 0 * * 7":     func(e *schedule.Expr) { e.Minute, e.Hour, e.Dow, e.AnyDow = set(0), set(0), set(0), false },
		"0 0 * * 5-7":   func(e *schedule.Expr) { e.Minute, e.Hour, e.Dow, e.AnyDow = set(0), set(0), set(5, 6, 0), false },
		"0 0 * * 1-7/2": func(e *schedule.Expr) { e.Minute, e.Hour, e.Dow, e.AnyDow = set(0), set(0), set(1, 3, 5, 0), false },
		"0 0 * * 0-7":   func(e *schedule.Expr) { e.Minute, e.Hour, e.AnyDow = set(0), set(0), false },
		"10/20 0 * * *": func(e *schedule.Expr) { e.Minute, e.Hour = set(10, 30, 50), set(0) },
		"*/60 0 * * *":  func(e *schedule.Expr) { e.Minute, e.Hour = set(0), set(0) },
		"05 007 * * *":  func(e *schedule.Expr) { e.Minute, e.Hour = set(5), set(7) },
		"0 0 29 2 *": func(e *schedule.Expr) {
			e.Minute, e.Hour, e.Dom, e.Month, e.AnyDom = set(0), set(0), set(29), set(2), false
		},
		"0 0 31 1,2 *": func(e *schedule.Expr) {
			e.Minute, e.Hour, e.Dom, e.Month, e.AnyDom = set(0), set(0), set(31), set(1, 2), false
		},
		"@yearly": func(e *schedule.Expr) {
			e.Minute, e.Hour, e.Dom, e.Month, e.AnyDom = set(0), set(0), set(1), set(1), false
		},
		"@Annually": func(e *schedule.Expr) {
			e.Minute, e.Hour, e.Dom, e.Month, e.AnyDom = set(0), set(0), set(1), set(1), false
		},
		"@MONTHLY":                  func(e *schedule.Expr) { e.Minute, e.Hour, e.Dom, e.AnyDom = set(0), set(0), set(1), false },
		"@weekly":                   func(e *schedule.Expr) { e.Minute, e.Hour, e.Dow, e.AnyDow = set(0), set(0), set(0), false },
		"@daily":                    func(e *schedule.Expr) { e.Minute, e.Hour = set(0), set(0) },
		"@midnight":                 func(e *schedule.Expr) { e.Minute, e.Hour = set(0), set(0) },
		"@hourly":                   func(e *schedule.Expr) { e.Minute, e.Elapsed = set(0), true },
		"TZ=Europe/Paris 0 6 * * *": func(e *schedule.Expr) { e.Minute, e.Hour, e.Zone = set(0), set(6), "Europe/Paris" },
		"CRON_TZ=UTC @daily":        func(e *schedule.Expr) { e.Minute, e.Hour, e.Zone = set(0), set(0), "UTC" },
		"TZ=host 0 6 * * *":         func(e *schedule.Expr) { e.Minute, e.Hour, e.Zone = set(0), set(6), schedule.HostZone },
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			want := every
			want.Text = text
			change(&want)
			got, err := schedule.Parse(text)
			require.NoError(t, err)
			require.Equal(t, &want, got)
		})
	}
}

func TestParseReadsIntervals(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"@every 1s": time.Second, "@Every 1h30m": 90 * time.Minute, "@every  24h": 24 * time.Hour, "@every 2000ms": 2 * time.Second,
	} {
		got, err := schedule.Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, &schedule.Expr{Text: text, Every: want, Elapsed: true}, got)
	}
}

// The faults that were measured on robfig/cron are among these.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                              "column 1: there are no fields",
		"   ":                           "column 4: there are no fields",
		"* * * *":                       "column 1: there are 4 fields; five fields",
		"* * * * * * *":                 "column 1: there are 7 fields",
		"60 * * * *":                    "column 1: minute: 60 is out of range; * or a list of values from 0 to 59",
		"60 * * * * *":                  "column 1: second: 60 is out of range",
		"* 24 * * *":                    "column 3: hour: 24 is out of range",
		"* * 0 * *":                     "column 5: day of month: 0 is out of range",
		"* * 32 * *":                    "column 5: day of month: 32 is out of range",
		"* * * 13 *":                    "column 7: month: 13 is out of range",
		"* * * 0 *":                     "column 7: month: 0 is out of range",
		"* * * * 8":                     "column 9: day of week: 8 is out of range",
		"1,,2 * * * *":                  "column 3: minute: an item of the list is empty",
		",1 * * * *":                    "column 1: minute: an item of the list is empty",
		"1, * * * *":                    "column 3: minute: an item of the list is empty",
		"*/70 * * * *":                  "column 3: minute: the step 70 is larger than the field, which has 60 values",
		"* */25 * * *":                  "column 5: hour: the step 25 is larger",
		"*/0 * * * *":                   "column 3: minute: the step is 0",
		"*/ * * * *":                    "column 3: minute: the step is not a whole number",
		"*/-1 * * * *":                  "column 3: minute: the step is not a whole number",
		"*/1/2 * * * *":                 "column 3: minute: the step is not a whole number",
		"0,30-10 * * * *":               "column 3: minute: the range is reversed: 30 is after 10",
		"0 0 * * fri-mon":               "column 9: day of week: the range is reversed: 5 is after 1",
		"0 0 * * 7-2":                   "column 9: day of week: the range is reversed",
		"0 0 * * 7/2":                   "column 9: day of week: 7 with a step: write 0",
		"0 0 * nov-feb *":               "column 7: month: the range is reversed",
		"1-2-3 * * * *":                 "column 3: minute: not a value",
		"1- * * * *":                    "column 3: minute: a value is missing",
		"-5 * * * *":                    "column 1: minute: a value is missing",
		"+5 * * * *":                    "column 1: minute: not a value",
		"1.5 * * * *":                   "column 1: minute: not a value",
		"1-* * * * *":                   "column 3: minute: * cannot be the end of a range",
		"*-5 * * * *":                   "column 1: minute: * cannot be the end of a range",
		"? * * * *":                     "column 1: minute: ? can only stand in the two day fields",
		"* ? * * *":                     "column 3: hour: ? can only stand in the two day fields",
		"0 0 ?/2 * *":                   "column 5: day of month: ? takes no step",
		"0 0 * monday *":                "column 7: month: not a value",
		"0 0 * * monday":                "column 9: day of week: not a value",
		"0 0 L * *":                     "column 5: day of month: not a value",
		"99999999999999999999 * * * *":  "column 1: minute: not a value",
		"0 0 31 2 *":                    "column 5: day of month: no day ever matches",
		"0 0 30,31 feb ?":               "column 5: day of month: no day ever matches",
		"0 0 31 4,6,9,11 *":             "column 5: day of month: no day ever matches",
		"0 0 * * *\n":                   "column 10: only letters",
		"0 0 * * \x00":                  "column 9: only letters",
		"0 0 \u00a0* * *":               "column 5: only letters",
		"@":                             "column 1: descriptor: unknown; @yearly",
		"@dayly":                        "column 1: descriptor: unknown",
		"@reboot":                       "column 1: descriptor: unknown",
		"@daily 5":                      "column 8: descriptor: nothing can follow @daily",
		"@every":                        "column 1: interval: the duration is missing",
		"@every 5":                      "column 8: interval: not a duration",
		"@every 100ms":                  "column 8: interval: is shorter than one second",
		"@every 0s":                     "column 8: interval: is shorter than one second",
		"@every -1h":                    "column 8: interval: is shorter than one second",
		"@every 1.5s":                   "column 8: interval: is not a whole number of seconds",
		"@every 1h 5m":                  "column 11: interval: nothing can follow the duration",
		"@every 900000h":                "column 8: interval: is longer than 40 years",
		"@every 99999999999h":           "column 8: interval: not a duration",
		"TZ=":                           "column 4: zone: the name is empty",
		"TZ=0":                          "column 4: zone: a fixed offset is not a zone",
		"TZ=UTC":                        "column 7: there are no fields",
		"CRON_TZ=UTC":                   "column 12: there are no fields",
		"CRON_TZ=America/New_York":      "there are no fields",
		"TZ= 0 0 * * *":                 "column 4: zone: the name is empty",
		"TZ=TZ=TZ=":                     "column 4: zone: no zone has this name",
		"TZ=UTC TZ=UTC 0 0 * * *":       "column 8: zone: there is a second zone",
		"TZ=Local 0 0 * * *":            "column 4: zone: this name means another zone on each host",
		"TZ=localtime 0 0 * * *":        "column 4: zone: this name means another zone on each host",
		"TZ=+02:00 0 0 * * *":           "column 4: zone: a fixed offset is not a zone",
		"TZ=Nowhere/Land 0 0 * * *":     "column 4: zone: no zone has this name",
		"TZ=../../etc/passwd 0 0 * * *": "column 4: zone: no zone has this name",
		"0 0 * * * TZ=UTC":              "column 11: day of week: not a value",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			e, err := schedule.Parse(text)
			require.Nil(t, e)
			require.ErrorContains(t, err, want)
			require.ErrorIs(t, err, edge.ErrInvalid)
			var fault *schedule.Error
			require.ErrorAs(t, err, &fault)
			require.NotEmpty(t, fault.Allowed)
		})
	}
}

func TestS1_ZonePrefixesAreFaultsAndNoPanics(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"TZ=0", "CRON_TZ=UTC", "TZ=TZ=TZ=", "TZ=", "TZ=UTC", "CRON_TZ=America/New_York"} {
		_, err := schedule.Parse(text)
		require.ErrorIs(t, err, edge.ErrInvalid, text)
	}
}

func TestLongExpressionIsRefused(t *testing.T) {
	t.Parallel()
	_, err := schedule.Parse(strings.Repeat("1,", 600) + "1 * * * *")
	require.ErrorContains(t, err, "too long")
}

// 29 February, and a weekday beside an impossible day, do match.
func TestRareDaysAreNotNever(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"0 0 29 2 *", "0 0 31 2 5", "0 0 30,31 2,3 *"} {
		_, err := schedule.Parse(text)
		require.NoError(t, err, text)
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0 0 */2 * 3":    "either may match",
		"0 0 13 * */2":   "either may match",
		"* */10 * * * *": "every second",
		"0 0 13 * 5":     "",
		"0 0 */2 * *":    "",
		"* * * * *":      "",
		"* * * * * *":    "",
	} {
		e, err := schedule.Parse(text)
		require.NoError(t, err, text)
		if want == "" {
			require.Empty(t, e.Warnings, text)
			continue
		}
		require.Len(t, e.Warnings, 1, text)
		require.Contains(t, e.Warnings[0], want)
	}
}

func TestCheckZone(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"UTC", "host", "Europe/Berlin", "Australia/Lord_Howe", "Etc/GMT+5"} {
		require.NoError(t, schedule.CheckZone(name), name)
	}
	for _, name := range []string{"", "Local", "local", "+01:00", "Europe/Nowhere", strings.Repeat("a", 65), "Host"} {
		require.ErrorIs(t, schedule.CheckZone(name), edge.ErrInvalid, name)
	}
}
