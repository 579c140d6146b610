package webhook

import (
	"errors"
	"fmt"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/weir-edge/weir/edge/mcp"
)

// maxOps is how many operations a patch may have.
const maxOps = 128

// badPatch is a patch that cannot be made. text is what a client reads.
type badPatch struct {
	text  string
	cause error
}

func (e *badPatch) Error() string { return e.text + ": " + e.cause.Error() }
func (e *badPatch) Unwrap() error { return e.cause }

// apply makes the patch of a verdict (RFC 6902) in a message, and returns the
// text that comes of it. The error is a *badPatch; it shows nothing of either.
// The verdict has been found to be JSON without names that come twice.
func (v verdict) apply(message []byte) ([]byte, error) {
	if v.patchType != "json_patch" {
		return nil, &badPatch{"Unsupported patch type from webhook", errors.New("it is not json_patch")}
	}
	changes, err := scoped(v.patch)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(v.patch)
	if err != nil {
		return nil, &badPatch{"Invalid patch from webhook", errors.New("it cannot be read")}
	}
	document := append(append([]byte(`{"mcp_request":`), message...), '}')
	after, ok := patched(patch, document)
	if !ok {
		return nil, &badPatch{"Failed to apply patch from webhook", errors.New("an operation does not fit the message")}
	}
	if !changes {
		return message, nil // the library may write space in another way
	}
	if len(after) > maxBody {
		return nil, &badPatch{"Failed to apply patch from webhook", fmt.Errorf("the message grew above %d bytes", maxBody)}
	}
	if err := mcp.Valid(after); err != nil {
		return nil, &badPatch{"Failed to apply patch from webhook", err}
	}
	return mcp.Lookup(after, "mcp_request"), nil
}

// patched is the library's work. An input that it did not foresee costs one
// message, not more.
func patched(patch jsonpatch.Patch, document []byte) (after []byte, ok bool) {
	defer func() {
		if recover() != nil {
			after, ok = nil, false
		}
	}()
	o := jsonpatch.NewApplyOptions()
	o.SupportNegativeIndices = false // RFC 6901 has none
	o.AccumulatedCopySizeLimit = maxBody
	o.EscapeHTML = false // what is not patched stays as it was written
	after, err := patch.ApplyWithOptions(document, o)
	return after, err == nil
}

// scoped demands a list of operations that touch nothing but what is inside
// mcp_request. It reports whether any of them may change something.
func scoped(patch []byte) (changes bool, err error) {
	if len(patch) == 0 || patch[0] != '[' {
		return false, &badPatch{"Malformed patch from webhook", errors.New("it is no list of operations")}
	}
	ops := mcp.Elements(patch)
	if len(ops) > maxOps {
		return false, &badPatch{"Invalid patch from webhook", fmt.Errorf("it has more than %d operations", maxOps)}
	}
	for i, op := range ops {
		if op[0] != '{' {
			return false, &badPatch{"Malformed patch from webhook", fmt.Errorf("operation %d is no object", i)}
		}
		paths := []string{"path"}
		value, what := mcp.Lookup(op, "value"), mcp.String(mcp.Lookup(op, "op"))
		changes = changes || what != "test"
		switch what {
		case "add", "replace", "test":
			if value == nil {
				return false, &badPatch{"Invalid patch from webhook", fmt.Errorf("operation %d has no value", i)}
			}
		case "move", "copy":
			paths = append(paths, "from")
		case "remove":
		default:
			return false, &badPatch{"Invalid patch from webhook", fmt.Errorf("operation %d is none of RFC 6902", i)}
		}
		for _, name := range paths {
			path := mcp.Lookup(op, name)
			if len(path) == 0 || path[0] != '"' {
				return false, &badPatch{"Invalid patch from webhook", fmt.Errorf("operation %d has no %s", i, name)}
			}
			if !strings.HasPrefix(mcp.String(path), "/mcp_request/") {
				return false, &badPatch{"Patch must be scoped to mcp_request", fmt.Errorf("operation %d", i)}
			}
		}
	}
	return changes, nil
}
