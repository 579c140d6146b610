package v1beta1

import (
	"encoding/base64"
	"net"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The bounds of a filter's limits.
const (
	maxFilterTimeout = time.Minute
	maxFilterInline  = 1 << 20 // bytes of a module, before base64
)

// Validate returns everything that is wrong with the object alone. The program
// itself is judged when it is loaded.
func (o *EdgeFilter) Validate() field.ErrorList {
	f := judged(o)
	s, p := &o.Spec, field.NewPath("spec")
	f.filterSource(p.Child("source"), s.Type, &s.Source)
	if s.Source.URL != "" && s.SHA256 == "" {
		f.required(p.Child("sha256"), "what is fetched is known by its digest alone")
	}
	if l := s.Limits; l != nil {
		p := p.Child("limits")
		if l.Timeout.Std() > maxFilterTimeout {
			f.invalid(p.Child("timeout"), string(l.Timeout), "must be at most "+maxFilterTimeout.String())
		}
		for _, v := range []variant{
			{"wasm", "memory", l.Memory != ""},
			{"wasm", "instances", l.Instances != nil},
			{"wasm", "isolation", l.Isolation != ""},
		} {
			if v.there && v.typ != string(s.Type) && !f.has(field.NewPath("spec", "type")) {
				f.forbidden(p.Child(v.name), "used only when type is "+v.typ)
			}
		}
	}
	if g := s.Grants; g != nil {
		p := p.Child("grants")
		if _, there := g.Keys[""]; there {
			f.required(p.Child("keys").Key(""), "a key has a name")
		}
		for i, host := range g.HTTP {
			name, plain := strings.CutPrefix(host, "http://")
			if f.host(p.Child("http").Index(i), name); plain && name == "" {
				f.invalid(p.Child("http").Index(i), host, "must name a host")
			}
		}
	}
	return f.list
}

func (f *faults) filterSource(p *field.Path, typ FilterType, s *FilterSource) {
	given := 0
	for _, there := range []bool{s.Inline != "", s.Path != "", s.ConfigMapRef != nil, s.URL != ""} {
		if there {
			given++
		}
	}
	switch {
	case given == 0:
		f.required(p, "one of inline, path, configMapRef and url must be set")
	case given > 1:
		f.forbidden(p, "only one of inline, path, configMapRef and url may be set")
	}
	if typ == FilterWasm {
		f.module(p.Child("inline"), s.Inline)
	} else {
		f.atMost(p.Child("inline"), s.Inline, maxScript)
	}
	if strings.Contains(s.Path, "\x00") {
		f.hidden(p.Child("path"), "must not hold a null character")
	}
}

// module demands base64 of a module that is not too large. Nothing of it is
// shown.
func (f *faults) module(p *field.Path, text string) {
	if text == "" {
		return
	}
	b, err := base64.StdEncoding.DecodeString(text)
	switch {
	case err != nil:
		f.hidden(p, "must be a module in base64 (RFC 4648 §4)")
	case len(b) > maxFilterInline:
		f.add(field.TooLong(p, "", maxFilterInline))
	}
}

// host demands a host name or address, with an optional port, unless empty.
func (f *faults) host(p *field.Path, s string) {
	if s == "" {
		return
	}
	host, ok := s, true
	if h, port, err := net.SplitHostPort(s); err == nil {
		host, ok = h, validPort(port)
	}
	if !ok || net.ParseIP(strings.Trim(host, "[]")) == nil && len(validation.IsDNS1123Subdomain(strings.ToLower(host))) > 0 {
		f.invalid(p, showURL(s), "must be a host, or host:port, without wildcards")
	}
}
