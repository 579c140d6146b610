package scripting

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.starlark.net/starlark"
)

// decode makes a value of the language from its wire form, and counts it.
func decode(wire []byte, m *meter) (starlark.Value, error) {
	r := reader{rest: wire, left: MaxNodes, meter: m, text: string(wire)}
	v, err := r.value(0)
	if err == nil && len(r.rest) > 0 {
		return nil, fmt.Errorf("there are bytes after the value")
	}
	return v, err
}

func (r *reader) value(depth int) (starlark.Value, error) {
	tag, err := r.tag()
	if err != nil {
		return nil, err
	}
	switch tag {
	case tagNone:
		return starlark.None, nil
	case tagFalse:
		return starlark.False, nil
	case tagTrue:
		return starlark.True, nil
	case tagInt:
		n, err := r.uint64()
		return starlark.MakeInt64(int64(n)), err
	case tagBig:
		negative, magnitude, err := r.big()
		if err != nil {
			return nil, err
		}
		n := new(big.Int).SetBytes(magnitude)
		if negative {
			n.Neg(n)
		}
		return starlark.MakeBigInt(n), nil
	case tagFloat:
		n, err := r.uint64()
		return starlark.Float(math.Float64frombits(n)), err
	case tagText:
		text, err := r.part()
		if err == nil {
			err = r.takes(sizeText + len(text))
		}
		return starlark.String(text), err
	case tagList, tagDict:
		if depth == MaxDepth {
			return nil, errDepth
		}
		if tag == tagDict {
			return r.dict(depth + 1)
		}
		n, err := r.count(1)
		if err != nil {
			return nil, err
		}
		if n > r.left {
			return nil, errNodes
		}
		if err := r.takes(sizeList + sizeElement*n); err != nil {
			return nil, err
		}
		list := make([]starlark.Value, n)
		for i := range list {
			if list[i], err = r.value(depth + 1); err != nil {
				return nil, err
			}
		}
		return starlark.NewList(list), nil
	}
	return nil, fmt.Errorf("no value begins with byte %d", tag)
}

// part reads a text as a part of the whole.
func (r *reader) part() (string, error) {
	b := r.rest
	if len(b) < 4 {
		return "", errCut
	}
	n := binary.LittleEndian.Uint32(b)
	if uint64(n) > uint64(len(b)-4) {
		return "", errCut
	}
	at := len(r.text) - len(b) + 4
	r.rest = b[4+n:]
	return r.text[at : at+int(n)], nil
}

// key reads the key at a place of a dict, and makes one value of equal ones.
func (r *reader) key(at int) (starlark.Value, error) {
	text, err := r.part()
	if err != nil {
		return nil, err
	}
	if at >= len(r.last) {
		return r.known(text), nil
	}
	if last := &r.last[at]; last.text != text || last.value == nil {
		*last = keyAt{text, r.known(text)}
	}
	return r.last[at].value, nil
}

// known makes one value of equal keys.
func (r *reader) known(text string) starlark.Value {
	if v, ok := r.keys[text]; ok {
		return v
	}
	v := starlark.Value(starlark.String(text))
	if len(r.keys) < 64 && len(text) < 64 {
		if r.keys == nil {
			r.keys = make(map[string]starlark.Value, 8)
		}
		r.keys[text] = v
	}
	return v
}

// takes counts bytes of a value before they are allocated.
func (r *reader) takes(bytes int) error {
	if r.meter == nil {
		return nil
	}
	return r.meter.allocate(bytes)
}

func (r *reader) dict(depth int) (starlark.Value, error) {
	n, err := r.count(5)
	if err != nil {
		return nil, err
	}
	if n > r.left {
		return nil, errNodes
	}
	if err := r.takes(sizeDict + sizeEntry*max(0, n-8)); err != nil {
		return nil, err
	}
	dict := starlark.NewDict(n)
	var crowded *crowd
	if r.meter != nil {
		crowded = crowdOf(n)
	}
	for i := range n {
		key, err := r.key(i)
		if err != nil {
			return nil, err
		}
		if crowded.add(key) > 0 {
			return nil, errCrowded
		}
		v, err := r.value(depth)
		if err != nil {
			return nil, err
		}
		if err := dict.SetKey(key, v); err != nil {
			return nil, err
		}
	}
	return dict, nil
}

// encoder writes the wire form of a value, and counts the bytes of its JSON text.
type encoder struct {
	out        []byte
	left, size int
	most       int // bytes of JSON

	payer  *meter // as that of a weigher; nil for none
	thread *starlark.Thread
}

// misfit is a value that has no JSON form, and where it is.
type misfit struct {
	path, why string
}

func (m *misfit) Error() string { return m.path + ": " + m.why }

// within puts a step in front of the path of an error, unless it is about the whole.
func within(step string, err error) error {
	if _, ok := err.(whole); ok {
		if step, _, _ = strings.Cut(step, "["); step == "" {
			return err
		}
	}
	if m, ok := err.(*misfit); ok {
		m.path = step + m.path
		return m
	}
	return &misfit{path: step, why: err.Error()}
}

func keyStep(key string) string { return "[" + strconv.Quote(clip(key, 64)) + "]" }

func indexStep(i int) string { return "[" + strconv.Itoa(i) + "]" }

// encode appends the wire form of a value, whose JSON text has at most most bytes. The name
// stands in front of the path in its errors.
func encode(out []byte, name string, v starlark.Value, most int) ([]byte, error) {
	return (&encoder{out: out, left: MaxNodes, most: most}).whole(name, v)
}

// whole is encode.
func (e *encoder) whole(name string, v starlark.Value) ([]byte, error) {
	if err := e.value(v, 0); err != nil {
		return nil, within(name, err)
	}
	return e.out, nil
}

func (e *encoder) grow(n int) error {
	if e.size += n; e.size > e.most {
		return errLarge(e.most)
	}
	return nil
}

func (e *encoder) value(v starlark.Value, depth int) error {
	if e.left--; e.left < 0 {
		return errNodes
	}
	if e.left%paidAtOnce == 0 && e.payer != nil {
		if err := e.payer.work(e.thread, paidAtOnce*unitsPerValue); err != nil {
			return err
		}
	}
	switch v := v.(type) {
	case starlark.NoneType:
		e.out = append(e.out, tagNone)
		return e.grow(4)
	case starlark.Bool:
		if v {
			e.out = append(e.out, tagTrue)
			return e.grow(4)
		}
		e.out = append(e.out, tagFalse)
		return e.grow(5)
	case starlark.Int:
		if n, ok := v.Int64(); ok {
			e.out = appendInt(e.out, n)
			return e.grow(width(n))
		}
		n := v.BigInt()
		if tooLong(n) {
			return errDigits
		}
		e.out = appendBig(e.out, n)
		return e.grow(n.BitLen() * 3 / 10)
	case starlark.Float:
		f := float64(v)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("%s has no JSON form", floatName(f))
		}
		e.out = appendFloat(e.out, f)
		return e.grow(3)
	case starlark.String:
		e.out = append(e.out, tagText)
		return e.text(string(v))
	}
	if depth == MaxDepth {
		return errDepth
	}
	switch v := v.(type) {
	case *starlark.List:
		return e.list(v.Len(), v.Index, depth+1)
	case starlark.Tuple:
		return e.list(v.Len(), v.Index, depth+1)
	case *starlark.Dict:
		return e.dict(v, depth+1)
	case *starlark.Set:
		return e.sequence(v, v.Len(), depth+1)
	case starlark.Sequence:
		if v.Type() == "range" {
			return e.sequence(v, v.Len(), depth+1)
		}
	}
	return fmt.Errorf("%s has no JSON form", v.Type())
}

func (e *encoder) text(s string) error {
	if e.size+len(s) > e.most {
		return errLarge(e.most)
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("text that is not UTF-8 has no JSON form")
	}
	e.out = appendBytes(e.out, s)
	return e.grow(len(s) + 2)
}

func (e *encoder) begin(tag byte, n int) error {
	if n > e.left || n < 0 { // of a range, more than can be counted
		return errNodes
	}
	e.out = binary.LittleEndian.AppendUint32(append(e.out, tag), uint32(n))
	return e.grow(1 + max(n, 1))
}

func (e *encoder) list(n int, at func(int) starlark.Value, depth int) error {
	if err := e.begin(tagList, n); err != nil {
		return err
	}
	for i := range n {
		if err := e.value(at(i), depth); err != nil {
			return within(indexStep(i), err)
		}
	}
	return nil
}

func (e *encoder) sequence(v starlark.Iterable, n, depth int) error {
	if err := e.begin(tagList, n); err != nil {
		return err
	}
	iter := v.Iterate()
	defer iter.Done()
	var x starlark.Value
	for i := 0; iter.Next(&x); i++ {
		if err := e.value(x, depth); err != nil {
			return within(indexStep(i), err)
		}
	}
	return nil
}

func (e *encoder) dict(d *starlark.Dict, depth int) error {
	if err := e.begin(tagDict, d.Len()); err != nil {
		return err
	}
	digits := false // whether a key is a number
	for key, v := range d.Entries() {
		name, ok := starlark.AsString(key)
		if !ok {
			n, isInt := key.(starlark.Int)
			if !isInt {
				return fmt.Errorf("a key of type %s has no JSON form", key.Type())
			}
			if big, small := n.Int64(); !small {
				if tooLong(n.BigInt()) {
					return errDigits
				}
				name = n.String()
			} else {
				name = strconv.FormatInt(big, 10)
			}
			digits = true
		}
		if err := e.text(name); err != nil {
			return within(keyStep(name), err)
		}
		if err := e.grow(1); err != nil {
			return err
		}
		if err := e.value(v, depth); err != nil {
			return within(keyStep(name), err)
		}
	}
	if digits {
		return equalKeys(d)
	}
	return nil
}

// equalKeys looks for a text key that says the digits of a number that is a key too.
func equalKeys(d *starlark.Dict) error {
	for key := range d.Entries() {
		n, ok := key.(starlark.Int)
		if !ok {
			continue
		}
		if _, twice, _ := d.Get(starlark.String(n.String())); twice {
			return within(keyStep(n.String()), fmt.Errorf("two keys become equal"))
		}
	}
	return nil
}

// width is how many characters a number has.
func width(n int64) int {
	w := 1
	if n < 0 {
		w = 2
	}
	for n /= 10; n != 0; n /= 10 {
		w++
	}
	return w
}
