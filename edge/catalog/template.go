package catalog

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Bounds of templates. A template costs a match time in proportion to its
// expressions and the length of the URI.
const (
	maxTemplates   = 1000 // of one backend
	maxTemplate    = 2048 // bytes
	maxExpressions = 16
	maxURI         = 2048    // bytes of a URI that is matched against templates
	maxSteps       = 8 << 20 // of matching for one message: parts of templates times bytes
)

// template is a URI template (RFC 6570, levels 1 to 3; the modifiers of level 4
// are read and their limits not held), as far as is needed to find the URIs that
// can be expansions of it. It matches every expansion, and may match other URIs,
// which the backend refuses.
type template struct {
	backend string
	parts   []part
}

// part is literal text, or what an expression can expand to: nothing, or lead
// and then characters none of which is in without.
type part struct {
	text    string // of a literal
	open    bool   // an expression
	lead    string // what it starts with when it is not empty
	without string
}

// parseTemplate reads a URI template.
func parseTemplate(text string) (*template, error) {
	if len(text) > maxTemplate {
		return nil, errors.New("the template is too long")
	}
	t := new(template)
	expressions := 0
	for text != "" {
		at := strings.IndexAny(text, "{}")
		if at < 0 {
			at = len(text)
		}
		if at > 0 {
			t.parts = append(t.parts, part{text: text[:at]})
			text = text[at:]
			continue
		}
		end := strings.IndexByte(text, '}')
		if text[0] == '}' || end < 0 || strings.Contains(text[1:end], "{") {
			return nil, errors.New("the braces of the template do not match")
		}
		p, ok := expression(text[1:end])
		if !ok {
			return nil, errors.New("the template has an expression that RFC 6570 does not have")
		}
		if expressions++; expressions > maxExpressions {
			return nil, errors.New("the template has too many expressions")
		}
		t.parts = append(t.parts, p)
		text = text[end+1:]
	}
	return t, nil
}

// expression reads what is between braces (RFC 6570 §2.2 and §3.2).
func expression(text string) (part, bool) {
	operator := byte(0)
	if text != "" && strings.IndexByte("+#./;?&", text[0]) >= 0 {
		operator, text = text[0], text[1:]
	}
	several := strings.ContainsAny(text, ",*")
	for name := range strings.SplitSeq(text, ",") {
		name, _, _ = strings.Cut(strings.TrimSuffix(name, "*"), ":")
		if name == "" || strings.ContainsFunc(name, func(r rune) bool {
			return r >= 0x80 || !alphanumeric(byte(r)) && r != '_' && r != '.' && r != '%' && r != '-'
		}) {
			return part{}, false
		}
	}
	p := part{open: true}
	switch operator {
	case '+':
	case '#':
		p.lead = "#"
	case '.', ';':
		p.lead, p.without = string(operator), "/?#"
	case '/':
		p.lead, p.without = "/", "/?#"
		if several {
			p.without = "?#"
		}
	case '?', '&':
		p.lead, p.without = string(operator), "#"
	default:
		p.without = "/?#"
	}
	return p, true
}

// scheme reports whether the literal start of the template holds the scheme.
func (t *template) scheme() bool {
	at := strings.IndexByte(t.prefix(), ':')
	return at > 0
}

// prefix returns the text that every expansion starts with.
func (t *template) prefix() string {
	if len(t.parts) == 0 || t.parts[0].open {
		return ""
	}
	return t.parts[0].text
}

// likely reports whether the literals of the template are in the URI one after the other,
// which takes far less than to match it.
func (t *template) likely(uri string) bool {
	for _, p := range t.parts {
		if p.open {
			continue
		}
		at := strings.Index(uri, p.text)
		if at < 0 {
			return false
		}
		uri = uri[at+len(p.text):]
	}
	return true
}

// matches reports whether the URI can be an expansion of the template. here and
// next are room for len(uri)+1 places each.
func (t *template) matches(uri string, here, next []bool) bool {
	clear(here)
	here[0] = true
	for _, p := range t.parts {
		clear(next)
		some := false
		if !p.open {
			for at, can := range here {
				if can && strings.HasPrefix(uri[at:], p.text) {
					next[at+len(p.text)], some = true, true
				}
			}
		} else {
			inside := false // an expansion is under way
			for at := range here {
				if here[at] {
					next[at], some = true, true
				}
				if inside {
					next[at] = true
				}
				if at < len(uri) {
					begins := here[at] && (p.lead == "" || uri[at] == p.lead[0])
					goes := strings.IndexByte(p.without, uri[at]) < 0
					inside = begins && (p.lead != "" || goes) || inside && goes
				}
			}
		}
		if !some {
			return false
		}
		here, next = next, here
	}
	return here[len(uri)]
}

// matcher finds the templates that match a URI by their prefixes.
type matcher struct {
	lengths  []int // of prefixes, the longest first
	byPrefix map[string][]*template
}

func newMatcher(t *table) *matcher {
	m := &matcher{byPrefix: make(map[string][]*template)}
	lengths := make(map[int]bool)
	for _, text := range sorted(t.byName) {
		parsed, err := parseTemplate(text)
		if err != nil {
			continue // in bare lists alone, and there nothing hangs on it
		}
		parsed.backend = t.byName[text].Backend
		prefix := parsed.prefix()
		m.byPrefix[prefix] = append(m.byPrefix[prefix], parsed)
		lengths[len(prefix)] = true
	}
	m.lengths = slices.SortedFunc(maps.Keys(lengths), func(a, b int) int { return cmp.Compare(b, a) })
	return m
}

// backend returns the backend with a template that matches the URI. Of several it
// is the first in the order of the strategy priority; there is none if one of them
// is not in the order, or if matching would take more than maxSteps together with what was
// taken.
func (m *matcher) backend(r *Rules, uri string, taken *int) (string, bool) {
	if len(uri) > maxURI || len(m.lengths) == 0 {
		return "", false
	}
	var fits []*edge.Target
	room := make([]bool, 2*(len(uri)+1))
	here, next := room[:len(uri)+1], room[len(uri)+1:]
	for _, n := range m.lengths {
		if n > len(uri) {
			continue
		}
		for _, t := range m.byPrefix[uri[:n]] {
			if slices.ContainsFunc(fits, func(o *edge.Target) bool { return o.Backend == t.backend }) {
				continue
			}
			if *taken++; !t.likely(uri) {
				continue
			}
			if *taken += len(t.parts) * len(here); *taken > maxSteps {
				return "", false
			}
			if !t.matches(uri, here, next) {
				continue
			}
			fits = append(fits, &edge.Target{Backend: t.backend})
			if len(fits) > 1 && r.Conflicts != v1beta1.ConflictPriority {
				return "", false
			}
		}
	}
	switch len(fits) {
	case 0:
		return "", false
	case 1:
		return fits[0].Backend, true
	}
	if first := r.first(fits); first != nil {
		return first.Backend, true
	}
	return "", false
}
