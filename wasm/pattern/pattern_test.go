package pattern

import (
	"errors"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// found are the matches of a pattern, by the searcher.
func found(s *Searcher, p *Pattern, text string) (all [][]int) {
	s.All(p, []byte(text), func(from, to int) { all = append(all, []int{from, to}) })
	return all
}

func free(int64) {}

func compiled(t testing.TB, text string) *Pattern {
	t.Helper()
	p, err := New(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return p
}

// agrees compares the matches of a pattern with those of package regexp.
func agrees(t testing.TB, s *Searcher, p *Pattern, text string) {
	t.Helper()
	re := regexp.MustCompile(p.Text())
	if got, want := found(s, p, text), re.FindAllStringIndex(text, -1); !slices.EqualFunc(got, want, slices.Equal) {
		t.Fatalf("%q in %q: %v, and package regexp finds %v", p.Text(), text, got, want)
	}
	if got, want := s.Match(p, []byte(text)), re.MatchString(text); got != want {
		t.Fatalf("%q matches %q: %v", p.Text(), text, got)
	}
}

// TestZ37MeansWhatRegexpMeans holds patterns to what package regexp finds.
func TestZ37MeansWhatRegexpMeans(t *testing.T) {
	texts := []string{"", "a", "ab", "abc abd", "aaaa", "\n", "a\nb\n", "\na\n\nb", "x1 22-333", "Ann (ann.lee+x@mail.example.com), bob@example.org.", "é→ü ß ſ K k", "\xff\xc3\xc3\xa9\xe2\x82\x82\x82a", strings.Repeat("ab", 3000) + "c"}
	for _, text := range []string{
		"", "a", "a*", "a*?", "a+b|a", "(a|ab)(c|bcd)?", "(?:a.*)?b|a", "^", "$", "^a", "a$", "(?m)^", "(?m)$", "(?m)^a$", `\A\z`, `\b`, `\B`, `\b\w+\b`, `(?i)k|s`, "(?i)ann", ".", "(?s).", "[^a]", `[^\n]*`,
		`\pL+`, `\d(?:[ -]?\d){2,5}`, "abcd|c", "(a*)*", "(|a)*", "(|a)+", "(a|b)*?c", "x*", `[\w.+-]+@[\w-]+(?:\.[\w-]+)+`, "[é→]", "\\x{fffd}", "(?U)a+", "a{2,3}?", "(?:a{2}){2}", "[[:^alpha:]]", "", "(a)(b)|", `\Qa.b\E`, "ab*$", `\w\b\W`, "(?m)$\n^",
	} {
		s := NewSearcher(free)
		p := compiled(t, text)
		for _, in := range texts {
			agrees(t, s, p, in)
		}
	}
}

// TestZ37RandomPatterns does so with patterns and texts that nobody chose.
func TestZ37RandomPatterns(t *testing.T) {
	rounds := 20_000
	if testing.Short() {
		rounds = 2_000
	}
	r := rand.New(rand.NewPCG(1, 2))
	parts := []string{"a", "b", "c", "é", ".", `\w`, `\b`, `\B`, "^", "$", "(?m:^)", "(?m:$)", "[ab]", "[^a]", `\s`, "(?i:A)", "\n", ""}
	var make func(depth int) string
	make = func(depth int) string {
		if depth == 0 {
			return parts[r.IntN(len(parts))]
		}
		switch r.IntN(6) {
		case 0:
			return make(depth-1) + make(depth-1)
		case 1:
			return "(?:" + make(depth-1) + "|" + make(depth-1) + ")"
		case 2:
			return "(" + make(depth-1) + ")" + []string{"*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,}?"}[r.IntN(9)]
		}
		return make(depth-1) + parts[r.IntN(len(parts))]
	}
	letters := []string{"a", "b", "c", "é", " ", "\n", "A", "\xff", "\xc3", "_"}
	for range rounds {
		p := compiled(t, make(1+r.IntN(4)))
		s := NewSearcher(free)
		for range 4 {
			var text strings.Builder
			for range r.IntN(12) {
				text.WriteString(letters[r.IntN(len(letters))])
			}
			agrees(t, s, p, text.String())
		}
	}
}

// FuzzAll lets a fuzzer choose the pattern and the text.
func FuzzAll(f *testing.F) {
	f.Add(`\b\d(?:[ -]?\d){12,18}\b`, "paid with 4111 1111 1111 1111.")
	f.Add("(?i)(a|ab)(c|bcd)?$", "ABCD\xff")
	f.Add("(?:a.*)?b|a", "aaaa\nab")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		p, err := New(pattern)
		if _, wrong := regexp.Compile(pattern); (wrong != nil) != (err != nil) && !errors.Is(err, ErrLarge) {
			t.Fatalf("%q: %v, and package regexp says %v", pattern, err, wrong)
		}
		if err != nil || len(text) > 1<<10 {
			return
		}
		agrees(t, NewSearcher(free), p, text)
	})
}

// TestZ37PatternBounds refuses what is too large before it is large.
func TestZ37PatternBounds(t *testing.T) {
	for _, text := range []string{strings.Repeat("a", MaxText+1), strings.Repeat("a{1000}", 20), strings.Repeat(`(?:\w{30}){30}`, 40)} {
		start := time.Now()
		if _, err := New(text); !errors.Is(err, ErrLarge) {
			t.Errorf("%.40q: %v", text, err)
		}
		if d := time.Since(start); d > 200*time.Millisecond {
			t.Errorf("%.40q: refused after %v", text, d)
		}
	}
	for _, text := range []string{"(a{1000}){1000}", "((a{100}){100}){100}"} {
		if _, err := New(text); err == nil {
			t.Errorf("%q: a million repetitions were taken", text)
		}
	}
	if _, err := New("("); err == nil || errors.Is(err, ErrLarge) {
		t.Errorf("half a group: %v", err)
	}
	if p := compiled(t, "a{1000}b{1000}"); p.Size() < 4000 || p.Text() != "a{1000}b{1000}" {
		t.Errorf("it has %d instructions", p.Size())
	}
}

// hard are patterns that are dear, each with a text that makes them so.
func hard(n int) map[string]string {
	mixed := make([]byte, n)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range mixed {
		mixed[i] = "ab 1-"[r.IntN(5)]
	}
	digits := make([]byte, n)
	for i := range digits {
		digits[i] = "0123456789 -"[r.IntN(12)]
	}
	return map[string]string{
		"(?:a|b| |1|-)*a(?:a|b| |1|-){200}$":           string(mixed),
		"(?:.*a){12}.{800}z":                           string(mixed),
		strings.Repeat("(?:a?b?)", 120) + "z":          string(mixed),
		`\b\d(?:[ -]?\d){12,18}\b`:                     string(digits),
		`(?:\b\w{1,60}[ -]?){1,15}z`:                   string(mixed),
		strings.Repeat("(?:.?){980}", 5) + "z":         string(mixed),
		"a[^z]*z|a":                                    strings.Repeat("a", n),
		"(?:.{0,900}q|x*)":                             string(mixed),
		strings.Repeat(`\pL?\p{Greek}?`, 70) + `\PL\d`: strings.Repeat("aλ", n/3),
		"(?i)" + strings.Repeat("[^k]?", 190) + "1-1-": string(mixed),
	}
}

// TestZ37PaidAsItPasses: whatever the pattern and the text, a search ends soon
// after its payer has no more, and what it used until then is worth the payment.
func TestZ37PaidAsItPasses(t *testing.T) {
	const fuel = 50_000_000
	type broke struct{}
	for pattern, text := range hard(1 << 20) {
		p := compiled(t, pattern)
		left, most := int64(fuel), int64(0)
		s := NewSearcher(func(n int64) {
			most = max(most, n)
			if left -= n; left < 0 {
				panic(broke{})
			}
		})
		start := time.Now()
		func() {
			defer func() {
				if r := recover(); r != nil && r != any(broke{}) {
					panic(r)
				}
			}()
			found(s, p, text)
		}()
		d := time.Since(start)
		paid := fuel - max(left, 0)
		t.Logf("%-40.40q %5.2f ns a unit, %v, at most %d at once, %d KiB of states", pattern, float64(d)/float64(paid), d.Round(time.Millisecond), most, s.made>>10)
		// Units are worth a nanosecond. Busy machines and the race detector make of
		// one what they like, but not hundreds.
		if d > fuel*100*time.Nanosecond {
			t.Errorf("%.60q: %v for %d units", pattern, d, paid)
		}
		if most > 500_000 {
			t.Errorf("%.60q: %d units were paid at once", pattern, most)
		}
		if s.made > 3*maxStates {
			t.Errorf("%.60q: %d bytes of states", pattern, s.made)
		}
	}
}

// TestZ37CostsTheSame: what a call costs does not depend on what was searched
// before.
func TestZ37CostsTheSame(t *testing.T) {
	var paid int64
	s := NewSearcher(func(n int64) { paid += n })
	patterns := []*Pattern{compiled(t, `[\w.+-]+@[\w-]+(?:\.[\w-]+)+`), compiled(t, `\b\d(?:[ -]?\d){12,18}\b`), compiled(t, "(?:.*a){5}.{300}")}
	texts := []string{"ann@example.org paid with 4111 1111 1111 1111", strings.Repeat("ab 1-2 3 ", 2000), "é" + strings.Repeat("a1 2", 500)}
	call := func(s *Searcher, text string) int64 {
		s.Begin()
		before := paid
		for _, p := range patterns {
			s.Match(p, []byte(text))
			found(s, p, text)
		}
		return paid - before
	}
	var alone []int64
	for _, text := range texts {
		alone = append(alone, call(NewSearcher(s.pay), text))
	}
	r := rand.New(rand.NewPCG(5, 6))
	for range 60 {
		i := r.IntN(len(texts))
		if got := call(s, texts[i]); got != alone[i] {
			t.Fatalf("text %d: %d, and alone %d", i, got, alone[i])
		}
	}
	// The number of calls runs over.
	s.epoch = ^uint32(0) - 1
	for i, text := range append(texts, texts...) {
		if got := call(s, text); got != alone[i%len(texts)] {
			t.Fatalf("text %d, as calls are counted anew: %d, and alone %d", i, got, alone[i%len(texts)])
		}
	}
}

// ordinary is a text of so many bytes as tools answer with.
func ordinary(n int) string {
	const some = "Ticket 4711 from Ann Lee (ann.lee@example.org), opened 2026-03-04: the export of customer 20831 fails since Monday; see https://example.org/t/4711?x=1. Größe: 12 KB. "
	text := strings.Repeat(some, n/len(some)+1)[:n]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text
}

func BenchmarkOrdinary(b *testing.B) {
	for name, pattern := range map[string]string{"email": `[\w.%+-]+@[\w-]+(?:\.[\w-]+)+`, "card": `\b\d(?:[ -]?\d){12,18}\b`, "iban": `\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}\b`} {
		text := ordinary(100 << 10)
		b.Run(name, func(b *testing.B) {
			var paid int64
			s, p := NewSearcher(func(n int64) { paid += n }), compiled(b, pattern)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				s.Begin()
				s.All(p, []byte(text), func(int, int) {})
			}
			b.ReportMetric(float64(paid)/float64(b.N)/float64(len(text)), "fuel/B")
			b.ReportMetric(float64(b.Elapsed())/float64(paid), "ns/fuel")
		})
		b.Run(name+"/regexp", func(b *testing.B) {
			re := regexp.MustCompile(pattern)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				re.FindAllStringIndex(text, -1)
			}
		})
	}
}
