package guest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weir-edge/weir/edge/mcp"
)

// Limits on the JSON pointers of operations.
const (
	maxPointer = 1024 // bytes
	maxTokens  = 64
)

var errPointer = errors.New("a malformed JSON pointer")

// tokensOf splits a JSON pointer (RFC 6901 §3 and §4). The empty pointer is
// the whole value.
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

// at returns the value that tokens lead to; nil if there is none.
func at(value []byte, tokens []string) []byte {
	if len(tokens) == 0 {
		return value
	}
	return mcp.Find(value, tokens, mcp.ArrayIndex)
}

// draft is a value being edited. It is parsed for the first operation and
// written after the last, so that many operations on a large value cost no
// more than reading it.
type draft struct {
	text []byte
	open *mcp.Draft // nil until the first edit
}

func (d *draft) at() *mcp.Draft {
	if d.open == nil {
		d.open = mcp.NewDraft(d.text)
	}
	return d.open
}

func (d *draft) has(tokens ...string) bool { return d.at().Has(tokens) }

// put sets what tokens lead to: it replaces a value, adds a member, or for
// "-" appends an element. The parent must exist.
func (d *draft) put(tokens []string, raw []byte) error {
	if err := d.at().Put(tokens, raw); err != nil {
		return fmt.Errorf("%w: %.100q", err, "/"+strings.Join(tokens, "/"))
	}
	return nil
}

// cut removes what tokens lead to. The whole value cannot be cut.
func (d *draft) cut(tokens []string) error {
	_, err := d.at().Cut(tokens)
	return err
}

// set replaces the whole value.
func (d *draft) set(text []byte) { d.text, d.open = text, nil }

// whole returns the current value.
func (d *draft) whole() []byte {
	if d.open != nil {
		d.text = d.open.Text()
	}
	return d.text
}
