package wasm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm/pattern"
)

// maxCompiled is how many patterns one guest may have.
const maxCompiled = 64

// What patterns cost, besides what searches pay by themselves.
const (
	costPatternByte = 10_000 // of a pattern's text
	costPatternInst = 100    // of what it becomes
	costMatch       = 16     // that is told or replaced
)

// patterns are those that a guest compiled as it was initialized, by handle. All
// its instances have the same.
type patterns struct {
	mu   sync.Mutex
	list []*pattern.Pattern
}

// errOtherPattern ends an instance whose initialization is not that of the first.
var errOtherPattern = errors.New("another pattern than the first instance compiled in its place")

// compile returns the pattern with a handle, which the first instance makes and
// others find.
func (p *patterns) compile(handle int, text string) (*pattern.Pattern, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if handle < len(p.list) {
		if p.list[handle].Text() != text {
			return nil, errOtherPattern
		}
		return p.list[handle], nil
	}
	made, err := pattern.New(text)
	if err == nil {
		p.list = append(p.list, made)
	}
	return made, err
}

// hostPattern compiles a pattern while the guest is initialized. What is wrong
// with one is said in the log, and where the guest gives up for it.
func hostPattern(in *instance, s []uint64) {
	text := in.view(s[0], min(uint64(uint32(s[1])), pattern.MaxText+1))
	fail := func(n int64) { s[0] = uint64(uint32(int32(n))) }
	switch {
	case in.base != nil:
		fail(abi.ErrDenied)
		return
	case len(text) > pattern.MaxText || len(in.compiled) == maxCompiled:
		fail(abi.ErrLimit)
		return
	}
	in.pay(costPatternByte * int64(len(text)))
	p, err := in.guest.patterns.compile(len(in.compiled), string(text))
	switch {
	case errors.Is(err, errOtherPattern):
		in.end(err)
	case err != nil:
		why := fmt.Appendf(nil, "pattern %q: %v", text, err)
		in.keepLast(why)
		in.guest.log(slog.LevelError, why)
		if fail(abi.ErrArgument); errors.Is(err, pattern.ErrLarge) {
			fail(abi.ErrLimit)
		}
		return
	}
	in.pay(costPatternInst * int64(p.Size()))
	s[0] = uint64(len(in.compiled))
	in.compiled = append(in.compiled, p)
}

// search returns the pattern with a handle of the guest's, nil where there is
// none, and the text to search.
func (in *instance) search(handle, p, n uint64) (*pattern.Pattern, []byte) {
	text := in.view(p, n)
	if handle >= uint64(len(in.compiled)) {
		return nil, nil
	}
	if in.searcher == nil {
		in.searcher = pattern.NewSearcher(in.pay)
	}
	if !in.searched {
		in.searched = true
		in.searcher.Begin()
	}
	return in.compiled[handle], text
}

func hostMatch(in *instance, s []uint64) {
	p, text := in.search(s[0], s[1], s[2])
	switch {
	case p == nil:
		s[0] = uint64(0xffffffff &^ 3) // -4 as an i32
	case in.searcher.Match(p, text):
		s[0] = 1
	default:
		s[0] = 0
	}
}

// hostFind writes where matches begin and end, as many as there is room for, and
// returns how many there are.
func hostFind(in *instance, s []uint64) {
	p, text := in.search(s[0], s[1], s[2])
	out := in.view(s[3], s[4])
	if p == nil {
		s[0] = code(abi.ErrArgument)
		return
	}
	count := uint64(0)
	in.searcher.All(p, text, func(from, to int) {
		in.pay(costMatch)
		if count++; len(out) >= 8 {
			binary.LittleEndian.PutUint32(out, uint32(from))
			binary.LittleEndian.PutUint32(out[4:], uint32(to))
			out = out[8:]
		}
	})
	s[0] = count
}

// hostReplace puts a text in the place of each match, and returns the length of
// the whole. Nothing is written where there is too little room for it.
func hostReplace(in *instance, s []uint64) {
	p, text := in.search(s[0], s[1], s[2])
	with, out := in.view(s[3], s[4]), in.view(s[5], s[6])
	if p == nil {
		s[0] = code(abi.ErrArgument)
		return
	}
	var (
		whole []byte // no more than there is room for
		size  int64
		last  = -1
	)
	add := func(b []byte) {
		in.pay(costMatch + int64(len(b))/16)
		if size += int64(len(b)); size <= int64(len(out)) {
			whole = append(whole, b...)
		}
	}
	in.searcher.All(p, text, func(from, to int) {
		add(text[max(last, 0):from])
		add(with)
		last = to
	})
	if last < 0 {
		s[0] = code(abi.ErrNotFound)
		return
	}
	add(text[last:])
	if size <= int64(len(out)) {
		copy(out, whole)
	}
	s[0] = uint64(size)
}
