package mcp

import (
	"hash/maphash"
	"math/bits"
)

// wideNodes is from how many nodes on it pays to know what is in a container.
const wideNodes = 64

// contents is what is known of the members or elements of a container that is
// looked into more than once: after one more walk each of them is found at once.
type contents struct {
	looked bool     // somebody has walked through it
	drawn  bool     // the rest is known
	count  int      // of members or elements
	nodes  []uint32 // of elements; nil where they follow each other
	slots  []uint32 // of members, by the hash of their names; 0 for none
}

// seed is of the hashes of names: nobody can choose names that collide.
var seed = maphash.MakeSeed()

// contents returns what is to be known of a container, nil for a narrow one.
func (o *Outline) contents(n int) *contents {
	if o.End(n)-n < wideNodes {
		return nil
	}
	l := o.known[n]
	if l == nil {
		if o.known == nil {
			o.known = make(map[int]*contents)
		}
		l = new(contents)
		o.known[n] = l
	}
	return l
}

// draw walks through a container.
func (l *contents) draw(o *Outline, n int) {
	l.drawn = true
	first, end := o.First(n), o.End(n)
	for i := first; i < end; i = o.After(i) {
		l.count++
	}
	if o.Text[o.Nodes[n].Start] == '{' {
		l.slots = make([]uint32, 1<<bits.Len(uint(l.count+l.count/2)))
		mask := uint64(len(l.slots) - 1)
		for i := first; i < end; i = o.After(i) {
			at := maphash.Bytes(seed, Unquote(o.Name(i))) & mask
			for l.slots[at] != 0 {
				at = (at + 1) & mask
			}
			l.slots[at] = uint32(i)
		}
		return
	}
	if l.count == end-first {
		return
	}
	l.nodes = make([]uint32, 0, l.count)
	for i := first; i < end; i = o.After(i) {
		l.nodes = append(l.nodes, uint32(i))
	}
}

// member is the node of a member; -1 for none.
func (l *contents) member(o *Outline, name string) int {
	mask := uint64(len(l.slots) - 1)
	for at := maphash.String(seed, name) & mask; l.slots[at] != 0; at = (at + 1) & mask {
		if i := int(l.slots[at]); o.named(i, name) {
			return i
		}
	}
	return -1
}

// element is the node of an element; -1 for none.
func (l *contents) element(o *Outline, n, index int) int {
	switch {
	case index >= l.count:
		return -1
	case l.nodes == nil:
		return o.First(n) + index
	}
	return int(l.nodes[index])
}

// member is the node of a member of the object n; -1 for none. Who asks often is
// told at once.
func (o *Outline) member(n int, name string) int {
	if l := o.contents(n); l != nil {
		if l.looked && !l.drawn {
			l.draw(o, n)
		}
		if l.looked = true; l.drawn {
			return l.member(o, name)
		}
	}
	for i, end := o.First(n), o.End(n); i < end; i = o.After(i) {
		if o.named(i, name) {
			return i
		}
	}
	return -1
}

// element is the node of an element of the array n; -1 for none.
func (o *Outline) element(n, index int) int {
	if l := o.contents(n); l != nil {
		if l.looked && !l.drawn {
			l.draw(o, n)
		}
		if l.looked = true; l.drawn {
			return l.element(o, n, index)
		}
	}
	i, end := o.First(n), o.End(n)
	for ; i < end && index > 0; i = o.After(i) {
		index--
	}
	if i >= end {
		return -1
	}
	return i
}

// length is how many elements an array has.
func (o *Outline) length(n int) int {
	l := o.contents(n)
	if l == nil {
		count := 0
		for i := o.First(n); i < o.End(n); i = o.After(i) {
			count++
		}
		return count
	}
	if !l.drawn {
		l.draw(o, n)
	}
	return l.count
}
