// Package heavy makes JSON that is as much work as its size allows, for tests of
// whatever walks through what strangers send.
package heavy

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Least is the processor time that f takes in the best of three runs, or in the
// first that takes no more than enough: the thread of a run may have to help to
// collect garbage.
func Least(enough time.Duration, f func()) time.Duration {
	least := CPU(f)
	for range 2 {
		if least > enough {
			least = min(least, CPU(f))
		}
	}
	return least
}

// Shapes is the names of all shapes.
func Shapes() []string {
	return []string{
		"arrays", "objects", "alternating", "comb", "empty arrays", "empty objects", "numbers", "long numbers", "wide", "escaped names",
		"escapes", "letters", "string", "backslashes", "strings of JSON", "colliding sets", "colliding records", "rows",
	}
}

// Nests reports whether a shape is as deep as is asked for.
func Nests(shape string) bool {
	switch shape {
	case "arrays", "objects", "alternating", "comb":
		return true
	}
	return false
}

// Value is a JSON value of about so many bytes in one of the shapes. What nests
// goes no deeper than depth, and is repeated to fill the size.
func Value(shape string, size, depth int) string {
	switch shape {
	case "arrays":
		return list(size, strings.Repeat("[", depth-1)+strings.Repeat("]", depth-1))
	case "objects":
		return list(size, strings.Repeat(`{"a":`, depth-1)+"1"+strings.Repeat("}", depth-1))
	case "alternating":
		n := (depth - 1) / 2
		return list(size, strings.Repeat(`[{"a":`, n)+"1"+strings.Repeat("}]", n))
	case "comb": // each level has what is below it last, behind something to pass over
		tooth := max(1, size/depth-8)
		return strings.Repeat(`["`+strings.Repeat("x", tooth)+`",`, depth-1) + "1" + strings.Repeat("]", depth-1)
	case "empty arrays":
		return list(size, "[]")
	case "empty objects":
		return list(size, "{}")
	case "numbers":
		return list(size, "1")
	case "long numbers":
		return list(size, strings.Repeat("9", 60)+"e-60")
	case "wide":
		return members(size, func(i int) string { return strconv.Itoa(i) })
	case "escaped names":
		return members(size, func(i int) string { return fmt.Sprintf(`\u00%02x%d`, 0x61+i%26, i) })
	case "escapes":
		return `"` + strings.Repeat(`\u00e9`, size/6) + `"`
	case "letters":
		return `"` + strings.Repeat("é", size/2) + `"`
	case "string":
		return `"` + strings.Repeat("a", size) + `"`
	case "backslashes":
		return list(size, `"\\"`)
	case "strings of JSON":
		return list(size, `"["`)
	case "colliding sets": // the hashes of sets are the sums of those of their elements
		return list(size, func(i int) string { return fmt.Sprintf("[%d,%d]", i, 100_000_000-i) })
	case "colliding records":
		return list(size, func(i int) string { return fmt.Sprintf(`{"a":[%d,%d]}`, i, 100_000_000-i) })
	case "rows": // numbers that follow each other, and sets that hash to them
		return list(size, func(i int) string {
			if i%2 == 0 {
				return strconv.Itoa(i / 2)
			}
			return "[" + strconv.Itoa(i/2) + "]"
		})
	}
	panic("no shape " + shape)
}

// list is an array of about so many bytes.
func list[T string | func(int) string](size int, element T) string {
	of, ok := any(element).(func(int) string)
	if !ok {
		of = func(int) string { return any(element).(string) }
	}
	var b strings.Builder
	b.Grow(size + 64)
	b.WriteByte('[')
	for i := 0; i == 0 || b.Len() < size; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(of(i))
	}
	b.WriteByte(']')
	return b.String()
}

func members(size int, name func(int) string) string {
	var b strings.Builder
	b.Grow(size + 64)
	b.WriteByte('{')
	for i := 0; i == 0 || b.Len() < size; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"` + name(i) + `":1`)
	}
	b.WriteByte('}')
	return b.String()
}
