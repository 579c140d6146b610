package guest

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/edge/mcp"
)

// Bounds of the JSON pointers of operations.
const (
	maxPointer = 1024 // bytes
	maxTokens  = 64
)

var (
	errPointer = errors.New("a malformed JSON pointer")
	errNoPlace = errors.New("a JSON pointer to a place that is not there")
)

// tokensOf takes a JSON pointer apart (RFC 6901 §3 and §4). The empty pointer
// stands for the whole value.
func tokensOf(pointer string) ([]string, error) {
	if pointer == "" {
		return nil, nil
	}
	if pointer[0] != '/' || len(pointer) > maxPointer || strings.Count(pointer, "/") > maxTokens {
		return nil, errPointer
	}
	tokens := strings.Split(pointer[1:], "/")
	for i, t := range tokens {
		if !strings.Contains(t, "~") {
			continue
		}
		rest := strings.NewReplacer("~0", "", "~1", "").Replace(t)
		if strings.Contains(rest, "~") {
			return nil, errPointer
		}
		tokens[i] = strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~")
	}
	return tokens, nil
}

// at returns the value that tokens lead to; nil when there is none.
func at(value []byte, tokens []string) []byte {
	for _, t := range tokens {
		switch {
		case len(value) == 0:
			return nil
		case value[0] == '{':
			value = mcp.Lookup(value, t)
		case value[0] == '[':
			elements := mcp.Elements(value)
			i, ok := index(t, len(elements))
			if !ok {
				return nil
			}
			value = elements[i]
		default:
			return nil
		}
	}
	return value
}

// index reads the index of an element (RFC 6901 §4).
func index(token string, n int) (int, bool) {
	if token == "" || len(token) > 1 && token[0] == '0' || len(token) > 9 {
		return 0, false
	}
	i, err := strconv.ParseUint(token, 10, 31)
	return int(i), err == nil && int(i) < n
}

// put returns value with raw where tokens lead: in place of what is there, as a
// new member, or behind the last element for "-". What it is to stand in must
// be there.
func put(value []byte, tokens []string, raw []byte) ([]byte, error) {
	if len(tokens) == 0 {
		return raw, nil
	}
	if len(value) == 0 {
		return nil, errNoPlace
	}
	t := tokens[0]
	switch value[0] {
	case '{':
		child, err := put(mcp.Lookup(value, t), tokens[1:], raw)
		if err != nil {
			return nil, err
		}
		return mcp.Change(value, nil, member(t, child)), nil
	case '[':
		elements := mcp.Elements(value)
		if t == "-" && len(tokens) == 1 {
			return listOf(append(elements, raw)), nil
		}
		i, ok := index(t, len(elements))
		if !ok {
			return nil, errNoPlace
		}
		child, err := put(elements[i], tokens[1:], raw)
		if err != nil {
			return nil, err
		}
		elements[i] = child
		return listOf(elements), nil
	}
	return nil, errNoPlace
}

// cut returns value without what tokens lead to. The whole value cannot be cut.
func cut(value []byte, tokens []string) ([]byte, error) {
	if len(tokens) == 0 {
		return nil, errNoPlace
	}
	if at(value, tokens) == nil {
		return value, nil
	}
	last := tokens[len(tokens)-1]
	parent := at(value, tokens[:len(tokens)-1])
	if parent[0] == '{' {
		return put(value, tokens[:len(tokens)-1], mcp.Change(parent, []string{last}))
	}
	elements := mcp.Elements(parent)
	i, _ := index(last, len(elements)) // at has found it
	return put(value, tokens[:len(tokens)-1], listOf(slices.Delete(elements, i, i+1)))
}

func member(name string, value []byte) mcp.Member {
	quoted := mcp.Quote(name)
	return mcp.Raw(string(quoted[1:len(quoted)-1]), value)
}

func listOf(elements [][]byte) []byte {
	out := []byte{'['}
	for i, e := range elements {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, e...)
	}
	return append(out, ']')
}
