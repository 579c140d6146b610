package webhook

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weir-edge/weir/edge/mcp"
)

// The bounds of a patch. Together with those of messages and of answers they
// make its cost linear: what it copies and what it tests is counted, everything
// else is a step on a path.
const (
	maxOps    = 128         // operations
	maxCopied = maxBody     // bytes that they copy
	maxTested = 4 * maxBody // bytes that they test
)

// badPatch is a patch that cannot be made. text is what a client reads.
type badPatch struct {
	text  string
	cause error
}

func (e *badPatch) Error() string { return e.text + ": " + e.cause.Error() }
func (e *badPatch) Unwrap() error { return e.cause }

// root is the member of what a webhook was asked that its patches lead into.
const root = "/mcp_request/"

// apply makes the patch of a verdict (RFC 6902) in a message, and returns the
// text that comes of it. The error is a *badPatch; it shows nothing of either.
// The verdict has been found to be JSON without names that come twice.
func (v verdict) apply(message []byte) ([]byte, error) {
	if v.patchType != "json_patch" {
		return nil, &badPatch{"Unsupported patch type from webhook", errors.New("it is not json_patch")}
	}
	ops, err := operations(v.patch)
	if err != nil {
		return nil, err
	}
	p := patching{draft: mcp.NewDraft(message)}
	p.draft.Behind = true
	changes := false
	for i := range ops {
		if !p.do(&ops[i]) {
			return nil, &badPatch{"Failed to apply patch from webhook", fmt.Errorf("operation %d does not fit the message", i)}
		}
		changes = changes || ops[i].what != "test"
	}
	if !changes {
		return message, nil
	}
	after := p.draft.Text()
	if len(after) > maxBody {
		return nil, &badPatch{"Failed to apply patch from webhook", fmt.Errorf("the message grew above %d bytes", maxBody)}
	}
	if err := mcp.Valid(after); err != nil {
		return nil, &badPatch{"Failed to apply patch from webhook", err}
	}
	return after, nil
}

// operation is one of a patch. Its paths lead into the message.
type operation struct {
	what       string
	path, from []string
	value      []byte
}

// patching is a message while it is patched.
type patching struct {
	draft          *mcp.Draft
	copied, tested int
}

// do makes an operation, and reports false when it does not fit.
func (p *patching) do(o *operation) bool {
	switch o.what {
	case "add":
		return p.draft.Insert(o.path, o.value) == nil
	case "replace":
		return p.draft.Has(o.path) && p.draft.Put(o.path, o.value) == nil
	case "remove":
		was, err := p.draft.Cut(o.path)
		return was && err == nil
	case "move":
		return p.draft.Move(o.from, o.path) == nil
	case "copy":
		value := p.draft.Get(o.from)
		p.copied += len(value)
		return value != nil && p.copied <= maxCopied && p.draft.Insert(o.path, value) == nil
	case "test":
		value := p.draft.Get(o.path)
		p.tested += len(value)
		return value != nil && p.tested <= maxTested && mcp.Same(value, o.value)
	}
	return false
}

// operations reads a patch: a list of operations that touch nothing but what is
// inside the message.
func operations(patch []byte) ([]operation, error) {
	if len(patch) == 0 || patch[0] != '[' {
		return nil, &badPatch{"Malformed patch from webhook", errors.New("it is no list of operations")}
	}
	list := mcp.Elements(patch)
	if len(list) > maxOps {
		return nil, &badPatch{"Invalid patch from webhook", fmt.Errorf("it has more than %d operations", maxOps)}
	}
	ops := make([]operation, len(list))
	for i, text := range list {
		if text[0] != '{' {
			return nil, &badPatch{"Malformed patch from webhook", fmt.Errorf("operation %d is no object", i)}
		}
		o := &ops[i]
		var path, from []byte
		mcp.Each(text, func(name, value []byte) bool {
			switch string(mcp.Unquote(name)) {
			case "op":
				o.what = mcp.String(value)
			case "path":
				path = value
			case "from":
				from = value
			case "value":
				o.value = value
			}
			return true
		})
		two := false
		switch o.what {
		case "add", "replace", "test":
			if o.value == nil {
				return nil, &badPatch{"Invalid patch from webhook", fmt.Errorf("operation %d has no value", i)}
			}
		case "move", "copy":
			two = true
		case "remove":
		default:
			return nil, &badPatch{"Invalid patch from webhook", fmt.Errorf("operation %d is none of RFC 6902", i)}
		}
		var err error
		if o.path, err = inside(i, "path", path); err == nil && two {
			o.from, err = inside(i, "from", from)
		}
		if err != nil {
			return nil, err
		}
	}
	return ops, nil
}

// inside reads a JSON pointer of an operation (RFC 6901) that leads into the
// message.
func inside(i int, name string, pointer []byte) ([]string, error) {
	if len(pointer) == 0 || pointer[0] != '"' {
		return nil, &badPatch{"Invalid patch from webhook", fmt.Errorf("operation %d has no %s", i, name)}
	}
	rest, ok := strings.CutPrefix(mcp.String(pointer), root)
	if !ok {
		return nil, &badPatch{"Patch must be scoped to mcp_request", fmt.Errorf("operation %d", i)}
	}
	if strings.Count(rest, "/") > mcp.MaxDepth {
		return nil, &badPatch{"Invalid patch from webhook", fmt.Errorf("operation %d leads deeper than a message goes", i)}
	}
	tokens := strings.Split(rest, "/")
	for j, t := range tokens {
		if !strings.Contains(t, "~") {
			continue
		}
		t = strings.ReplaceAll(t, "~1", "/") // an order that RFC 6901 §4 demands
		if tokens[j] = strings.ReplaceAll(t, "~0", "~"); strings.Count(t, "~0") != strings.Count(t, "~") {
			return nil, &badPatch{"Invalid patch from webhook", fmt.Errorf("the %s of operation %d is no JSON pointer", name, i)}
		}
	}
	return tokens, nil
}
