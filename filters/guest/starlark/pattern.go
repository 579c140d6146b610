package starlark

import (
	"fmt"
	"strings"

	"go.starlark.net/starlark"

	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm/pattern"
)

// maxPatterns is how many patterns a text may have.
const maxPatterns = 64

// maxText is the size above which a text is refused, in bytes.
const maxText = 8 << 20

// fuelPerUnit is how much fuel of a search (wasm/ABI.md, patterns) counts as a unit of work.
const fuelPerUnit = 16

// patternValue is an RE2 pattern, as a value with methods.
type patternValue struct{ p *pattern.Pattern }

func (p *patternValue) String() string        { return fmt.Sprintf("pattern(%q)", p.p.Text()) }
func (p *patternValue) Type() string          { return "pattern" }
func (p *patternValue) Freeze()               {}
func (p *patternValue) Truth() starlark.Bool  { return starlark.True }
func (p *patternValue) Hash() (uint32, error) { return starlark.String(p.p.Text()).Hash() }

// pattern is the builtin: it compiles a pattern.
func (l *loader) pattern(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var text string
	if err := starlark.UnpackArgs("pattern", args, named, "text", &text); err != nil {
		return nil, err
	}
	if l.patterns++; l.patterns > maxPatterns {
		return nil, fmt.Errorf("pattern: more than %d patterns", maxPatterns)
	}
	p, err := pattern.New(text)
	if err != nil {
		return nil, scripting.Raise("", scripting.Fault{Message: "pattern: " + err.Error(), Code: abi.ErrArgument})
	}
	return &patternValue{p}, nil
}

// AttrNames returns the names of its methods.
func (p *patternValue) AttrNames() []string { return []string{"find", "match", "replace"} }

// Attr returns a method.
func (p *patternValue) Attr(name string) (starlark.Value, error) {
	switch name {
	case "match":
		return starlark.NewBuiltin(name, matches).BindReceiver(p), nil
	case "find":
		return starlark.NewBuiltin(name, finds).BindReceiver(p), nil
	case "replace":
		return starlark.NewBuiltin(name, replaces).BindReceiver(p), nil
	}
	return nil, nil
}

// unpaid ends a search whose work is not paid for.
type unpaid struct{ err error }

// search runs a search of one call.
func search(thread *starlark.Thread, run func(*pattern.Searcher)) (err error) {
	t := scripting.TaskOf(thread)
	c := t.Local().(*call)
	if c.searcher == nil {
		c.searcher = pattern.NewSearcher(c.pay)
	}
	if !c.searched {
		c.searched = true
		c.searcher.Begin()
	}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case unpaid:
			err, c.searcher = p.err, nil // it was in the middle of something
		default:
			panic(p)
		}
	}()
	run(c.searcher)
	return nil
}

// pay counts fuel of a search.
func (c *call) pay(fuel int64) {
	if c.owed += fuel; c.owed < fuelPerUnit {
		return
	}
	units := c.owed / fuelPerUnit
	c.owed %= fuelPerUnit
	if err := c.task().Work(int(units)); err != nil {
		panic(unpaid{err})
	}
}

func patternOf(b *starlark.Builtin) *pattern.Pattern { return b.Receiver().(*patternValue).p }

func matches(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var text string
	if err := starlark.UnpackArgs("match", args, named, "text", &text); err != nil {
		return nil, err
	}
	found := false
	err := search(thread, func(s *pattern.Searcher) { found = s.Match(patternOf(b), []byte(text)) })
	return starlark.Bool(found), err
}

func finds(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var text string
	if err := starlark.UnpackArgs("find", args, named, "text", &text); err != nil {
		return nil, err
	}
	var all []starlark.Value
	err := search(thread, func(s *pattern.Searcher) {
		s.All(patternOf(b), []byte(text), func(from, to int) {
			if err := scripting.TaskOf(thread).Allocate(160); err != nil {
				panic(unpaid{err})
			}
			all = append(all, starlark.Tuple{starlark.MakeInt(from), starlark.MakeInt(to)})
		})
	})
	return starlark.NewList(all), err
}

func replaces(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var text, with string
	if err := starlark.UnpackArgs("replace", args, named, "text", &text, "by", &with); err != nil {
		return nil, err
	}
	t := scripting.TaskOf(thread)
	var whole strings.Builder
	last := 0
	add := func(s string) {
		err := t.Fits(len(s), 0)
		if err == nil {
			err = t.Allocate(len(s))
		}
		if err == nil && whole.Len()+len(s) > maxText {
			err = t.Fits(whole.Len()+len(s), 0)
		}
		if err != nil {
			panic(unpaid{err})
		}
		whole.WriteString(s)
	}
	err := search(thread, func(s *pattern.Searcher) {
		s.All(patternOf(b), []byte(text), func(from, to int) {
			add(text[last:from])
			add(with)
			last = to
		})
		add(text[last:])
	})
	if err != nil {
		return nil, err
	}
	return t.Text(whole.String())
}
