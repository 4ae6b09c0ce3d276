// Package catalogue keeps docs/observability.md equal to the program: each log
// message with its level and keys, and each metric with its type and labels.
package catalogue
