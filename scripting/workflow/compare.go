package workflow

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/big"
)

// kindOf names the kind of a value in errors, in the words of JSON.
func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "nothing"
	case bool:
		return "a boolean"
	case string, digits:
		return "a string"
	case int64, int, byte:
		return "an integer"
	case decimal:
		return "a number"
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	}
	return "a complex number"
}

// whole is an integer of any type.
func whole(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case int:
		return int64(v), true
	case byte:
		return int64(v), true
	}
	return 0, false
}

// asText is a text, or the digits of a large integer.
func asText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case digits:
		return string(v), true
	}
	return "", false
}

// numbersOf compares an integer with a number that is not whole, or the other way around, and one
// beyond int64 with any number. The language would refuse it; but it depends on the data alone
// whether a score is 1 or 0.9. With a text an integer beyond int64 compares as one.
func (r *rendering) numbersOf(a, b any) (order int, ok bool, err error) {
	s, large := a.(digits)
	t, larger := b.(digits)
	if large || larger {
		if !numeric(a) || !numeric(b) {
			return 0, false, nil
		}
		if err := r.spend((len(s) + len(t)) / 8); err != nil {
			return 0, false, err
		}
		x, y := exact(a), exact(b)
		if x == nil || y == nil {
			return 0, false, nil
		}
		return x.Cmp(y), true, nil
	}
	if x, whole := whole(a); whole {
		d, ok := b.(decimal)
		return compareNumbers(x, float64(d)), ok, nil
	}
	d, ok := a.(decimal)
	y, whole := whole(b)
	return -compareNumbers(y, float64(d)), ok && whole, nil
}

func numeric(v any) bool {
	switch v.(type) {
	case int64, int, byte, decimal, digits:
		return true
	}
	return false
}

// exact is a number with all its digits; nil for what is none.
func exact(v any) *big.Float {
	if n, ok := whole(v); ok {
		return new(big.Float).SetInt64(n)
	}
	switch v := v.(type) {
	case decimal:
		if !math.IsNaN(float64(v)) {
			return big.NewFloat(float64(v))
		}
	case digits:
		if n, ok := new(big.Int).SetString(string(v), 10); ok {
			return new(big.Float).SetInt(n)
		}
	}
	return nil
}

// compareNumbers compares exactly: a float64 of a large integer may be another one.
func compareNumbers(x int64, f float64) int {
	switch {
	case f >= 1<<63:
		return -1
	case f < -1<<63:
		return 1
	}
	whole, rest := math.Modf(f)
	return cmp.Or(cmp.Compare(x, int64(whole)), cmp.Compare(0, rest))
}

// alike counts the work of comparing two values, which must be of one kind.
func (r *rendering) alike(a, b any) error {
	if kindOf(a) != kindOf(b) {
		return fmt.Errorf("incompatible types for comparison: %s and %s", kindOf(a), kindOf(b))
	}
	s, _ := asText(a)
	t, _ := asText(b)
	return r.spend(min(len(s), len(t)) / 256)
}

// equal says whether the first value equals one of the others. Objects and arrays can be
// compared with nothing alone.
func equal(r *rendering, values []any) (any, error) {
	a, others := values[0], values[1:]
	if len(others) == 0 {
		return nil, errors.New("missing argument for comparison")
	}
	for _, b := range others {
		if a == nil || b == nil {
			if a == nil && b == nil {
				return true, nil
			}
			continue
		}
		if order, mixed, err := r.numbersOf(a, b); err != nil || mixed {
			if err != nil || order == 0 {
				return err == nil, err
			}
			continue
		}
		if err := r.alike(a, b); err != nil {
			return nil, err
		}
		same := false
		switch kindOf(a) {
		case "an integer":
			x, _ := whole(a)
			y, _ := whole(b)
			same = x == y
		case "a string":
			x, _ := asText(a)
			y, _ := asText(b)
			same = x == y
		case "an array", "an object":
			return nil, fmt.Errorf("%s can't be compared", kindOf(a))
		default:
			same = a == b
		}
		if same {
			return true, nil
		}
	}
	return false, nil
}

// less says whether one value is less than another.
func less(r *rendering, values []any) (any, error) {
	a, b := values[0], values[1]
	if order, mixed, err := r.numbersOf(a, b); err != nil || mixed {
		return order < 0, err
	}
	if err := r.alike(a, b); err != nil {
		return nil, err
	}
	if x, ok := whole(a); ok {
		y, _ := whole(b)
		return x < y, nil
	}
	if x, ok := asText(a); ok {
		y, _ := asText(b)
		return x < y, nil
	}
	if x, ok := a.(decimal); ok {
		return cmp.Less(x, b.(decimal)), nil
	}
	return nil, fmt.Errorf("%s is neither less nor more than another", kindOf(a))
}

func lessOrEqual(r *rendering, values []any) (any, error) {
	if before, err := less(r, values); err != nil || before == true {
		return before, err
	}
	return equal(r, values)
}

// negated is a function that says the opposite.
func negated(fn func(*rendering, []any) (any, error)) func(*rendering, []any) (any, error) {
	return func(r *rendering, values []any) (any, error) {
		v, err := fn(r, values)
		return v != true, err
	}
}

// length is the number of bytes, elements or members.
func length(_ *rendering, values []any) (any, error) {
	if s, ok := asText(values[0]); ok {
		return len(s), nil
	}
	switch v := values[0].(type) {
	case []any:
		return len(v), nil
	case map[string]any:
		return len(v), nil
	}
	return nil, fmt.Errorf("%s has no length", kindOf(values[0]))
}

// indexIn is an index of at most a number.
func indexIn(v any, most int) (int, error) {
	i, ok := whole(v)
	if !ok {
		return 0, fmt.Errorf("cannot index with %s", kindOf(v))
	}
	if i < 0 || i > int64(most) {
		return 0, fmt.Errorf("index out of range: %d", i)
	}
	return int(i), nil
}

// index takes an element of an element, and so on. What an object does not have is nothing.
func index(r *rendering, values []any) (any, error) {
	item := values[0]
	if item == nil {
		return nil, errors.New("index of nothing")
	}
	for _, at := range values[1:] {
		if object, ok := item.(map[string]any); ok {
			name, ok := at.(string)
			if !ok {
				return nil, fmt.Errorf("cannot index an object with %s", kindOf(at))
			}
			if err := r.spend(len(name) / 64); err != nil {
				return nil, err
			}
			item = object[name]
			continue
		}
		s, isText := asText(item)
		list, isList := item.([]any)
		if !isText && !isList {
			return nil, fmt.Errorf("can't index %s", kindOf(item))
		}
		i, err := indexIn(at, len(s)+len(list)-1)
		switch {
		case err != nil:
			return nil, err
		case isText:
			item = s[i]
		default:
			item = list[i]
		}
	}
	return item, nil
}

// slice takes a part of a text or an array.
func slice(_ *rendering, values []any) (any, error) {
	s, isText := asText(values[0])
	list, isList := values[0].([]any)
	if !isText && !isList {
		return nil, fmt.Errorf("can't slice %s", kindOf(values[0]))
	}
	bounds := values[1:]
	if most := 3; len(bounds) > most || isText && len(bounds) == most {
		return nil, fmt.Errorf("too many slice indexes: %d", len(bounds))
	}
	at := []int{0, len(s) + len(list), cap(list)}
	for i, v := range bounds {
		var err error
		if at[i], err = indexIn(v, len(s)+cap(list)); err != nil {
			return nil, err
		}
	}
	switch {
	case at[0] > at[1]:
		return nil, fmt.Errorf("invalid slice index: %d > %d", at[0], at[1])
	case isText:
		return s[at[0]:at[1]], nil
	case at[1] > at[2]:
		return nil, fmt.Errorf("invalid slice index: %d > %d", at[1], at[2])
	}
	return list[at[0]:at[1]:at[2]], nil
}
