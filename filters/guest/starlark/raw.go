package starlark

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"go.starlark.net/starlark"

	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/sdk/abi"
)

// rawJSON is JSON text, for an operation that has it as it is written.
type rawJSON string

func (r rawJSON) String() string        { return string(r) }
func (r rawJSON) Type() string          { return "raw_json" }
func (r rawJSON) Freeze()               {}
func (r rawJSON) Truth() starlark.Bool  { return starlark.True }
func (r rawJSON) Hash() (uint32, error) { return starlark.String(r).Hash() }

// asRaw is raw_json: a value of JSON text that keeps its form, such as that of numbers.
func asRaw(_ *call, t *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var text string
	if err := starlark.UnpackArgs("raw_json", args, named, "text", &text); err != nil {
		return nil, err
	}
	if err := t.Work(len(text) / 2); err != nil {
		return nil, err
	}
	if _, err := scripting.FromJSON([]byte(text)); err != nil {
		return nil, failed("raw_json", abi.ErrArgument)
	}
	return rawJSON(text), nil
}

// rawAt is raw_at: the JSON text behind a JSON pointer in another, as it is written; "" where
// there is none.
func rawAt(_ *call, t *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var text, pointer string
	if err := starlark.UnpackArgs("raw_at", args, named, "text", &text, "pointer", &pointer); err != nil {
		return nil, err
	}
	if pointer != "" && pointer[0] != '/' {
		return nil, fmt.Errorf("raw_at: pointer: %q does not begin with /", scripting.Clean(pointer))
	}
	value := []byte(text)
	for _, token := range strings.Split(pointer, "/")[1:] {
		// Of each level all is read once, and its members are kept as texts.
		if err := t.Work(len(value)); err != nil {
			return nil, err
		}
		if err := t.Allocate(2 * len(value)); err != nil {
			return nil, err
		}
		value = memberOf(value, strings.NewReplacer("~1", "/", "~0", "~").Replace(token))
	}
	return t.Text(strings.TrimSpace(string(value)))
}

// memberOf returns the text of a member of an object, or of an element of an array.
func memberOf(text []byte, token string) json.RawMessage {
	var (
		object map[string]json.RawMessage
		array  []json.RawMessage
	)
	if json.Unmarshal(text, &object) == nil {
		return object[token]
	}
	i, err := strconv.ParseUint(token, 10, 31)
	if err != nil || strconv.FormatUint(i, 10) != token || json.Unmarshal(text, &array) != nil || i >= uint64(len(array)) {
		return nil
	}
	return array[i]
}
