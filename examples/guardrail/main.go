// Command guardrail is a guest that looks for what backends slip to a model:
// instructions and characters that nobody sees in what they offer, URLs that
// lead inwards, and in results secrets, instructions and images that carry data
// away. What it finds it flags, redacts or blocks.
package main

import (
	"errors"
	"strings"

	weir "github.com/weir-edge/weir/sdk"
)

func main() {}

// kind is what may be found.
type kind uint8

const (
	instructions kind = iota
	characters
	names
	shadowing
	urls
	calls
	secrets
	schema
	kinds
)

var kindNames = [kinds]string{"instructions", "characters", "names", "shadowing", "urls", "calls", "secrets", "schema"}

// action is what becomes of what was found.
type action uint8

const (
	off action = iota
	flag
	redact
	block
)

var actions = map[string]action{"off": off, "flag": flag, "redact": redact, "block": block}

// rules are what to do about each kind.
type rules [kinds]action

var (
	inLists   rules
	inResults rules
	toolsOf   map[string]map[string]bool // by backend, in lower case
	hosts     []string                   // that images may be fetched from
)

func init() {
	weir.OnInit(func(s *weir.Setup) error {
		inLists = rules{instructions: block, characters: redact, names: block, shadowing: flag, urls: redact}
		inResults = rules{instructions: flag, characters: redact, urls: redact, calls: flag, secrets: redact}
		toolsOf, hosts = map[string]map[string]bool{}, nil
		if err := inLists.read("lists", s.Config.Get("lists")); err != nil {
			return err
		}
		if err := inResults.read("results", s.Config.Get("results")); err != nil {
			return err
		}
		for backend, list := range s.Config.Get("tools").Object() {
			all := map[string]bool{}
			for name := range list.Array() {
				all[strings.ToLower(name.Text())] = true
			}
			toolsOf[backend.Text()] = all
		}
		for host := range s.Config.Get("imageHosts").Array() {
			hosts = append(hosts, strings.ToLower(host.Text()))
		}
		return nil
	})
	weir.OnTools(func(c *weir.Catalog) { list("tool", c) })
	weir.OnPrompts(func(c *weir.Catalog) { list("prompt", c) })
	weir.OnResources(func(c *weir.Catalog) { list("resource", c) })
	weir.OnResult(result)
}

// read takes what a part of the configuration says over what holds without it.
func (r *rules) read(part string, config weir.Value) error {
next:
	for name, what := range config.Object() {
		a, known := actions[what.Text()]
		if !known {
			return errors.New(part + ": " + name.Text() + ": it is off, flag, redact or block")
		}
		for k, is := range kindNames {
			if !name.Is(is) {
				continue
			}
			if a == redact && (kind(k) == names || kind(k) == schema) {
				return errors.New(part + ": " + is + ": there is nothing to redact: it is off, flag or block")
			}
			r[k] = a
			continue next
		}
		return errors.New(part + ": " + name.Text() + ": there is no such thing to look for")
	}
	return nil
}

// findings are what was found in one item or result.
type findings [kinds]bool

// worst is the strongest action that the findings ask for.
func (f *findings) worst(r *rules) action {
	worst := off
	for k, is := range f {
		if is {
			worst = max(worst, r[k])
		}
	}
	return worst
}

// kinds lists them.
func (f *findings) String() string {
	var all []string
	for k, is := range f {
		if is {
			all = append(all, kindNames[k])
		}
	}
	return strings.Join(all, ", ")
}

// report writes a line of the log, and counts.
func (f *findings) report(where, of, becomes string) {
	weir.Warn(of + ": " + f.String() + ": " + becomes)
	for k, is := range f {
		if is {
			_ = weir.Count(where+"_"+kindNames[k], 1) // the name is right
		}
	}
}
