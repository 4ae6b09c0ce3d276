package expression

import (
	"encoding/json"
	"math/big"
	"strconv"
	"strings"
)

// Every number is a json.Number: the text of a JSON number. What came in the
// data is kept as it was written.

// maxExponent bounds the powers of ten that are compared or calculated with.
const maxExponent = 1_000_000

// divisionDigits are the significant digits of a quotient that has no end.
const divisionDigits = 34

// decimal is coef * 10^exp, exactly. coef has no trailing zero unless it is 0.
type decimal struct {
	coef *big.Int
	exp  int
}

var ten = big.NewInt(10)

// parseDecimal reads the text of a JSON number.
func parseDecimal(n json.Number) (decimal, error) {
	s := string(n)
	mantissa, exponent := s, 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.Atoi(s[i+1:]); err != nil || exponent > maxExponent || exponent < -maxExponent {
			return decimal{}, faultf("a number's exponent is beyond %d", maxExponent)
		}
		mantissa = s[:i]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	exponent -= len(fraction)
	digits := strings.TrimLeft(strings.TrimPrefix(whole, "-")+fraction, "0")
	trimmed := strings.TrimRight(digits, "0")
	exponent += len(digits) - len(trimmed)
	if len(trimmed) > MaxDigits {
		return decimal{}, faultf("a number has %d digits, the limit is %d", len(trimmed), MaxDigits)
	}
	if trimmed == "" {
		return decimal{coef: new(big.Int)}, nil
	}
	coef, ok := new(big.Int).SetString(trimmed, 10)
	if !ok {
		return decimal{}, faultf("not a number")
	}
	if mantissa[0] == '-' {
		coef.Neg(coef)
	}
	return decimal{coef, exponent}, nil
}

// small is the value of a number that is a whole one of at most 18 digits.
func small(n json.Number) (int64, bool) {
	if len(n) > 18 {
		return 0, false
	}
	i, err := strconv.ParseInt(string(n), 10, 64)
	return i, err == nil
}

// digits is the number of decimal digits of the coefficient.
func (d decimal) digits() int { return len(new(big.Int).Abs(d.coef).String()) }

// compare is -1, 0 or 1, like cmp.Compare, without ever writing out a power.
func (d decimal) compare(o decimal) int {
	if s := d.coef.Sign() - o.coef.Sign(); s != 0 || d.coef.Sign() == 0 {
		return max(-1, min(1, s))
	}
	if a, b := d.digits()+d.exp, o.digits()+o.exp; a != b {
		if a > b {
			return d.coef.Sign()
		}
		return -d.coef.Sign()
	}
	// Of one size, so the exponents differ by at most MaxDigits.
	a, b, _ := aligned(d, o)
	return a.Cmp(b)
}

// aligned are both coefficients at the smaller exponent.
func aligned(a, b decimal) (x, y *big.Int, exp int) {
	exp = min(a.exp, b.exp)
	return scaled(a.coef, a.exp-exp), scaled(b.coef, b.exp-exp), exp
}

func scaled(n *big.Int, by int) *big.Int {
	if by == 0 {
		return n
	}
	return new(big.Int).Mul(n, new(big.Int).Exp(ten, big.NewInt(int64(by)), nil))
}

// far reports whether two numbers are too far apart to be added.
func far(a, b decimal) bool {
	if a.coef.Sign() == 0 || b.coef.Sign() == 0 {
		return false
	}
	d := a.exp - b.exp
	return d > 2*MaxDigits || d < -2*MaxDigits
}

func compareNumbers(a, b json.Number) (int, error) {
	if x, ok := small(a); ok {
		if y, ok := small(b); ok {
			switch {
			case x < y:
				return -1, nil
			case x > y:
				return 1, nil
			}
			return 0, nil
		}
	}
	x, err := parseDecimal(a)
	if err != nil {
		return 0, err
	}
	y, err := parseDecimal(b)
	if err != nil {
		return 0, err
	}
	return x.compare(y), nil
}

// calculate is a op b, exact but for quotients without an end.
func calculate(op string, a, b json.Number) (json.Number, error) {
	x, err := parseDecimal(a)
	if err != nil {
		return "", err
	}
	y, err := parseDecimal(b)
	if err != nil {
		return "", err
	}
	switch op {
	case "+", "-":
		if far(x, y) {
			return "", faultf("the result has more than %d digits", MaxDigits)
		}
		if x.coef.Sign() == 0 || y.coef.Sign() == 0 { // their exponents mean nothing
			if x.coef.Sign() == 0 {
				x.exp = y.exp
			} else {
				y.exp = x.exp
			}
		}
		m, n, exp := aligned(x, y)
		if op == "+" {
			return decimal{new(big.Int).Add(m, n), exp}.number()
		}
		return decimal{new(big.Int).Sub(m, n), exp}.number()
	case "*":
		return decimal{new(big.Int).Mul(x.coef, y.coef), x.exp + y.exp}.number()
	case "/":
		return divide(x, y)
	}
	return remainder(x, y)
}

// divide rounds to divisionDigits significant digits, half to even.
func divide(x, y decimal) (json.Number, error) {
	if y.coef.Sign() == 0 {
		return "", faultf("division by zero")
	}
	// Enough digits for an exact quotient, or for rounding one without end.
	shift := divisionDigits + 2 + max(0, y.digits()-x.digits())
	q, r := new(big.Int).QuoRem(scaled(x.coef, shift), y.coef, new(big.Int))
	d := decimal{q, x.exp - y.exp - shift}
	if r.Sign() == 0 && len(strings.TrimRight(q.String(), "0")) <= MaxDigits {
		return d.number()
	}
	drop := d.digits() - divisionDigits
	unit := new(big.Int).Exp(ten, big.NewInt(int64(drop)), nil)
	kept, rest := new(big.Int).QuoRem(q, unit, new(big.Int))
	twice := new(big.Int).Abs(rest)
	twice.Lsh(twice, 1)
	switch c := twice.Cmp(unit); {
	case c > 0, c == 0 && (r.Sign() != 0 || kept.Bit(0) == 1):
		kept.Add(kept, big.NewInt(int64(x.coef.Sign()*y.coef.Sign())))
	}
	return decimal{kept, d.exp + drop}.number()
}

// remainder has the sign of x, as in Go; both must be whole.
func remainder(x, y decimal) (json.Number, error) {
	if y.coef.Sign() == 0 {
		return "", faultf("division by zero")
	}
	if x.exp < 0 || y.exp < 0 {
		return "", faultf("%% wants whole numbers")
	}
	if x.exp > MaxDigits || y.exp > MaxDigits {
		return "", faultf("a number has more than %d digits", MaxDigits)
	}
	return decimal{new(big.Int).Rem(scaled(x.coef, x.exp), scaled(y.coef, y.exp)), 0}.number()
}

// whole is d rounded to a whole number: op is floor, ceil or round (half away
// from zero), or int (towards zero).
func (d decimal) whole(op string) decimal {
	if d.exp >= 0 {
		return d
	}
	if d.digits()+d.exp < 0 { // nearer to 0 than 0.1, so how much nearer does not matter
		d = decimal{big.NewInt(int64(d.coef.Sign())), -2}
	}
	unit := new(big.Int).Exp(ten, big.NewInt(int64(-d.exp)), nil)
	q, r := new(big.Int).QuoRem(d.coef, unit, new(big.Int))
	up := false
	switch op {
	case "floor":
		up = r.Sign() < 0
	case "ceil":
		up = r.Sign() > 0
	case "round":
		twice := new(big.Int).Abs(r)
		up = twice.Lsh(twice, 1).Cmp(unit) >= 0
	}
	if up {
		q.Add(q, big.NewInt(int64(d.coef.Sign())))
	}
	return decimal{q, 0}
}

// number writes d: plain when that has at most MaxDigits digits, else with an
// exponent.
func (d decimal) number() (json.Number, error) {
	text := new(big.Int).Abs(d.coef).String()
	trimmed := strings.TrimRight(text, "0")
	exp := d.exp + len(text) - len(trimmed)
	switch {
	case trimmed == "":
		return "0", nil
	case len(trimmed) > MaxDigits:
		return "", faultf("the result has more than %d digits", MaxDigits)
	case exp > maxExponent || exp < -maxExponent:
		return "", faultf("the result's exponent is beyond %d", maxExponent)
	}
	sign := ""
	if d.coef.Sign() < 0 {
		sign = "-"
	}
	switch point := len(trimmed) + exp; {
	case exp >= 0 && point <= MaxDigits:
		return json.Number(sign + trimmed + strings.Repeat("0", exp)), nil
	case exp >= 0 || point < -MaxDigits:
		return json.Number(sign + trimmed + "e" + strconv.Itoa(exp)), nil
	case point > 0:
		return json.Number(sign + trimmed[:point] + "." + trimmed[point:]), nil
	default:
		return json.Number(sign + "0." + strings.Repeat("0", -point) + trimmed), nil
	}
}

func count(n int) json.Number { return json.Number(strconv.Itoa(n)) }

// index is a number as a position in a list or text.
func index(n json.Number) (int, error) {
	if i, ok := small(n); ok && i == int64(int(i)) {
		return int(i), nil
	}
	d, err := parseDecimal(n)
	if err != nil {
		return 0, err
	}
	if d.exp < 0 || d.digits()+d.exp > 9 {
		return 0, faultf("a position must be a whole number")
	}
	return int(scaled(d.coef, d.exp).Int64()), nil
}

// literalNumber is the JSON form of a number as the language writes it.
func literalNumber(text string) (json.Number, bool) {
	text = strings.ReplaceAll(text, "_", "")
	if len(text) > 1 && text[0] == '0' && strings.ContainsAny(text[1:2], "xXoObB") {
		i, ok := new(big.Int).SetString(text, 0)
		if !ok {
			return "", false
		}
		return json.Number(i.String()), true
	}
	return jsonNumber(text)
}

// jsonNumber mends what JSON does not allow: .5, 5., 007 and +1.
func jsonNumber(text string) (json.Number, bool) {
	text = strings.TrimPrefix(text, "+")
	sign := ""
	if rest, ok := strings.CutPrefix(text, "-"); ok {
		sign, text = "-", rest
	}
	mantissa, exponent := text, ""
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mantissa, exponent = text[:i], text[i:]
	}
	whole, fraction, point := strings.Cut(mantissa, ".")
	whole = strings.TrimLeft(whole, "0")
	if whole == "" && mantissa != "" && mantissa != "." {
		whole = "0"
	}
	if point && fraction != "" {
		whole += "." + fraction
	}
	s := sign + whole + exponent
	if len(s) == 0 || strings.TrimLeft(s, "-0123456789.eE+") != "" || !json.Valid([]byte(s)) {
		return "", false
	}
	return json.Number(s), true
}
