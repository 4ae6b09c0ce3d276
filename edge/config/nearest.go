package config

import "strings"

// nearest is the word that s most likely means, or "": one that only misses its
// unit, or one a few edits away.
func nearest(s string, words []string) string {
	if len(s) > 64 {
		return ""
	}
	best, least := "", len(s)/3+1
	for _, w := range words {
		if s != "" && strings.HasPrefix(w, s+"_") {
			return w
		}
		if d := distance(s, w); d <= least && (best == "" || d < least) {
			best, least = w, d
		}
	}
	return best
}

// distance counts the letters to insert, remove, replace or swap with their
// neighbour to make b of a.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
