package config

import (
	"fmt"
	"mime"
	"strconv"
	"strings"

	"fencepost/edge"
	"fencepost/edge/expression"
)

// What a fault of an expression says is allowed.
const (
	conditionHelp = `true or false of the event, such as when = "data.amount > 100"; see docs/expressions.md`
	templateHelp  = `a text with ${...}, such as "till-${data.till ?? 'none'}"; see docs/expressions.md`
)

// checkWhen accepts a condition.
func checkWhen(s string) (problem, allowed string) {
	if s == "" {
		return "is empty", conditionHelp
	}
	_, err := expression.CompileCondition(s)
	return expressionFault(err, conditionHelp)
}

// checkTemplate accepts a text with ${...}.
func checkTemplate(s string, use expression.Use) (problem, allowed string) {
	_, err := expression.CompileTemplate(s, use)
	return expressionFault(err, templateHelp)
}

func expressionFault(err error, help string) (problem, allowed string) {
	if err == nil {
		return "", ""
	}
	return strings.TrimPrefix(err.Error(), edge.ErrInvalid.Error()+": "), help
}

// checkStdin accepts a standard input.
func checkStdin(s string) (problem, allowed string) { return checkLong(s, expression.Plain) }

// checkVariable accepts the value of a variable.
func checkVariable(s string) (problem, allowed string) {
	if expression.IsTemplate(s) && len(s) <= MaxTextBytes {
		return checkTemplate(s, expression.Variable)
	}
	return checkArg(s)
}

func checkLong(s string, use expression.Use) (problem, allowed string) {
	if len(s) > MaxTextBytes {
		return fmt.Sprintf("has %d bytes", len(s)), "at most " + strconv.Itoa(MaxTextBytes) + " bytes"
	}
	return checkTemplate(s, use)
}

// defaultBodyType is the content type of a body that the configuration writes.
const defaultBodyType = "application/json"

// readBody reads body and content_type, which depend on each other.
func readBody(t *table, w *Webhook) {
	contentType, ok := t.text("content_type", optional(checkContentType))
	unknown := t.has("content_type") && !ok // one fault, not several
	of := contentType
	if of == "" {
		of = defaultBodyType
	}
	w.Body, _ = t.text("body", optional(func(s string) (problem, allowed string) {
		if unknown {
			return "", ""
		}
		problem, allowed = checkLong(s, expression.BodyUse(of))
		if strings.Contains(problem, "it is not JSON") {
			allowed = "JSON, in which ${...} stands for a whole value or inside of quotes" +
				`; a body that is no JSON needs its content_type, such as "text/plain; charset=utf-8"`
		}
		return problem, allowed
	}))
	if t.has("body") && w.Body != "" {
		w.ContentType = of
		return
	}
	if contentType != "" && !t.has("body") {
		t.fault("content_type", "there is no body that it is the type of", "a body, or none of the two: then the event's data is sent with its own type")
	}
}

func checkContentType(s string) (problem, allowed string) {
	if _, _, err := mime.ParseMediaType(s); err != nil || !strings.Contains(s, "/") || validText(s, edge.MaxNameBytes) != "" || expression.IsTemplate(s) {
		return "not a content type", `a media type, such as "application/json" or "text/plain; charset=utf-8"`
	}
	return "", ""
}
