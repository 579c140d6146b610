package main

import (
	"fmt"
	"slices"
)

// figures say how often a right tool was among the first of an answer.
type figures struct {
	n, first, five, eight int
	reciprocal            float64 // sum over questions of 1 / place of the first right tool
}

// most is how many tools of an answer are looked at for the mean of reciprocal places.
const most = 50

// add counts an answer.
func (f *figures) add(right, names []string) {
	f.n++
	at := slices.IndexFunc(names, func(name string) bool { return slices.Contains(right, name) })
	if at < 0 {
		return
	}
	f.reciprocal += 1 / float64(at+1)
	for _, one := range []struct {
		of    *int
		below int
	}{{&f.first, 1}, {&f.five, 5}, {&f.eight, 8}} {
		if at < one.below {
			*one.of++
		}
	}
}

func (f figures) share(of int) float64 { return float64(of) / float64(max(1, f.n)) }

func (f figures) recall1() float64 { return f.share(f.first) }
func (f figures) recall5() float64 { return f.share(f.five) }
func (f figures) recall8() float64 { return f.share(f.eight) }

// mrr is the mean of the reciprocal places.
func (f figures) mrr() float64 { return f.reciprocal / float64(max(1, f.n)) }

func (f figures) String() string {
	return fmt.Sprintf("%.2f | %.2f | %.2f | %.2f", f.recall1(), f.recall5(), f.recall8(), f.mrr())
}

// The ways to rank.
const (
	byWords   = "keywords"
	byVectors = "vectors"
	byBoth    = "both"
	byHalves  = "half and half" // the reference's list: four tools by vectors, and then by keywords
)

var ways = []string{byWords, byVectors, byBoth, byHalves}

// answers are the names of tools that were found for a question, the best first, by the way
// to rank.
type answers map[string]map[string][]string

// halves puts the list of the reference together.
func halves(vectors, words []string) []string {
	out := slices.Clone(vectors[:min(4, len(vectors))])
	for _, name := range words {
		if len(out) == 8 {
			break
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// score counts the answers to questions, by kind; "all" is all of them.
func (a answers) score(way string, questions []question) map[string]figures {
	out := map[string]figures{}
	for _, q := range questions {
		for _, kind := range []string{q.kind, "all"} {
			f := out[kind]
			f.add(q.right, a[way][q.text])
			out[kind] = f
		}
	}
	return out
}
