package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// server is one whose tools were captured.
type server struct {
	Name    string            // of the workload
	Package string            // npm's
	Version string            // of the package
	Tools   []json.RawMessage // as its tools/list gives them
}

// question is one that tools are looked for with.
type question struct {
	kind, text string
	right      []string // names, as they are advertised; any of them is right
}

// kinds are those of questions: the words of the tool, other words for them, and what somebody
// wants who knows no tool.
var kinds = []string{"easy", "words", "intent"}

// set is servers, and questions about their tools.
type set struct {
	name      string
	servers   []server
	questions []question
}

// load reads a set: NAME.json and NAME.tsv of a folder.
func load(dir, name string) (*set, error) {
	s := &set{name: name}
	text, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if err == nil {
		err = json.Unmarshal(text, &s.servers)
	}
	if err != nil {
		return nil, fmt.Errorf("%s.json: %w", name, err)
	}
	text, err = os.ReadFile(filepath.Join(dir, name+".tsv"))
	if err != nil {
		return nil, err
	}
	names := s.names()
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		q, err := read(line, names)
		if err != nil {
			return nil, fmt.Errorf("%s.tsv:%d: %w", name, i+1, err)
		}
		s.questions = append(s.questions, q)
	}
	if len(s.questions) == 0 {
		return nil, fmt.Errorf("%s.tsv: no question", name)
	}
	return s, nil
}

func read(line string, names map[string]bool) (q question, err error) {
	fields := strings.Split(line, "\t")
	if len(fields) != 3 {
		return q, errors.New("want kind, question and tools, with tabs between")
	}
	q = question{fields[0], fields[1], strings.Split(fields[2], ",")}
	if !slices.Contains(kinds, q.kind) {
		return q, fmt.Errorf("no kind %q", q.kind)
	}
	for _, name := range q.right {
		if !names[name] {
			return q, fmt.Errorf("no tool %q", name)
		}
	}
	return q, nil
}

// names are those of all tools, as an edge advertises them.
func (s *set) names() map[string]bool {
	all := map[string]bool{}
	for _, one := range s.servers {
		for _, tool := range one.Tools {
			var t struct{ Name string }
			_ = json.Unmarshal(tool, &t) // a tool without a name is no right answer
			all[one.Name+"_"+t.Name] = true
		}
	}
	return all
}

// half is the questions of one half: every second one, from the first on for 0.
func (s *set) half(n int) (out []question) {
	for i, q := range s.questions {
		if i%2 == n {
			out = append(out, q)
		}
	}
	return out
}
