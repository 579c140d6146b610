package v1beta1

import (
	"encoding/base64"
	"net"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The bounds of a filter's limits.
const (
	maxFilterTimeout = time.Minute
	minFilterMemory  = 64 << 10 // one page of WebAssembly memory
	maxFilterMemory  = 64 << 20 // wasm/ABI.md, exports
	maxFilterOutput  = 64 << 20
	maxFilterInline  = 1 << 20 // bytes of a module, before base64
)

// Validate returns everything that is wrong with the object alone. The program
// itself is judged when it is loaded.
func (o *EdgeFilter) Validate() field.ErrorList {
	f := &faults{}
	f.metadata(o)
	s, p := &o.Spec, field.NewPath("spec")
	known := oneOf(f, p.Child("type"), s.Type, FilterWasm, FilterStarlark)
	f.filterSource(p.Child("source"), s.Type, &s.Source)
	f.matches(p.Child("sha256"), s.SHA256, digestPattern, "must be 64 lower-case hexadecimal digits")
	f.object(p.Child("config"), s.Config)
	if m := s.Match; m != nil {
		p := p.Child("match")
		f.strings(p.Child("methods"), m.Methods)
		f.strings(p.Child("tools"), m.Tools)
		f.strings(p.Child("backends"), m.Backends)
	}
	if s.Source.URL != "" && s.SHA256 == "" {
		f.required(p.Child("sha256"), "what is fetched is known by its digest alone")
	}
	oneOf(f, p.Child("mode"), s.Mode, FilterEnforce, FilterObserve, FilterOff)
	oneOf(f, p.Child("onError"), s.OnError, FilterDeny, FilterContinue)
	if l := s.Limits; l != nil {
		p := p.Child("limits")
		f.duration(p.Child("timeout"), l.Timeout, positive)
		if l.Timeout.Std() > maxFilterTimeout {
			f.invalid(p.Child("timeout"), string(l.Timeout), "must be at most "+maxFilterTimeout.String())
		}
		atLeastPtr(f, p.Child("fuel"), l.Fuel, 1)
		f.quantity(p.Child("memory"), l.Memory, minFilterMemory, maxFilterMemory)
		f.quantity(p.Child("output"), l.Output, 1, maxFilterOutput)
		withinPtr(f, p.Child("instances"), l.Instances, 1, 1024)
		if l.Isolation != "" {
			oneOf(f, p.Child("isolation"), l.Isolation, IsolationShared, IsolationPerRequest, IsolationPerSession)
		}
		for _, v := range []variant{
			{"wasm", "memory", l.Memory != ""},
			{"wasm", "instances", l.Instances != nil},
			{"wasm", "isolation", l.Isolation != ""},
		} {
			if known && v.there && v.typ != string(s.Type) {
				f.forbidden(p.Child(v.name), "used only when type is "+v.typ)
			}
		}
	}
	if g := s.Grants; g != nil {
		p := p.Child("grants")
		for _, name := range sorted(g.Keys) {
			r := g.Keys[name]
			if name == "" {
				f.required(p.Child("keys").Key(name), "a key has a name")
			}
			f.secret(p.Child("keys").Key(name), &r)
		}
		f.refs(p.Child("credentials"), g.Credentials)
		f.strings(p.Child("http"), g.HTTP)
		for i, host := range g.HTTP {
			name, plain := strings.CutPrefix(host, "http://")
			if f.host(p.Child("http").Index(i), name); plain && name == "" {
				f.invalid(p.Child("http").Index(i), host, "must name a host")
			}
		}
		f.strings(p.Child("tools"), g.Tools)
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
	if s.URL != "" {
		f.web(p.Child("url"), s.URL, "https")
	}
	if strings.Contains(s.Path, "\x00") {
		f.hidden(p.Child("path"), "must not hold a null character")
	}
	if r := s.ConfigMapRef; r != nil {
		f.configMap(p.Child("configMapRef"), r.Name, r.Key)
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
		n, err := strconv.ParseUint(port, 10, 16)
		host, ok = h, err == nil && n > 0
	}
	if !ok || net.ParseIP(strings.Trim(host, "[]")) == nil && len(validation.IsDNS1123Subdomain(strings.ToLower(host))) > 0 {
		f.invalid(p, showURL(s), "must be a host, or host:port, without wildcards")
	}
}
