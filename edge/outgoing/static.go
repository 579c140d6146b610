package outgoing

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// static attaches headers whose values do not depend on who calls.
type static []header

// header is one of them. Its value is in one place.
type header struct {
	name   string
	bearer bool // the value is a token, which Bearer precedes
	source
}

// source is where a value is: here, in a variable of the environment, or in a
// secret.
type source struct {
	value edge.Secret
	env   string
	ref   v1beta1.SecretRef
}

// String says where a value comes from, and never what it is.
func (s source) String() string {
	switch {
	case s.env != "":
		return "environment variable " + s.env
	case s.ref.Name != "":
		return "secret " + s.ref.Name + "/" + s.ref.Key
	}
	return "value"
}

func (s static) Names() []string {
	var names []string
	for _, h := range s {
		names = append(names, h.name)
	}
	return names
}

func (s static) Personal() bool { return false }

// Format writes the names for every verb: no way of printing shows a value.
func (s static) Format(f fmt.State, _ rune) { show(f, s) }

// Open fetches every value once, so that one that is missing or cannot stand in
// a header is found when the plan opens. Values in secrets are fetched again
// for each request: a secret that was changed is used by the next one.
func (s static) Open(env edge.Env) (Attach, error) {
	open := make([]opened, len(s))
	for i, h := range s {
		o := &open[i]
		o.header = h
		switch {
		case h.env != "":
			value, ok := os.LookupEnv(h.env)
			if !ok || value == "" {
				return nil, fmt.Errorf("outgoing: header %s: %s is not set", h.name, h.source)
			}
			line, err := h.line(edge.Secret(value))
			if err != nil {
				return nil, err
			}
			o.fixed = line
		case h.ref.Name != "":
			if o.secrets = env.Secrets; o.secrets == nil {
				return nil, fmt.Errorf("outgoing: header %s: %s: there are no secrets here", h.name, h.source)
			}
			if _, err := o.current(context.Background()); err != nil {
				return nil, err
			}
		default:
			line, err := h.line(h.value)
			if err != nil {
				return nil, err
			}
			o.fixed = line
		}
	}
	return func(ctx context.Context, _ *edge.Outbound, set func(string, edge.Secret)) (uint64, error) {
		var all uint64
		for i := range open {
			o := &open[i]
			value, generation := o.fixed, uint64(1)
			if o.secrets != nil {
				last, err := o.current(ctx)
				if err != nil {
					return 0, unavailable(err)
				}
				value, generation = last.line, last.generation
			}
			set(o.name, value)
			all = edge.Generations(all, generation)
		}
		return all, nil
	}, nil
}

// opened is a header whose value is at hand or in env.Secrets.
type opened struct {
	header
	fixed   edge.Secret
	secrets edge.Secrets
	last    atomic.Pointer[made]
}

// made caches the header value last made of a secret, which rarely changes.
type made struct {
	from, line edge.Secret
	generation uint64 // how many there have been
}

func (o *opened) current(ctx context.Context) (*made, error) {
	value, err := o.secrets.Secret(ctx, o.ref.Name, o.ref.Key)
	if err != nil {
		return nil, fmt.Errorf("outgoing: header %s: %w", o.name, err)
	}
	for {
		last := o.last.Load()
		if last != nil && last.from == value {
			return last, nil
		}
		line, err := o.line(value)
		if err != nil {
			return nil, err
		}
		next := &made{from: value, line: line, generation: 1}
		if last != nil {
			next.generation = last.generation + 1
		}
		if o.last.CompareAndSwap(last, next) {
			return next, nil
		}
	}
}

// line is the header's value as it goes on the wire. One line break at the end,
// which editors leave in files, is not part of it.
func (h *header) line(value edge.Secret) (edge.Secret, error) {
	text := string(value)
	if h.env != "" || h.ref.Name != "" {
		text = string(value.Trimmed())
	}
	what := unfit(text)
	if what == "" && h.bearer && strings.ContainsAny(text, " \t") {
		what = "it holds a blank: a token alone is wanted, without Bearer"
	}
	if what != "" {
		return "", fmt.Errorf("outgoing: header %s: %s: %s", h.name, h.source, what)
	}
	if h.bearer {
		text = "Bearer " + text
	}
	return edge.Secret(text), nil
}

// reader reads the manifests and collects what is wrong with them.
type reader struct {
	headers static
	made    Strategy // of a type that is not made of headers alone; nil for those
	errs    field.ErrorList
}

func (r *reader) strategy() (Strategy, field.ErrorList) {
	if len(r.errs) > 0 {
		return nil, r.errs
	}
	if r.made != nil {
		return r.made, nil
	}
	return r.headers, nil
}

func (r *reader) add(e *field.Error) { r.errs = append(r.errs, e) }

func (r *reader) required(path *field.Path) { r.add(field.Required(path, "")) }

func (r *reader) unknown(path *field.Path, got any, known ...any) {
	var names []string
	for _, k := range known {
		names = append(names, fmt.Sprint(k))
	}
	r.add(field.NotSupported(path.Child("type"), fmt.Sprint(got), names))
}

// ref demands a reference to a secret.
func (r *reader) ref(path *field.Path, ref v1beta1.SecretRef) source {
	if ref.Name == "" {
		r.required(path.Child("name"))
	}
	if ref.Key == "" {
		r.required(path.Child("key"))
	}
	return source{ref: ref}
}

// value demands a value that can stand in a header. It may be a secret, so that
// it is never shown.
func (r *reader) value(path *field.Path, value string) source {
	if what := unfit(value); what != "" {
		r.add(field.Invalid(path, "(hidden)", what))
	}
	return source{value: edge.Secret(value)}
}

// header adds a header, whose name nobody has set before.
func (r *reader) header(path *field.Path, name string, from source) {
	switch {
	case name == "":
		r.required(path)
	case !IsName(name):
		r.add(field.Invalid(path, "(hidden)", "must be the name of a header (RFC 9110 §5.1)"))
	case Restricted(name):
		r.add(field.Forbidden(path, name+" is set by the edge itself"))
	case slices.ContainsFunc(r.headers, func(h header) bool { return edge.SameHeader(h.name, name) }):
		r.add(field.Duplicate(path, name))
	}
	r.headers = append(r.headers, header{name: name, source: from})
}

// bearer adds the header of a bearer token (RFC 6750 §2.1).
func (r *reader) bearer(from source) {
	r.headers = append(r.headers, header{name: "Authorization", bearer: true, source: from})
}
