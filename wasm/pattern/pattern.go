// Package pattern finds the matches of RE2 patterns in the texts of guests, in
// time that is linear in the text, that is paid for as it passes, and that ends
// when the payer says so.
//
// Patterns are parsed and compiled by regexp/syntax, and mean what they mean to
// package regexp, whose matches cannot be stopped and have a cost that nobody
// knows beforehand (RATIONALE.md). Texts are read by an automaton whose states
// are made as texts need them.
package pattern

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// Bounds of one pattern.
const (
	MaxText         = 1 << 10 // bytes
	MaxInstructions = 10_000  // of the program that it becomes
)

// ErrLarge is a pattern above a bound.
var ErrLarge = errors.New("the pattern is too large")

// Pattern is a pattern ready for searches. It is immutable.
type Pattern struct {
	text              string
	forward, backward *program // where a match ends, and where it begins
}

// New compiles an RE2 pattern, with the syntax of package regexp. The error is
// ErrLarge, or says what is wrong with it.
func New(text string) (*Pattern, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("%w: %d bytes, and the limit is %d", ErrLarge, len(text), MaxText)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	if n := size(parsed); n > MaxInstructions {
		return nil, fmt.Errorf("%w: some %d instructions, and the limit is %d", ErrLarge, n, MaxInstructions)
	}
	p := &Pattern{text: text}
	if p.forward, err = compile(parsed, false); err != nil {
		return nil, err
	}
	p.backward, err = compile(parsed, true)
	return p, err
}

// Text is what the pattern was made of.
func (p *Pattern) Text() string { return p.text }

// Size is how many instructions the pattern became.
func (p *Pattern) Size() int { return len(p.forward.insts) + len(p.backward.insts) }

// size estimates how many instructions an expression becomes, before anything is
// made of it. It ends early above the bound.
func size(re *syntax.Regexp) int {
	n := 0
	for _, sub := range re.Sub {
		n = min(n+size(sub), MaxInstructions+1)
	}
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpRepeat:
		n = n*max(re.Min+1, re.Max) + max(re.Max-re.Min, 1)
	case syntax.OpAlternate:
		n += len(re.Sub)
	default:
		n++
	}
	return min(n, MaxInstructions+1)
}

// plain is an expression without groups that are told apart, and with its parts
// in the reverse order where it is read backwards.
func plain(re *syntax.Regexp, backward bool) *syntax.Regexp {
	for re.Op == syntax.OpCapture {
		re = re.Sub[0]
	}
	out := *re
	out.Sub = nil
	for _, sub := range re.Sub {
		out.Sub = append(out.Sub, plain(sub, backward))
	}
	if backward && re.Op == syntax.OpConcat {
		slices.Reverse(out.Sub)
	}
	if backward && re.Op == syntax.OpLiteral {
		out.Rune = slices.Clone(re.Rune)
		slices.Reverse(out.Rune)
	}
	return &out
}

// program is what searches run. Its alphabet are classes of runes that no
// instruction tells apart; the class after the last is the end of the text.
type program struct {
	insts    []inst
	start    uint32
	backward bool

	ascii  [utf8.RuneSelf]uint16
	bounds []rune // where the classes of further runes begin
	class  []uint16
	kind   []uint8  // of each class
	sets   [][]bool // which classes a set of runes has
}

// inst is an instruction.
type inst struct {
	op       syntax.InstOp
	out, arg uint32 // where it goes on; arg is the second of an alternative, or what an assertion wants
	set      int    // runes that it takes
}

// Kinds of what stands before or after a place, for assertions.
const (
	other = iota
	word
	newline
	outside // the beginning or the end of the text
	kinds
)

func compile(parsed *syntax.Regexp, backward bool) (*program, error) {
	prog, err := syntax.Compile(plain(parsed, backward).Simplify())
	if err != nil {
		return nil, err
	}
	if n := len(prog.Inst); n > MaxInstructions {
		return nil, fmt.Errorf("%w: %d instructions, and the limit is %d", ErrLarge, n, MaxInstructions)
	}
	p := &program{start: uint32(prog.Start), backward: backward}
	known := make(map[string]int)
	var sets [][]rune
	var looks syntax.EmptyOp
	for i := range prog.Inst {
		from := &prog.Inst[i]
		to := inst{op: from.Op, out: from.Out, arg: from.Arg}
		switch from.Op {
		case syntax.InstEmptyWidth:
			looks |= syntax.EmptyOp(from.Arg)
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			ranges := rangesOf(from)
			set, ok := known[string(ranges)]
			if !ok {
				set = len(sets)
				known[string(ranges)] = set
				sets = append(sets, ranges)
			}
			to.op, to.set = syntax.InstRune, set
		}
		p.insts = append(p.insts, to)
	}
	p.classify(sets, looks)
	return p, nil
}

// rangesOf are the runes that an instruction takes: the first and the last of
// each range.
func rangesOf(i *syntax.Inst) []rune {
	switch {
	case i.Op == syntax.InstRuneAny:
		return []rune{0, unicode.MaxRune}
	case i.Op == syntax.InstRuneAnyNotNL:
		return []rune{0, '\n' - 1, '\n' + 1, unicode.MaxRune}
	case len(i.Rune) != 1:
		return i.Rune
	}
	r := i.Rune[0]
	all := []rune{r, r}
	if syntax.Flags(i.Arg)&syntax.FoldCase != 0 {
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			all = append(all, f, f)
		}
	}
	return all
}

// classify makes the classes: two runes are of one class when every set has both
// or neither, and the assertions that the program makes do not tell them apart.
func (p *program) classify(sets [][]rune, looks syntax.EmptyOp) {
	all := sets
	kindOf := make(map[int]uint8) // of what is added to the sets
	if looks&(syntax.EmptyWordBoundary|syntax.EmptyNoWordBoundary) != 0 {
		kindOf[len(all)] = word
		all = append(all[:len(all):len(all)], []rune{'0', '9', 'A', 'Z', '_', '_', 'a', 'z'})
	}
	if looks&(syntax.EmptyBeginLine|syntax.EmptyEndLine) != 0 {
		kindOf[len(all)] = newline
		all = append(all[:len(all):len(all)], []rune{'\n', '\n'})
	}
	// 1. Where the membership in some set changes.
	p.bounds = []rune{0}
	for _, ranges := range all {
		for i := 0; i < len(ranges); i += 2 {
			p.bounds = append(p.bounds, ranges[i], ranges[i+1]+1)
		}
	}
	slices.Sort(p.bounds)
	p.bounds = slices.Compact(p.bounds)
	// 2. Each set divides the classes that there are.
	class := make([]int, len(p.bounds))
	classes := 1
	for _, ranges := range all {
		within := make(map[int]int)
		for i := 0; i < len(ranges); i += 2 {
			for at, _ := slices.BinarySearch(p.bounds, ranges[i]); at < len(p.bounds) && p.bounds[at] <= ranges[i+1]; at++ {
				to, ok := within[class[at]]
				if !ok {
					to = classes
					within[class[at]] = to
					classes++
				}
				class[at] = to
			}
		}
	}
	n := p.number(class)
	// 3. What is of which class, and which class of which set.
	for r := range p.ascii {
		p.ascii[r] = p.find(rune(r))
	}
	p.kind = make([]uint8, n+1)
	if looks&(syntax.EmptyBeginText|syntax.EmptyEndText|syntax.EmptyBeginLine|syntax.EmptyEndLine) != 0 {
		p.kind[n] = outside
	}
	for i, ranges := range all {
		has := make([]bool, n)
		for j := 0; j < len(ranges); j += 2 {
			for at, _ := slices.BinarySearch(p.bounds, ranges[j]); at < len(p.bounds) && p.bounds[at] <= ranges[j+1]; at++ {
				c := p.class[at]
				if has[c] = true; kindOf[i] != 0 {
					p.kind[c] = kindOf[i]
				}
			}
		}
		p.sets = append(p.sets, has)
	}
}

// number gives the classes that are left numbers without gaps, in the order of
// their first runes, and returns how many there are.
func (p *program) number(class []int) int {
	numbers := make(map[int]uint16)
	for _, c := range class {
		n, ok := numbers[c]
		if !ok {
			n = uint16(len(numbers))
			numbers[c] = n
		}
		p.class = append(p.class, n)
	}
	return len(numbers)
}

// find returns the class of a rune.
func (p *program) find(r rune) uint16 {
	at, exact := slices.BinarySearch(p.bounds, r)
	if !exact {
		at--
	}
	return p.class[at]
}

// end is the class of the end of the text.
func (p *program) end() int { return len(p.kind) - 1 }
