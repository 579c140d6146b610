package catalog

import (
	"fmt"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// prompt is a prompt while the rules are applied to it.
type prompt struct {
	target *edge.Target
	raw    []byte
	down   bool
}

// prompts makes the table of prompts. Their names get the prefix of their backend,
// except those of backends in the order of the strategy priority: these keep their
// names, and of two equal names the first backend in the order has it. The characters
// of their names are not restricted.
func (t *table) prompts(r *Rules) {
	var all []prompt
	byName := make(map[string][]*edge.Target)
	for _, s := range t.from {
		known := make(map[string]bool, len(s.list.Items))
		for i, raw := range s.list.Items {
			original := t.read(s.backend, raw, "name", known)
			program := s.list.override(i)
			if original == "" || program.Hide {
				continue
			}
			raw, ok := t.checked(r, s.backend, original, raw)
			if !ok {
				continue
			}
			name := original
			put(&name, program.Name)
			if s.backend != "" && !r.keepsPrompts(s.backend) {
				name = r.prefixed(s.backend, name)
			}
			target := &edge.Target{Backend: s.backend, Thing: edge.Prompt, Name: name, Original: original}
			all = append(all, prompt{target, raw, s.list.Down})
			byName[name] = append(byName[name], target)
		}
	}
	for _, p := range all {
		f := Finding{Backend: p.target.Backend, Original: p.target.Original, Name: p.target.Name}
		if group := byName[p.target.Name]; len(group) > 1 {
			winner := r.first(group)
			switch {
			case winner == nil:
				f.Reason, f.Why = SameName, "different prompts end up with one name"
				for _, o := range group {
					if o != p.target && len(f.With) < maxWith {
						f.With = append(f.With, clip(Whole(o.Backend, o.Original)))
					}
				}
				t.found(f)
				continue
			case winner != p.target:
				f.Reason, f.Why = Lost, "the name is that of "+winner.Backend+", which comes first"
				t.found(f)
				continue
			}
		}
		d := rewrite{}
		if p.target.Name != p.target.Original {
			d.name = p.target.Name
		}
		t.advertise(p.target, d.apply(p.raw), p.down)
	}
}

func (r *Rules) keepsPrompts(backend string) bool {
	return r.Conflicts == "" || r.Conflicts == v1beta1.ConflictPriority && r.rank(backend) >= 0
}

// first returns the target that wins a name: the edge's own, else that of the
// first backend in the order if all of them are in it, else nil.
func (r *Rules) first(group []*edge.Target) *edge.Target {
	var first *edge.Target
	for _, t := range group {
		if t.Backend == "" {
			return t
		}
		if r.Conflicts != v1beta1.ConflictPriority || r.rank(t.Backend) < 0 {
			return nil
		}
		if first == nil || r.rank(t.Backend) < r.rank(first.Backend) {
			first = t
		}
	}
	return first
}

// uris makes the table of resources or templates. They keep their URIs; of
// several backends with one URI, the first by name has it.
func (t *table) uris(r *Rules, member string) {
	for _, s := range t.from {
		known := make(map[string]bool, len(s.list.Items))
		for i, raw := range s.list.Items {
			uri := t.read(s.backend, raw, member, known)
			if uri == "" || s.list.override(i).Hide {
				continue
			}
			raw, ok := t.checked(r, s.backend, uri, raw)
			if !ok {
				continue
			}
			f := Finding{Backend: s.backend, Original: uri}
			if first := t.byName[uri]; first != nil {
				f.Reason, f.Why = Lost, fmt.Sprintf("the URI is that of %s, which comes first by name", first.Backend)
				t.found(f)
				continue
			}
			if t.thing == edge.Template && r.Conflicts != "" {
				if parsed, err := parseTemplate(uri); len(known) > maxTemplates {
					f.Reason, f.Why = Claims, fmt.Sprintf("the backend has more than %d templates", maxTemplates)
				} else if err != nil {
					f.Reason, f.Why = Malformed, err.Error()
				} else if !parsed.scheme() {
					f.Reason, f.Why = Claims, "the template has no scheme of its own and would stand for the URIs of all backends"
				}
				if f.Reason != "" {
					t.found(f)
					continue
				}
			}
			t.advertise(&edge.Target{Backend: s.backend, Thing: t.thing, Name: uri, Original: uri}, raw, s.list.Down)
		}
	}
}
