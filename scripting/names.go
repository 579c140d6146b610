package scripting

import (
	"slices"
	"strings"

	"go.starlark.net/starlark"
)

// Sanitize makes a name that a program can say of a tool's name: what is no ASCII letter,
// digit or underscore becomes an underscore, and one goes before a leading digit.
func Sanitize(name string) string {
	b := []byte(name)
	for i, c := range b {
		if c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			b[i] = '_'
		}
	}
	if len(b) == 0 || b[0] >= '0' && b[0] <= '9' {
		return "_" + string(b)
	}
	return string(b)
}

// ours are the names that this package adds to those of the language, in order.
func ours() []string {
	return []string{"attempt", "call_tool", "call_tool_result", "describe_tool", "json", "list_tools", "math", "parallel", "print", "progress"}
}

// keywords are those of the language, and those that it keeps for later.
func keywords() []string {
	return []string{
		"and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif", "else", "except", "finally", "for",
		"from", "global", "if", "import", "in", "is", "lambda", "load", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
	}
}

// Taken reports whether a name is one of the language, a keyword, or a builtin of this
// package, so that neither a tool nor a key of the data can have it.
func Taken(name string) bool {
	return starlark.Universe.Has(name) || slices.Contains(ours(), name) || slices.Contains(keywords(), name)
}

// Identifier reports whether a text is a name that a program can say: ASCII letters, digits
// and underscores, no digit first.
func Identifier(name string) bool { return name != "" && Sanitize(name) == name }

// Nearest is the candidate most like a name, or "" when none is: at most a third of its
// letters may differ, and one of a short name. It compares 2,000 candidates at most.
func Nearest(name string, candidates []string) string {
	if len(name) > 64 {
		return ""
	}
	fold := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }
	x := fold(name)
	best, least, compared := "", max(1, len(x)/3)+1, 0
	for _, c := range candidates {
		if c == name || len(c) > 128 {
			continue
		}
		y := fold(c)
		if d := len(x) - len(y); d >= least || -d >= least {
			continue
		}
		if compared++; compared > 2000 {
			break
		}
		if d := distance(x, y); d < least && d < len(x) {
			best, least = c, d
		}
	}
	return best
}

// distance is the number of letters to add, remove or replace to make y of x.
func distance(x, y string) int {
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(x) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(y) {
			cost := diagonal
			if x[i] != y[j] {
				cost++
			}
			diagonal, row[j+1] = row[j+1], min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(y)]
}
