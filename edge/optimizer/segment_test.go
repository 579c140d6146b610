package optimizer

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
)

// foundBy tells which of words a tool alone in its catalog is found by.
func foundBy(definition string, words ...string) (out []string) {
	s := &shelf{tools: []entry{{&edge.Target{Backend: "b", Thing: edge.Tool, Name: "t", Original: "t"}, []byte(definition)}}}
	e := newEdition(s, NewLibrary(), nil)
	for _, word := range words {
		if names, _ := searched(e, nil, word, keywords); len(names) > 0 {
			out = append(out, word)
		}
	}
	return out
}

// TestParameters: a tool is found by what its parameters say and allow, as far as that is read.
func TestParameters(t *testing.T) {
	property := func(name, description string, values ...string) string {
		for i := range values {
			values[i] = fmt.Sprintf("%q", values[i])
		}
		return fmt.Sprintf(`%q:{"type":"string","description":%q,"enum":[%s]}`, name, description, strings.Join(values, ","))
	}
	tool := func(properties ...string) string {
		return `{"name":"t","inputSchema":{"type":"object","properties":{` + strings.Join(properties, ",") + `}}}`
	}
	many := make([]string, 20)
	for i := range many {
		many[i] = fmt.Sprintf("value%d", i)
	}
	var hundred, wordy []string
	for i := range 100 {
		hundred = append(hundred, property(fmt.Sprintf("p%d", i), fmt.Sprintf("said%d", i)))
		wordy = append(wordy, property(fmt.Sprintf("p%d", i), fmt.Sprintf("said%d ", i)+strings.Repeat("and more ", 12)))
	}
	for _, c := range []struct {
		name, definition string
		ask, want        []string
	}{
		{"words and values", tool(property("mode", "How the elevator travels", "express", "slowLane")), []string{"elevators", "express", "slowLane", "bicycle"}, []string{"elevators", "express", "slowLane"}},
		{"the end of a long one", tool(property("p", strings.Repeat("a ", maxSays/2-5)+"early latest")), []string{"early", "latest", "late"}, []string{"early"}},
		{"many values", tool(property("p", "", many...)), []string{"value15", "value16"}, []string{"value15"}},
		{"many parameters", tool(hundred...), []string{"said63", "said64"}, []string{"said63"}},
		{"all together", tool(wordy...), []string{"said10", "said40", "p40"}, []string{"said10", "p40"}},
		{"another shape", `{"name":"t","inputSchema":{"properties":{"a":true,"b":{"description":7,"enum":{"x":"enumerated"}},"c":{"enum":[1,null,"sound"]}}}}`, []string{"enumerated", "sound"}, []string{"sound"}},
	} {
		if got := foundBy(c.definition, c.ask...); !slices.Equal(got, c.want) {
			t.Errorf("%s: found by %q, want %q", c.name, got, c.want)
		}
	}
}

// TestSentence: a vector is made of a tool's own name, its title and the beginning of its
// description, in whole words.
func TestSentence(t *testing.T) {
	long := strings.Repeat("word ", maxMeaning/5) + "behind"
	for _, c := range []struct {
		backend, name, title, description, want string
	}{
		{"files", "files_read_textFile", "", "", "read text file"},
		{"my-files", "my-files_read", "Reader", "Reads a file.", "read. Reader. Reads a file."},
		{"files", "files", "", "", "files"},
		{"read", "reads_file", "", "", "reads file"},
		{"", "tour", "", "Goes round.", "tour. Goes round."},
		{"b", "b_t", "", long, "t. " + strings.TrimSpace(strings.Repeat("word ", maxMeaning/5))},
	} {
		p := parts{title: c.title, description: c.description}
		if got := p.sentence(c.backend, c.name); got != c.want {
			t.Errorf("%s of %s: %q, want %q", c.name, c.backend, got, c.want)
		}
	}
}

// TestPostings: what counts more than a posting can say counts as much as it can.
func TestPostings(t *testing.T) {
	for _, c := range []struct{ weight, want float32 }{{0.25, 0.25}, {4, 4}, {255.75, 255.75}, {256, 255.75}, {1e6, 255.75}} {
		p := post(mostTools-1, c.weight)
		if p.tool() != mostTools-1 || p.weight() != float64(c.want) {
			t.Errorf("%v in a posting: tool %d, weight %v", c.weight, p.tool(), p.weight())
		}
		if q := post(7, float32(p.weight())); q.tool() != 7 || q.weight() != p.weight() {
			t.Errorf("%v moved: tool %d, weight %v", c.weight, q.tool(), q.weight())
		}
	}
}
