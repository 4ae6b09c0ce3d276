package expression_test

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fencepost/edge"
)

// jsonNumbers are numbers as JSON writes them, of any size.
func jsonNumbers() *rapid.Generator[string] {
	return rapid.StringMatching(`-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?`)
}

// What is compared and calculated is what exact rational numbers say.
func TestNumbersAgainstRationals(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := jsonNumbers().Draw(t, "a"), jsonNumbers().Draw(t, "b")
		x, okX := new(big.Rat).SetString(a)
		y, okY := new(big.Rat).SetString(b)
		require.True(t, okX && okY)
		e := event(fmt.Sprintf(`{"a": %s, "b": %s}`, a, b))
		for op, want := range map[string]bool{
			"<": x.Cmp(y) < 0, "<=": x.Cmp(y) <= 0, "==": x.Cmp(y) == 0, "!=": x.Cmp(y) != 0, ">=": x.Cmp(y) >= 0, ">": x.Cmp(y) > 0,
		} {
			got, err := condition(e, "data.a "+op+" data.b")
			require.NoError(t, err)
			require.Equal(t, want, got, "%s %s %s", a, op, b)
			literal, err := condition(e, strings.ReplaceAll("("+a+") "+op+" ("+b+")", "--", "- -"))
			require.NoError(t, err)
			require.Equal(t, want, literal, "%s %s %s", a, op, b)
		}
		for op, want := range map[string]*big.Rat{"+": new(big.Rat).Add(x, y), "-": new(big.Rat).Sub(x, y), "*": new(big.Rat).Mul(x, y)} {
			requireRational(t, e, "data.a "+op+" data.b", want)
		}
		requireRational(t, e, "int(data.a)", new(big.Rat).SetInt(new(big.Int).Quo(x.Num(), x.Denom())))
		floor := new(big.Int).Div(x.Num(), x.Denom()) // the denominator is positive, so this is the floor
		requireRational(t, e, "floor(data.a)", new(big.Rat).SetInt(floor))
		requireRational(t, e, "-ceil(-data.a)", new(big.Rat).SetInt(floor))
		requireQuotient(t, e, x, y)
	})
}

func requireRational(t *rapid.T, e *edge.Event, source string, want *big.Rat) {
	got, err := value(e, source)
	require.NoError(t, err, source)
	n, ok := new(big.Rat).SetString(got)
	require.True(t, ok, got)
	require.Zero(t, want.Cmp(n), "%s: %s is not %s", source, got, want)
}

// requireQuotient wants 34 significant digits of x/y, or all.
func requireQuotient(t *rapid.T, e *edge.Event, x, y *big.Rat) {
	got, err := value(e, "data.a / data.b")
	if y.Sign() == 0 {
		require.ErrorContains(t, err, "division by zero")
		return
	}
	require.NoError(t, err)
	n, ok := new(big.Rat).SetString(got)
	require.True(t, ok, got)
	want := new(big.Rat).Quo(x, y)
	off := new(big.Rat).Sub(n, want)
	bound := new(big.Rat).Quo(want, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(33), nil)))
	require.LessOrEqual(t, off.Abs(off).Cmp(bound.Abs(bound)), 0, "%s is not %s", got, want.FloatString(50))
}

func TestDivisionRounds(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`2 / 3`:    "0.6666666666666666666666666666666667",
		`-2 / 3`:   "-0.6666666666666666666666666666666667",
		`1 / 7`:    "0.1428571428571428571428571428571429",
		`10 / 4`:   "2.5",
		`1 / 1024`: "0.0009765625",
		`100000000000000000000000000000000000000000000 / 3`: "33333333333333333333333333333333330000000000",
	} {
		got, err := value(event("1"), source)
		require.NoError(t, err, source)
		require.Equal(t, want, got, source)
	}
}
