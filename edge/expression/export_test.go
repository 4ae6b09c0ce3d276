package expression

import (
	"maps"
	"slices"
)

// Functions are the names of all functions.
func Functions() []string {
	return slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Keys(functions)), slices.Collect(maps.Keys(predicates)))))
}
