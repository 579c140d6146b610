package authz

import (
	"errors"
	"math/big"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"

	"github.com/weir-edge/weir/edge/mcp"
)

// maxValues is how many values one message, or one token, may make. Cedar
// compares the elements of a set with each other where their hashes collide,
// and whoever calls a tool can choose the elements.
const maxValues = 20_000

var errTooManyValues = errors.New("more than " + strconv.Itoa(maxValues) + " values")

// converter turns JSON into Cedar values that are plain data: nothing that a
// client sends becomes an entity or an extension value by its looks.
//
// Strings and booleans are what they are. A number without a fractional part
// that fits 64 bits is a Long however it is written; another number with at
// most four decimal places that fits a decimal is one; what is neither is the
// record {"number": "<text>"}, which has the attribute but fails every ordering,
// so that a policy that compares it denies. null is an empty record, an array a
// set, an object a record.
type converter struct{ left int }

func newConverter() *converter { return &converter{left: maxValues} }

func (c *converter) take() error {
	if c.left--; c.left < 0 {
		return errTooManyValues
	}
	return nil
}

// text converts valid JSON text, whose nesting mcp.MaxDepth bounds.
func (c *converter) text(v []byte) (cedar.Value, error) {
	if err := c.take(); err != nil {
		return nil, err
	}
	switch v[0] {
	case '"':
		return cedar.String(mcp.String(v)), nil
	case 't':
		return cedar.True, nil
	case 'f':
		return cedar.False, nil
	case 'n':
		return cedar.Record{}, nil
	case '[':
		elements := mcp.Elements(v)
		values := make([]cedar.Value, 0, min(len(elements), c.left+1))
		for _, e := range elements {
			value, err := c.text(e)
			if err != nil {
				return nil, err
			}
			values = append(values, value)
		}
		return cedar.NewSet(values...), nil
	case '{':
		members := mcp.Members(v)
		record := make(cedar.RecordMap, min(len(members), c.left+1))
		for _, m := range members {
			value, err := c.text(m.Value)
			if err != nil {
				return nil, err
			}
			record[cedar.String(mcp.Unquote(m.Name))] = value
		}
		return cedar.NewRecord(record), nil
	}
	return number(string(v)), nil
}

// maxNumber is how long the text of a number may be to be looked at: what is
// longer does not fit.
const maxNumber = 64

// number converts the text of a JSON number.
func number(s string) cedar.Value {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return cedar.Long(n)
	}
	odd := func() cedar.Value {
		return cedar.NewRecord(cedar.RecordMap{"number": cedar.String(s)})
	}
	if len(s) > maxNumber || !smallExponent(s) {
		return odd()
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return odd()
	}
	if r.IsInt() {
		if n := r.Num(); n.IsInt64() {
			return cedar.Long(n.Int64())
		}
		return odd()
	}
	r.Mul(r, big.NewRat(10_000, 1))
	if !r.IsInt() || !r.Num().IsInt64() {
		return odd()
	}
	d, err := cedar.NewDecimal(r.Num().Int64(), -4)
	if err != nil {
		return odd()
	}
	return d
}

// smallExponent keeps a number such as 1e999999999 from being written out.
func smallExponent(s string) bool {
	i := strings.IndexAny(s, "eE")
	if i < 0 {
		return true
	}
	e, err := strconv.Atoi(s[i+1:])
	return err == nil && -maxNumber <= e && e <= maxNumber
}
