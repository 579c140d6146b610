package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/peers"
)

var shop *peers.Shop // that builds the edge once

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "weir-ranking-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		k, err := peers.Find()
		if err != nil {
			panic(err)
		}
		shop = peers.NewShop(k, dir)
		return m.Run()
	}())
}

// machine is what the tests run with: the kit, and a program of the edge.
func machine(t *testing.T) (peers.Kit, string) {
	t.Helper()
	edgetest.Need(t, shop.Lacks() == "", shop.Lacks())
	if weir := os.Getenv("WEIR_PEERS_EDGE"); weir != "" {
		return shop.Kit, weir
	}
	weir, err := shop.Program(t.Context(), peers.WeirPackage)
	if err != nil {
		t.Fatal(err)
	}
	return shop.Kit, weir
}

// TestRanking holds what an edge finds, of two sets and with a real sentence model, to what it
// has found before: keywords and both together are not worse, and both find 3 of 100 questions
// more than the better one of them alone.
func TestRanking(t *testing.T) {
	k, weir := machine(t)
	url, p, err := model(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	for _, c := range []struct {
		name                   string
		words8, wordsMRR, easy float64
		both8, bothMRR         float64
	}{
		{"first", 0.62, 0.52, 0.98, 0.73, 0.58},
		{"second", 0.56, 0.49, 0.98, 0.68, 0.54},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := load("testdata", c.name)
			if err != nil {
				t.Fatal(err)
			}
			a, err := rank(t.Context(), weir, t.TempDir(), url, s)
			if err != nil {
				t.Fatal(err)
			}
			words, vectors, both := a.score(byWords, s.questions), a.score(byVectors, s.questions)["all"], a.score(byBoth, s.questions)["all"]
			t.Logf("recall@1, @5, @8, MRR: keywords %s, vectors %s, both %s", words["all"], vectors, both)
			for _, one := range []struct {
				what   string
				is, at float64
			}{
				{"recall@8 of keywords", words["all"].recall8(), c.words8},
				{"MRR of keywords", words["all"].mrr(), c.wordsMRR},
				{"recall@1 of keywords, easy questions", words["easy"].recall1(), c.easy},
				{"recall@8 of both", both.recall8(), c.both8},
				{"MRR of both", both.mrr(), c.bothMRR},
				{"recall@8 of both, beside the best single one and 0.03", both.recall8(), max(words["all"].recall8(), vectors.recall8()) + 0.03},
			} {
				if one.is < one.at {
					t.Errorf("%s is %.3f, want %.3f", one.what, one.is, one.at)
				}
			}
		})
	}
}

// TestSavings: what a client reads of a hundred tools, in the tokens of a real tokenizer, is
// about what bytes / 4 say, and a tenth of the list with two questions.
func TestSavings(t *testing.T) {
	k, weir := machine(t)
	var sets []*set
	for _, name := range []string{"first", "second"} {
		s, err := load("testdata", name)
		if err != nil {
			t.Fatal(err)
		}
		s.questions = s.questions[:10]
		sets = append(sets, s)
	}
	s, err := save(t.Context(), k, weir, t.TempDir(), sets, 100)
	if err != nil {
		t.Fatal(err)
	}
	for what, is := range map[string]size{"list": s.list, "two tools": s.two, "answer": s.answer} {
		if ratio := float64(is.tokens) / float64(is.quarters); is.tokens == 0 || ratio < 0.8 || ratio > 1.25 {
			t.Errorf("%s: %d tokens, %d by bytes", what, is.tokens, is.quarters)
		}
	}
	if saved := percent(s.list.tokens, s.two.tokens+s.answer.tokens); saved < 80 {
		t.Errorf("a question saves %.1f %%: %+v", saved, s)
	}
}

// TestCaptured holds the tools of the first set to the servers themselves, in the versions of
// the lock file.
func TestCaptured(t *testing.T) {
	k := shop.Kit
	edgetest.Need(t, k.Lacks() == "", k.Lacks())
	file := filepath.Join("testdata", "first.json")
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), k.Node, filepath.Join(k.Dir(), "clients", "capture.mjs"), file)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir()) // where servers keep what they like
	var said bytes.Buffer
	cmd.Stderr = &said
	got, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	if !bytes.Equal(got, want) {
		a, b := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Fatalf("the servers say otherwise than line %d:\n%s\n%s", i+1, a[i], b[i])
			}
		}
		t.Fatalf("the servers say %d lines, and there are %d", len(a), len(b))
	}
}

// TestSets: every question of both sets has an answer, no two are the same, and the kinds are
// about as many.
func TestSets(t *testing.T) {
	for name, least := range map[string][2]int{"first": {110, 150}, "second": {110, 100}} {
		s, err := load("testdata", name)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.names()) < least[0] || len(s.questions) < least[1] {
			t.Errorf("%s: %d tools, %d questions", name, len(s.names()), len(s.questions))
		}
		texts, of := map[string]bool{}, map[string]int{}
		for _, q := range s.questions {
			if texts[q.text] {
				t.Errorf("%s: %q is asked twice", name, q.text)
			}
			texts[q.text] = true
			of[q.kind]++
		}
		for _, kind := range kinds {
			if of[kind] < len(s.questions)*3/10 {
				t.Errorf("%s: %d questions of kind %q", name, of[kind], kind)
			}
		}
		if n := len(s.half(0)) + len(s.half(1)); n != len(s.questions) {
			t.Errorf("%s: the halves have %d questions", name, n)
		}
	}
	for _, line := range []string{"easy\tno tools", "hard\tq\tfiles_read_file", "easy\tq\tfiles_nothing"} {
		if q, err := read(line, map[string]bool{"files_read_file": true}); err == nil {
			t.Errorf("%q is read as %+v", line, q)
		}
	}
}

func TestFigures(t *testing.T) {
	var f figures
	for _, names := range [][]string{{"a", "b"}, {"x", "a"}, {"x", "x", "x", "x", "x", "x", "x", "b"}, {"x", "x", "x", "x", "x", "x", "x", "x", "a"}, nil} {
		f.add([]string{"a", "b"}, names)
	}
	if f.recall1() != 0.2 || f.recall5() != 0.4 || f.recall8() != 0.6 || f.mrr() != (1+1/2.0+1/8.0+1/9.0)/5 {
		t.Errorf("%s", f)
	}
	if got := halves([]string{"a", "b", "c", "d", "e"}, []string{"b", "f", "g", "h", "i", "j"}); !slices.Equal(got, []string{"a", "b", "c", "d", "f", "g", "h", "i"}) {
		t.Errorf("half and half: %v", got)
	}
}
