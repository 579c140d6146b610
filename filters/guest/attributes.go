package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/sdk/abi"
)

// Limits on what programs say of one principal, as far as it is known where an
// attribute is set.
const (
	maxAttributes     = 32
	maxAttribute      = 1 << 10 // bytes of a value
	maxAttributeBytes = 8 << 10 // of all names and values
	maxAttributeName  = 64
)

// attributed is the version of the ABI since which set_attr sets an attribute.
// In guests made for an earlier one it writes a line of the log.
const attributed = 1<<16 | 1

// sets reports whether an operation of a program at a hook sets an attribute.
// At the end of a session there is nothing left to have one.
func sets(version uint32, h abi.Hook) bool { return version >= attributed && h != abi.OnSessionEnd }

// attributes returns the attributes that operations set: all of them, or none if
// one cannot be set. known are those that the principal has.
func (p *program) attributes(h abi.Hook, known edge.Attributes, ops []op) (edge.Attributes, error) {
	if !sets(p.guest.Version(), h) {
		return nil, nil
	}
	return attributesOf(known, ops)
}

func attributesOf(known edge.Attributes, ops []op) (set edge.Attributes, err error) {
	for i := range ops {
		if o := &ops[i]; o.kind == abi.OpSetAttr {
			if err := o.attribute(); err != nil {
				return nil, fmt.Errorf("set_attr: %w", err)
			}
			set = set.Set(o.name, string(o.raw))
		}
	}
	if set == nil {
		return nil, nil
	}
	switch all := known.With(set); {
	case len(all) > maxAttributes:
		return nil, fmt.Errorf("set_attr: more than %d attributes of one principal", maxAttributes)
	case all.Size() > maxAttributeBytes:
		return nil, fmt.Errorf("set_attr: more than %d bytes of attributes of one principal", maxAttributeBytes)
	}
	return set, nil
}

// attribute judges an attribute that is to be set.
func (o *op) attribute() error {
	switch {
	case o.name == "" || len(o.name) > maxAttributeName || strings.Trim(o.name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "":
		return fmt.Errorf("%.80q is no name of an attribute: use 1 to %d of a-z, 0-9 and _", o.name, maxAttributeName)
	case len(o.raw) > maxAttribute:
		return fmt.Errorf("attribute %s has %d bytes: at most %d", o.name, len(o.raw), maxAttribute)
	}
	return nil
}

// attribute adds the attributes of a principal to what a program is told.
func attribute(list []abi.Attr, all edge.Attributes) []abi.Attr {
	for i := range all {
		list = append(list, abi.Attr{Name: all[i].Name, JSON: all[i].Value})
	}
	return list
}

// claim is a pointer into the claims of a client that a program reads.
type claim struct {
	pointer string
	tokens  []string
}

// grantedClaims adds the pointers of a subscription, each of which has to be one that
// is granted, or to lead into what such a pointer leads to.
func (p *program) grantedClaims(h abi.Hook, list []claim, pointers []string) ([]claim, error) {
	for _, pointer := range pointers {
		tokens, err := tokensOf(pointer)
		if err != nil {
			return nil, fmt.Errorf("hook %v: claim %q: %w", h, pointer, err)
		}
		granted := false
		for _, g := range p.spec.Claims {
			granted = granted || pointer == g || strings.HasPrefix(pointer, g+"/")
		}
		if !granted {
			return nil, fmt.Errorf("hook %v: it wants the claim %s: name it in grants.claims, or use another %s", h, pointer, p.spec.instead("script", "module"))
		}
		list = append(list, claim{pointer, tokens})
	}
	return list, nil
}

// errKeepsClaims is the error for a program whose answers about credentials are
// kept for several clients, and depend on the claims of one.
var errKeepsClaims = errors.New("hook outgoing_auth: it wants claims, and its answers are kept (cache_ms) for clients whose claims it does not see: keep none, or set an attribute in map_identity")

// claimed appends the values that claims lead to, as JSON text; nil for one that
// is not there.
func claimed(list [][]byte, claims []claim, id *edge.Identity) [][]byte {
	for _, c := range claims {
		var text []byte
		if id != nil {
			if v, ok := claimAt(id.Claims, c.tokens); ok {
				text, _ = json.Marshal(v) // a claim was JSON, or is names that a program gave
			}
		}
		list = append(list, text)
	}
	return list
}

// claimAt returns the value that tokens lead to in claims.
func claimAt(claims map[string]any, tokens []string) (any, bool) {
	var v any = claims
	for _, token := range tokens {
		switch at := v.(type) {
		case map[string]any:
			next, ok := at[token]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, ok := mcp.ArrayIndex(token)
			if !ok || i >= len(at) {
				return nil, false
			}
			v = at[i]
		case []string:
			i, ok := mcp.ArrayIndex(token)
			if !ok || i >= len(at) {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
	}
	return v, true
}
