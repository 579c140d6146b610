package main

import "strings"

// phrases are what is said to a model and to nobody else, by their first words.
// Each is a list of places: the words that may stand there, with a ? behind
// them where none need.
var phrases = func() map[string][][][]string {
	all := map[string][][][]string{}
	const (
		drop  = "ignore disregard forget override"
		which = "previous prior above earlier preceding foregoing existing original"
		rules = "instructions instruction prompt prompts directions rules messages guidelines context constraints"
		never = "tell inform mention alert notify reveal show"
		human = "user users human person"
	)
	for _, p := range []string{
		drop + " | all any every ? | of ? | the your my these those ? | " + which + " | system developer ? | " + rules,
		drop + " | all ? | your | system developer safety ? | " + rules,
		drop + " | everything | above before previously said you ? | were ? | told above before",
		"do | not never | " + never + " | this it that about ? | to ? | the your | " + human,
		"don't never | " + never + " | this it that about ? | to ? | the your | " + human,
		"without | telling informing notifying alerting asking | the your | " + human,
		"reveal print show output repeat | your the | system hidden initial developer | prompt instructions message",
		"your | new | instructions task objective goal | is are",
		"new updated | system developer | prompt instructions instruction message",
		"you | are | now | in | developer debug dan god admin unrestricted | mode",
		"note message instructions instruction | to for | the any ? | ai llm assistant model agent | reading processing assistants models agents",
	} {
		var one [][]string
		for _, place := range strings.Split(p, "|") {
			one = append(one, strings.Fields(place))
		}
		for _, w := range one[0] {
			all[w] = append(all[w], one)
		}
	}
	return all
}()

// marks are signs of hidden instructions wherever they stand, in lower case, by
// what they begin with.
var marks = map[byte][]string{
	'<': {"<important>", "</important>", "<system>", "</system>", "<secret>", "<hidden>", "<instructions>", "<|im_start|>", "<|system|>", "<<sys>>"},
	'[': {"[inst]", "[system]"},
}

// listMarks are besides signs of them in what is offered: comments that nobody
// sees, and files that no description has reason to name.
var listMarks = map[byte][]string{
	'<': {"<!--"},
	'~': {"~/.ssh", "~/.aws", "~/.cursor", "~/.netrc"},
	'.': {".ssh/id_", ".aws/credentials", ".cursor/mcp.json"},
	'i': {"id_rsa", "id_ed25519"},
	'/': {"/etc/passwd", "/etc/shadow"},
}

// instructs says whether a text has instructions to a model. It takes one pass:
// a phrase has few words.
func instructs(s string, list bool) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c == '<' || c == '[' {
			if marked(s[i:], marks[c]) {
				return true
			}
		}
		if list && (c == '<' || c == '~' || c == '.' || c == 'i' || c == '/') && marked(s[i:], listMarks[c]) {
			return true
		}
		switch c { // what the first words of phrases begin with
		case 'i', 'd', 'f', 'o', 'n', 'w', 'r', 'p', 's', 'y', 'u', 'm':
			if i > 0 && inWord(s[i-1]) {
				continue
			}
			first, end := word(s, i)
			if len(first) > 16 {
				i = end - 1 // as long as no word of them
				continue
			}
			for _, p := range phrases[strings.ToLower(first)] {
				if follows(s, end, p[1:]) {
					return true
				}
			}
		}
	}
	return false
}

func marked(s string, marks []string) bool {
	for _, m := range marks {
		if hasFold(s, m) {
			return true
		}
	}
	return false
}

// follows says whether the places of a phrase are filled from i on. A word that
// may be missing is taken where it is there.
func follows(s string, i int, places [][]string) bool {
	for _, place := range places {
		optional := place[len(place)-1] == "?"
		w, end := nextWord(s, i)
		if !among(w, place) {
			if optional {
				continue
			}
			return false
		}
		i = end
	}
	return true
}

// nextWord is the word behind i, if it is not far.
func nextWord(s string, i int) (string, int) {
	w, end := word(s[:min(len(s), i+32)], i)
	return w, end
}

func among(w string, words []string) bool {
	if w == "" || w == "?" {
		return false
	}
	for _, one := range words {
		if len(one) == len(w) && hasFold(w, one) {
			return true
		}
	}
	return false
}

// calling says whether a text holds what is made to be taken for a call of a
// tool: a message of the protocol, or the marks that models write calls with.
func calling(s string) bool {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '<':
			for _, m := range []string{"<tool_call>", "<tool_use>", "<function_call", "<invoke name=", "<|tool_call|>", "<|python_tag|>"} {
				if hasFold(s[i:], m) {
					return true
				}
			}
		case 't':
			if strings.HasPrefix(s[i:], "tools/call") && named(s[:i]) {
				return true
			}
		}
	}
	return false
}

// named says whether a text ends in "method": ", with quotes that may be escaped
// and blanks: few.
func named(before string) bool {
	before = before[max(0, len(before)-48):]
	var b []byte
	for i := 0; i < len(before); i++ {
		switch before[i] {
		case ' ', '\t', '\n', '\r', '\\', '"', '\'':
		default:
			b = append(b, before[i]|0x20)
		}
	}
	return strings.HasSuffix(string(b), "method:")
}
