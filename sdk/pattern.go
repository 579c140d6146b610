package weir

import "encoding/binary"

// Pattern is an RE2 pattern, with the syntax of package regexp. The host compiles
// it and searches with it, which costs a guest some 5 fuel a byte, where package
// regexp costs it hundreds.
type Pattern struct {
	handle int32 // and one: that of no pattern is 0
}

// NewPattern compiles a pattern of at most 1 KiB. It is for what runs before the
// first message: init, variables of a package, and OnInit; elsewhere it fails with
// ErrDenied. A guest has at most 64, and fails with ErrLimit above that and for a
// pattern that is too large; for what is no pattern with ErrArgument, and the log
// says what is wrong with it.
func NewPattern(text string) (Pattern, error) {
	n := hostPattern(text)
	if n < 0 {
		return Pattern{}, Failure(n)
	}
	return Pattern{n + 1}, nil
}

// MustPattern is NewPattern for a pattern that is known to be right. It panics
// where it is not.
func MustPattern(text string) Pattern {
	p, err := NewPattern(text)
	if err != nil {
		panic("pattern " + text + ": " + err.Error())
	}
	return p
}

// Match reports whether the text has a match.
func (p Pattern) Match(text string) bool { return p.checked(int64(hostMatch(p.handle-1, text))) == 1 }

// Find returns the offsets of all matches, in bytes: where each begins, and what
// comes after it. They do not overlap.
func (p Pattern) Find(text string) [][2]int {
	searchRoom = searchRoom[:cap(searchRoom)]
	n := int(p.checked(hostFind(p.handle-1, text, searchRoom)))
	if n > len(searchRoom)/8 {
		searchRoom = make([]byte, 8*n)
		n = int(p.checked(hostFind(p.handle-1, text, searchRoom)))
	}
	if n == 0 {
		return nil
	}
	found := make([][2]int, n)
	for i := range found {
		found[i][0] = int(binary.LittleEndian.Uint32(searchRoom[8*i:]))
		found[i][1] = int(binary.LittleEndian.Uint32(searchRoom[8*i+4:]))
	}
	return found
}

// Replace returns the text with another one in the place of every match, as it
// is: $ has no meaning in it. It reports whether there was a match.
func (p Pattern) Replace(text, with string) (replaced string, found bool) {
	if room := len(text) + 8*len(with); cap(searchRoom) < room {
		searchRoom = make([]byte, room)
	}
	searchRoom = searchRoom[:cap(searchRoom)]
	n := hostReplace(p.handle-1, text, with, searchRoom)
	if n > int64(len(searchRoom)) {
		searchRoom = make([]byte, n)
		n = hostReplace(p.handle-1, text, with, searchRoom)
	}
	if n == int64(ErrNotFound) {
		return text, false
	}
	return string(searchRoom[:p.checked(n)]), true
}

// searchRoom is where the host writes what it found. It is kept for the next
// search.
var searchRoom = make([]byte, 8*32)

// checked is a number of the host, which has no failure for a pattern that it
// compiled.
func (p Pattern) checked(n int64) int64 {
	if n < 0 {
		panic("a Pattern that NewPattern did not make")
	}
	return n
}
