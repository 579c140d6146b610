package scripting

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"unicode/utf8"
)

// ToJSON turns the wire form of a value into JSON text of at most MaxOut bytes. The bytes
// may come from anybody: what is no value, or has no JSON form, is an error.
func ToJSON(wire []byte) (text []byte, err error) {
	r := reader{rest: wire, left: MaxNodes}
	w := writer{reader: r, out: make([]byte, 0, min(len(wire)+16, MaxOut))}
	if err := w.value(0); err != nil {
		return nil, err
	}
	if len(w.rest) > 0 {
		return nil, errors.New("there are bytes after the value")
	}
	return w.out, nil
}

type writer struct {
	reader
	out []byte
}

func (w *writer) value(depth int) error {
	tag, err := w.tag()
	if err != nil {
		return err
	}
	switch tag {
	case tagNone:
		w.out = append(w.out, "null"...)
	case tagFalse:
		w.out = append(w.out, "false"...)
	case tagTrue:
		w.out = append(w.out, "true"...)
	case tagInt:
		n, err := w.uint64()
		if err != nil {
			return err
		}
		w.out = strconv.AppendInt(w.out, int64(n), 10)
	case tagBig:
		negative, magnitude, err := w.big()
		if err != nil {
			return err
		}
		n := new(big.Int).SetBytes(magnitude)
		if negative {
			n.Neg(n)
		}
		if w.out = n.Append(w.out, 10); len(magnitude) >= maxBig-8 && tooLong(n) {
			return errDigits
		}
	case tagFloat:
		n, err := w.uint64()
		if err != nil {
			return err
		}
		f := math.Float64frombits(n)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("%s has no JSON form", floatName(f))
		}
		w.out = appendNumber(w.out, f)
	case tagText:
		text, err := w.bytes()
		if err != nil {
			return err
		}
		if err := w.text(text); err != nil {
			return err
		}
	case tagList, tagDict:
		if depth == MaxDepth {
			return errDepth
		}
		if tag == tagList {
			err = w.list(depth + 1)
		} else {
			err = w.dict(depth + 1)
		}
		if err != nil {
			return err
		}
	default:
		return fmt.Errorf("no value begins with byte %d", tag)
	}
	if len(w.out) > MaxOut {
		return errLarge(MaxOut)
	}
	return nil
}

// TooLarge reports whether an error of ToJSON is that the text has more than MaxOut bytes: who
// encoded the value counted the least that its text can have.
func TooLarge(err error) bool { return errors.Is(err, errLarge(MaxOut)) }

func errLarge(most int) error { return whole(fmt.Sprintf("larger than %d bytes", most)) }

func (w *writer) text(text []byte) error {
	if len(w.out)+len(text) > MaxOut {
		return errLarge(MaxOut)
	}
	if !utf8.Valid(text) {
		return errors.New("text that is not UTF-8 has no JSON form")
	}
	w.out = appendString(w.out, text)
	return nil
}

func (w *writer) list(depth int) error {
	n, err := w.count(1)
	if err != nil {
		return err
	}
	w.out = append(w.out, '[')
	for i := range n {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		if err := w.value(depth); err != nil {
			return err
		}
	}
	w.out = append(w.out, ']')
	return nil
}

func (w *writer) dict(depth int) error {
	n, err := w.count(5)
	if err != nil {
		return err
	}
	var (
		names [few][]byte // of a small dict, to compare one by one
		seen  map[string]struct{}
	)
	if n > few {
		seen = make(map[string]struct{}, n)
	}
	w.out = append(w.out, '{')
	for i := range n {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		key, err := w.bytes()
		if err != nil {
			return err
		}
		twice := false
		if n > few {
			_, twice = seen[string(key)]
			seen[string(key)] = struct{}{}
		} else {
			for _, name := range names[:i] {
				twice = twice || bytes.Equal(name, key)
			}
			names[i] = key
		}
		if twice {
			return fmt.Errorf("two keys %.64q", key)
		}
		if err := w.text(key); err != nil {
			return err
		}
		w.out = append(w.out, ':')
		if err := w.value(depth); err != nil {
			return err
		}
	}
	w.out = append(w.out, '}')
	return nil
}

// appendNumber appends the shortest text that reads back as the same number: whole numbers
// that FromJSON makes integers of have neither fraction nor exponent.
func appendNumber(b []byte, f float64) []byte {
	if f == 0 {
		return append(b, '0')
	}
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return strconv.AppendInt(b, int64(f), 10)
	}
	e := strconv.AppendFloat(nil, f, 'e', -1, 64)
	// e+05 and e-05 are e5 and e-5.
	i := bytes.IndexByte(e, 'e')
	exp, _ := strconv.Atoi(string(e[i+1:]))
	e = strconv.AppendInt(e[:i+1], int64(exp), 10)
	if plain := strconv.AppendFloat(nil, f, 'f', -1, 64); len(plain) <= len(e) && bytes.IndexByte(plain, '.') >= 0 {
		return append(b, plain...)
	}
	return append(b, e...)
}

func floatName(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "+Inf"
	case math.IsInf(f, -1):
		return "-Inf"
	}
	return "NaN"
}

// tooLong reports whether an integer has more than MaxDigits digits.
func tooLong(n *big.Int) bool {
	if n.BitLen() <= 13606 { // MaxDigits × log2(10), rounded down
		return false
	}
	return len(n.Text(10)) > MaxDigits+1 || n.Sign() >= 0 && len(n.Text(10)) > MaxDigits
}

const hex = "0123456789abcdef"

// appendString appends a JSON string of a text that is UTF-8.
func appendString[T string | []byte](b []byte, s T) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}
