package optimizer

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func wordsOf(text string, named bool) (all []string) {
	words(text, named, func(w string) { all = append(all, w) })
	return all
}

func TestWords(t *testing.T) {
	for _, c := range []struct {
		text  string
		named bool
		want  string
	}{
		{"Read a File", false, "read a file"},
		{"files_readMultipleFiles", true, "files read multiple files"},
		{"parseHTTPHeader", true, "parse http header"},
		{"s3Bucket.get-object/v2", true, "s3 bucket get object v2"},
		{"GitHub", false, "github"},
		{"GitHub", true, "git hub"},
		{"ABC", true, "abc"},
		{"aB", true, "a b"},
		{"ﬁle Ａ１", false, "file a1"},
		{"東京都 の", false, "東京 京都 の"},
		{"東京abc", false, "東京 abc"},
		{"مرحبا بالعالم", false, "مرحبا بالعالم"},
		{"🙂 !?… \"NEAR\" *", false, "near"},
		{"", false, ""},
		{"cafe\u0301s", false, "cafés"},
	} {
		if got := strings.Join(wordsOf(c.text, c.named), " "); got != c.want {
			t.Errorf("words of %q (named %v): %q, want %q", c.text, c.named, got, c.want)
		}
	}
	if got := wordsOf(strings.Repeat("é", 1000), false); len(got) != 1 || len(got[0]) > maxWord || !utf8.ValidString(got[0]) {
		t.Errorf("a long word is cut to %q", got)
	}
}

func TestQuestions(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"Which tool reads the files?", "tool reads files"},
		{"read reads reading", "read"},
		{"to be or not to be", "to be or not"},
		{"call readTextFile on GitHub", "call readtextfile github read text file"},
		{"what's on Bob's page, don't you see it?", "bob page see"},
		{"don't", "don t"},
		{"?!", ""},
		{strings.Repeat("a ", 2048), "a"},
	} {
		if got := strings.Join(ask(c.text).words, " "); got != c.want {
			t.Errorf("ask(%q): %q, want %q", c.text, got, c.want)
		}
	}
	if a, b := ask("creating").terms, ask("created").terms; !slices.Equal(a, b) {
		t.Error("two forms of a word have two stems")
	}
}

// FuzzQuestions asks what strangers may ask: nothing breaks, and words are bounded.
func FuzzQuestions(f *testing.F) {
	for _, s := range []string{"read a file", "東京都", "HTTPServer", "\xff\xfe", "a\u0301\u0301", strings.Repeat("ﷺ", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > maxQuestion {
			t.Skip()
		}
		for _, named := range []bool{true, false} {
			words(text, named, func(w string) {
				if w == "" || len(w) > 3*maxWord {
					t.Errorf("a word of %q: %q", text, w)
				}
			})
		}
		q := ask(text)
		if len(q.terms) != len(q.words) {
			t.Error("terms without words")
		}
	})
}
