package authz

import (
	"fmt"
	"unicode/utf8"
)

// The bounds of a policy set. They are checked on the text, before the policy
// language's parser sees it: that parser and the evaluation of what it returns
// recurse, and a stack that overflows ends the process.
const (
	maxPolicyText = 1 << 20 // bytes of all policies of a set together
	maxPolicies   = 20_000  // of a set
	maxNesting    = 1_000   // of brackets
	maxChain      = 20_000  // operators and words between brackets, on the way to any one place
)

// bounded looks through policy text and returns how many policies it holds, or
// what is nested deeper than the bounds.
//
// It knows of Cedar only strings, comments, brackets and where an expression
// starts anew: after a comma, a semicolon or a bracket. Within one expression
// every token may add a level to the tree that it parses to, so the sum of the
// tokens of all expressions that a place is in bounds the tree's depth there.
func bounded(text string) (policies int, err error) {
	if !utf8.ValidString(text) {
		return 0, fmt.Errorf("not valid UTF-8")
	}
	var open []int // tokens of the expressions around this one
	here, outer := 0, 0
	line, start := 1, 0 // of the text at i
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\n':
			line, start = line+1, i+1
		case c == ' ' || c == '\t' || c == '\r':
		case c == '/' && i+1 < len(text) && text[i+1] == '/':
			for i+1 < len(text) && text[i+1] != '\n' {
				i++
			}
		case c == '/' && i+1 < len(text) && text[i+1] == '*':
			for i += 2; i < len(text) && !(text[i] == '/' && text[i-1] == '*' && text[i-2] != '/'); i++ {
				if text[i] == '\n' {
					line, start = line+1, i+1
				}
			}
		case c == '"':
			for i++; i < len(text) && text[i] != '"' && text[i] != '\n'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			here++
		case c == '(' || c == '[' || c == '{':
			if len(open) == maxNesting {
				return 0, fmt.Errorf("line %d, column %d: nested deeper than %d", line, i-start+1, maxNesting)
			}
			open = append(open, here)
			outer += here
			here = 0
		case c == ')' || c == ']' || c == '}':
			if n := len(open); n > 0 {
				here = open[n-1]
				outer -= here
				open = open[:n-1]
			}
			here++
		case c == ',':
			here = 0
		case c == ';':
			open, here, outer = open[:0], 0, 0
			policies++
		default:
			for i+1 < len(text) && word(c) && word(text[i+1]) {
				i++
			}
			if i+1 < len(text) && pair(text[i:i+2]) {
				i++
			}
			here++
		}
		if outer+here > maxChain {
			return 0, fmt.Errorf("line %d, column %d: an expression of more than %d parts", line, i-start+1, maxChain)
		}
	}
	return policies, nil
}

// pair reports whether an operator has two characters.
func pair(s string) bool {
	switch s {
	case "&&", "||", "==", "!=", "<=", ">=", "::":
		return true
	}
	return false
}

func word(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
