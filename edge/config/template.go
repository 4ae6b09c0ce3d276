package config

import (
	"strings"

	"fencepost/edge"
	"fencepost/edge/expression"
)

// expressionHelp is what a fault of an expression says is allowed.
const expressionHelp = "the names are " + expression.Names + "; see docs/expressions.md"

// checkWhen accepts a condition.
func checkWhen(s string) (problem, allowed string) {
	if s == "" {
		return "is empty", `true or false of the event, such as when = "data.amount > 100"`
	}
	_, err := expression.CompileCondition(s)
	return expressionFault(err)
}

// checkTemplate accepts a text with ${...}.
func checkTemplate(s string, use expression.Use) (problem, allowed string) {
	_, err := expression.CompileTemplate(s, use)
	return expressionFault(err)
}

func expressionFault(err error) (problem, allowed string) {
	if err == nil {
		return "", ""
	}
	problem = strings.TrimPrefix(err.Error(), edge.ErrInvalid.Error()+": ")
	if strings.Contains(problem, expression.Names) {
		return problem, "see docs/expressions.md"
	}
	return problem, expressionHelp
}
