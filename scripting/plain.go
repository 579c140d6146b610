package scripting

import (
	"encoding/json"
	"math"
	"math/big"
	"strconv"
)

// Plain makes of a JSON text what encoding/json makes of it where it keeps numbers: nil, bool,
// string, json.Number, []any and map[string]any. The text is within the bounds of FromJSON,
// and numbers are written as ToJSON writes them.
func Plain(text []byte) (any, error) {
	wire, err := FromJSON(text)
	if err != nil {
		return nil, err
	}
	r := reader{rest: wire, left: MaxNodes, text: string(wire)}
	return r.plain()
}

// plain reads a value of a wire form that FromJSON made.
func (r *reader) plain() (any, error) {
	tag, err := r.tag()
	if err != nil {
		return nil, err
	}
	switch tag {
	case tagFalse, tagTrue:
		return tag == tagTrue, nil
	case tagInt:
		n, err := r.uint64()
		return json.Number(strconv.FormatInt(int64(n), 10)), err
	case tagBig:
		negative, magnitude, err := r.big()
		n := new(big.Int).SetBytes(magnitude)
		if negative {
			n.Neg(n)
		}
		return json.Number(n.String()), err
	case tagFloat:
		n, err := r.uint64()
		return json.Number(appendNumber(nil, math.Float64frombits(n))), err
	case tagText:
		return r.part()
	case tagList:
		n, err := r.count(1)
		if err != nil {
			return nil, err
		}
		list := make([]any, n)
		for i := range list {
			if list[i], err = r.plain(); err != nil {
				return nil, err
			}
		}
		return list, nil
	case tagDict:
		n, err := r.count(5)
		if err != nil {
			return nil, err
		}
		object := make(map[string]any, n)
		for range n {
			name, err := r.part()
			if err != nil {
				return nil, err
			}
			if object[name], err = r.plain(); err != nil {
				return nil, err
			}
		}
		return object, nil
	}
	return nil, nil // tagNone: FromJSON makes no others
}
