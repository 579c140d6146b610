// Package near finds the name that the writer of an unknown one most likely
// meant.
package near

import (
	"slices"
	"strings"
)

// Hint returns the candidate that a writer of name most likely meant, and how a
// message says so: "did you mean groupRef?", or "it is called kvstore here" for
// a word of other configurations. Both are "" when no candidate is near.
func Hint(name string, candidates []string) (word, hint string) {
	word, ok := Word(name, candidates)
	switch {
	case !ok:
		return "", ""
	case elsewhere(undress(name), []string{word}) != "":
		return word, "it is called " + word + " here"
	}
	return word, "did you mean " + word + "?"
}

// Word returns the candidate that a writer of name most likely meant, and
// whether there is one: the same word in other clothes (group_ref for
// groupRef), a word of other configurations for the same thing, or one that
// few slips of the hand turn into name.
func Word(name string, candidates []string) (string, bool) {
	if len(name) > 64 {
		return "", false
	}
	plain := undress(name)
	if plain == "" {
		return "", false
	}
	sorted := slices.Sorted(slices.Values(candidates))
	for _, c := range sorted {
		if undress(c) == plain {
			return c, true
		}
	}
	if ours := elsewhere(plain, sorted); ours != "" {
		return ours, true
	}
	best, slips := "", max(1, min(3, len(plain)/3))+1
	for _, c := range sorted {
		if d := distance(plain, undress(c), slips); d < slips {
			best, slips = c, d
		}
	}
	return best, best != ""
}

// elsewhere returns the candidate that other configurations call plain; "" for
// none.
func elsewhere(plain string, candidates []string) string {
	for _, other := range otherWords() {
		if plain != other.word {
			continue
		}
		if i := slices.IndexFunc(candidates, func(c string) bool { return undress(c) == other.ours }); i >= 0 {
			return candidates[i]
		}
	}
	return ""
}

// otherWords are words that configurations of the same shape and the
// protocol itself use for what has another name here.
func otherWords() []otherWord {
	return []otherWord{
		{"redis", "kvstore"},
		{"cedar", "policy"},
		{"cedarv1", "policyv1"},
		{"awssts", "cloudsts"},
		{"openai", "compat"},

		{"tools/call", "calltool"},
		{"prompts/get", "getprompt"},
		{"resources/read", "readresource"},
	}
}

type otherWord struct{ word, ours string } // both undressed

// undress takes away what writers vary without meaning: case and separators.
func undress(s string) string {
	return strings.NewReplacer("_", "", "-", "", ".", "", " ", "").Replace(strings.ToLower(s))
}

// distance counts the slips (a letter missing, added, changed, or two swapped)
// between two words; it gives up at limit.
func distance(a, b string, limit int) int {
	x, y := []rune(a), []rune(b)
	if len(x)-len(y) >= limit || len(y)-len(x) >= limit {
		return limit
	}
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row[0] = i
		for j := 1; j <= len(y); j++ {
			change := last[j-1]
			if x[i-1] != y[j-1] {
				change++
			}
			row[j] = min(change, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return min(last[len(y)], limit)
}
