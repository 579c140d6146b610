package optimizer

import (
	_ "embed"
	"hash/maphash"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kljensen/snowball/english"
	"golang.org/x/text/unicode/norm"
)

// maxWord bounds a word, in bytes; the end of a longer one is left out.
const maxWord = 64

//go:embed stopwords.txt
var stopText string

// stopWords are the words that a question is asked without, unless it has no others: articles,
// pronouns, prepositions and auxiliary verbs of English, and what an apostrophe leaves of them.
var stopWords = func() map[string]bool {
	all := map[string]bool{}
	for _, w := range strings.Fields(stopText) {
		all[w] = true
	}
	return all
}()

// term stands for the stem of a word. That two stems have one term nobody can bring about,
// since the seed is drawn when the process begins.
type term uint64

var seed = maphash.MakeSeed()

// words calls each with the words of a text, in small letters: runs of letters and digits in
// the form NFKC. Of writing without spaces, each two characters that follow one another are a
// word. named also splits where the case changes, as the names of programs do.
func words(text string, named bool, each func(word string)) {
	if !ascii(text) {
		text = norm.NFKC.String(text)
	}
	for {
		begin := strings.IndexFunc(text, inWord)
		if begin < 0 {
			return
		}
		text = text[begin:]
		first, _ := utf8.DecodeRuneInString(text)
		unspaced := ideograph(first)
		end := strings.IndexFunc(text, func(r rune) bool { return !inWord(r) && !unicode.IsMark(r) || ideograph(r) != unspaced })
		if end < 0 {
			end = len(text)
		}
		run := text[:end]
		text = text[end:]
		switch {
		case unspaced:
			pairs(run, each)
		case named:
			humps(run, each)
		default:
			small(run, each)
		}
	}
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func inWord(r rune) bool {
	if r < utf8.RuneSelf {
		return 'a' <= r|0x20 && r|0x20 <= 'z' || '0' <= r && r <= '9'
	}
	return unicode.IsLetter(r) || unicode.IsNumber(r)
}

// ideograph reports whether a character is of a writing without spaces between words.
func ideograph(r rune) bool {
	return r > 0x2e80 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul)
}

// pairs calls each with each two characters of a run that follow one another, and with the
// run itself if it is of one.
func pairs(run string, each func(string)) {
	at := make([]int, 0, len(run)/3+1)
	for i := range run {
		at = append(at, i)
	}
	if len(at) == 1 {
		each(run)
	}
	at = append(at, len(run))
	for i := 2; i < len(at); i++ {
		each(run[at[i-2]:at[i]])
	}
}

// humps splits a name before a capital letter that follows a small one or a digit, and before
// the last of several capital letters that a small one follows: parse HTTP Header.
func humps(run string, each func(string)) {
	begin := 0
	var two, one rune // the characters before
	for i, r := range run {
		up := unicode.IsUpper(r)
		switch {
		case i > begin && up && !unicode.IsUpper(one):
			small(run[begin:i], each)
			begin = i
		case i > begin && !up && unicode.IsLower(r) && unicode.IsUpper(one) && unicode.IsUpper(two):
			if last := i - utf8.RuneLen(one); last > begin {
				small(run[begin:last], each)
				begin = last
			}
		}
		two, one = one, r
	}
	small(run[begin:], each)
}

func small(word string, each func(string)) {
	if len(word) > maxWord {
		word = strings.ToValidUTF8(word[:maxWord], "")
	}
	each(strings.ToLower(word))
}

// stems finds the terms of words, and remembers some of them. It is for one goroutine.
type stems map[string]term

// maxStems is how many words are remembered.
const maxStems = 1 << 16

func (s stems) of(word string) term {
	t, ok := s[word]
	if !ok {
		t = termOf(word)
		if len(s) < maxStems {
			s[strings.Clone(word)] = t
		}
	}
	return t
}

func termOf(word string) term {
	if ascii(word) {
		word = english.Stem(word, true)
	}
	return term(maphash.String(seed, word))
}

// question is what is searched for: each stem once, with the word that it was first met as.
type question struct {
	terms []term
	words []string
}

func ask(text string) question {
	var q, stopped question
	met := map[term]bool{}
	take := func(word string) {
		t := termOf(word)
		if met[t] {
			return
		}
		met[t] = true
		to := &q
		if stopWords[word] {
			to = &stopped
		}
		to.terms, to.words = append(to.terms, t), append(to.words, strings.Clone(word))
	}
	words(text, false, take)
	for _, name := range strings.FieldsFunc(text, func(r rune) bool { return !inWord(r) }) {
		if first, _ := utf8.DecodeRuneInString(name); unicode.IsLower(first) && strings.IndexFunc(name, unicode.IsUpper) > 0 {
			words(name, true, take) // a readFile is a name, a GitHub is a word
		}
	}
	if len(q.terms) == 0 {
		return stopped
	}
	return q
}
