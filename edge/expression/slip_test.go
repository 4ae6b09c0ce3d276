package expression_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"fencepost/edge/expression"
)

// What is written as in another language is told how it is written here.
func TestSlipsAreToldTheWayOut(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`data.amont = 3`:       "column 12: = stands where none can: write == to compare",
		`data.a === 3`:         "column 10: = stands where none can: write ==",
		`data.a => 3`:          ">= for at least",
		`data.a <> 3`:          "column 9: > stands where none can: write !=",
		`data.a & data.b`:      "& stands where none can: write &&",
		`data.a AND data.b`:    "AND stands where none can: write &&",
		`data.a OR data.b`:     "OR stands where none can: write ||",
		`data.a LIKE "x"`:      "LIKE stands where none can: write contains",
		`data.a data.b`:        "column 8: data stands where none can",
		`data.a == 1 "s3cret"`: "a text stands where none can",
	} {
		_, err := expression.CompileCondition(source)
		require.ErrorContains(t, err, want, source)
		require.NotContains(t, err.Error(), "token", source)
		require.NotContains(t, err.Error(), "s3cret", source)
	}
}

// curl -d says that it sends a form; then data has no members.
func TestDataOfAForm(t *testing.T) {
	t.Parallel()
	e := event(`{"amount":1}`)
	e.ContentType = "application/x-www-form-urlencoded"
	_, err := condition(e, "data.amount > 0")
	require.ErrorContains(t, err, "data.amount: data is a text, as its content type is application/x-www-form-urlencoded; send JSON as application/json")
	_, err = value(e, "data[0]")
	require.ErrorContains(t, err, "application/x-www-form-urlencoded")
	e.ContentType, e.Data = "application/json", []byte(`"text"`)
	_, err = condition(e, "data.amount > 0")
	require.ErrorContains(t, err, "data.amount: a text has nothing inside it")
}
