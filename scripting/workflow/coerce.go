package workflow

import (
	"fmt"
	"math"
	"regexp"
	"strconv"

	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/scripting"
)

// The shapes of numbers as texts: JSON's.
var (
	integerShape = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	numberShape  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)
)

// coerce makes the JSON text of a value of a type out of a text.
func coerce(kind v1beta1.OutputType, text string) ([]byte, error) {
	misfit := fmt.Errorf("%s is no %s", strconv.Quote(short(text)), kind)
	switch kind {
	case v1beta1.OutputString:
		return appendData(nil, text), nil
	case v1beta1.OutputInteger:
		if !integerShape.MatchString(text) {
			return nil, misfit
		}
		if len(text) > scripting.MaxDigits {
			return nil, fmt.Errorf("an integer of more than %d digits", scripting.MaxDigits)
		}
		if text == "-0" {
			text = "0"
		}
		return []byte(text), nil
	case v1beta1.OutputNumber:
		if !numberShape.MatchString(text) || len(text) > scripting.MaxDigits {
			return nil, misfit
		}
		if f, err := strconv.ParseFloat(text, 64); err != nil || math.IsInf(f, 0) {
			if !integerShape.MatchString(text) {
				return nil, misfit
			}
		}
		return []byte(text), nil
	case v1beta1.OutputBoolean:
		if text != "true" && text != "false" {
			return nil, misfit
		}
		return []byte(text), nil
	case v1beta1.OutputObject, v1beta1.OutputArray:
		plain, err := normal([]byte(text))
		if err != nil || len(plain) == 0 || plain[0] != map[v1beta1.OutputType]byte{v1beta1.OutputObject: '{', v1beta1.OutputArray: '['}[kind] {
			return nil, misfit
		}
		return plain, nil
	}
	return nil, fmt.Errorf("no type is called %s", strconv.Quote(short(string(kind))))
}

// fits makes a JSON value one of a type: as it is when it is of the type, and as a text
// otherwise.
func fits(kind v1beta1.OutputType, value []byte) ([]byte, error) {
	plain, err := normal(value)
	if err != nil {
		return nil, err
	}
	v, err := read(plain)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil:
	case string:
		return coerce(kind, v)
	default:
		if kind == v1beta1.OutputString { // the text that it has as JSON
			return coerce(kind, string(plain))
		}
	}
	switch v.(type) {
	case bool:
		if kind == v1beta1.OutputBoolean {
			return plain, nil
		}
	case int64, digits:
		if kind == v1beta1.OutputInteger || kind == v1beta1.OutputNumber {
			return plain, nil
		}
	case decimal:
		if kind == v1beta1.OutputNumber {
			return plain, nil
		}
	case map[string]any:
		if kind == v1beta1.OutputObject {
			return plain, nil
		}
	case []any:
		if kind == v1beta1.OutputArray {
			return plain, nil
		}
	}
	return nil, fmt.Errorf("%s is no %s", short(string(plain)), kind)
}

// short is what of a value an error says.
func short(s string) string {
	s = scripting.Clean(s)
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}
