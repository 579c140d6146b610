// Package guest asks programs about the messages of a server: the EdgeFilters
// that its filterRefs name, in their order. They are modules in WebAssembly
// (package wasm) or texts in Starlark (filters/guest/starlark), and nothing
// here but an engine knows which. Of the edge's packages only this one knows
// either.
//
// Parse checks a filter without running it. A Cache compiles modules off the
// path of requests and keeps programs open across reloads. The programs of a
// server become an edge.Guest, whose functions the edge calls at each phase
// of a message.
package guest

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// Spec is a filter of a plan with its defaults filled in. One of Module, Path
// and URL locates its program.
type Spec struct {
	Name      string
	Script    bool   `json:",omitempty"` // the program is a text in Starlark
	Module    []byte `json:",omitempty"` // the program itself
	Path      string `json:",omitempty"` // of the program's file
	URL       string `json:",omitempty"` // https; SHA256 is set
	SHA256    string `json:",omitempty"` // of the program, in hexadecimal; "" accepts any
	Config    string `json:",omitempty"` // JSON text of an object; "" for none
	Mode      v1beta1.FilterMode
	Match     v1beta1.FilterMatch
	OnError   v1beta1.FilterFailure
	Isolation v1beta1.FilterIsolation
	Timeout   time.Duration                // of one call
	Fuel      int64                        // of one call
	Memory    int64                        `json:",omitempty"` // bytes of one instance; 0 lets the program decide
	Output    int64                        // bytes that one call may return
	Instances int                          `json:",omitempty"` // 0 for a number that suits the processors
	Grants    []string                     `json:",omitempty"`
	Keys      map[string]v1beta1.SecretRef `json:",omitempty"` // of the grant keys

	Credentials []*outgoing.Spec `json:",omitempty"` // of the grant credentials, by name
	HTTP        []string         `json:",omitempty"` // of the grant http: HOST or HOST:PORT, after http:// if without TLS
	Tools       []string         `json:",omitempty"` // of the grant tools: globs of advertised names
	Claims      []string         `json:",omitempty"` // of the grant claims: JSON pointers
}

// FromObject makes the spec of a filter whose defaults are filled in. module
// is the content of its ConfigMap, path the resolved path of its file, which
// the manifest writes relative to itself, and credentials are those it is
// granted.
func FromObject(o *v1beta1.EdgeFilter, module []byte, path string, credentials []*outgoing.Spec) Spec {
	s := &o.Spec
	spec := Spec{
		Name: o.Name, Module: module, Path: path, URL: s.Source.URL, SHA256: s.SHA256, Config: string(s.Config), Mode: s.Mode, OnError: s.OnError,
	}
	switch {
	case s.Type == v1beta1.FilterStarlark:
		if spec.Script = true; s.Source.Inline != "" {
			spec.Module = []byte(s.Source.Inline)
		}
	case s.Source.Inline != "":
		spec.Module, _ = base64.StdEncoding.DecodeString(s.Source.Inline) // Validate reports what is wrong with it
	}
	if s.Match != nil {
		spec.Match = *s.Match
	}
	if l := s.Limits; l != nil {
		spec.Isolation, spec.Timeout, spec.Memory, spec.Output = l.Isolation, l.Timeout.Std(), l.Memory.Units(), l.Output.Units()
		if l.Fuel != nil {
			spec.Fuel = *l.Fuel
		}
		if l.Instances != nil {
			spec.Instances = int(*l.Instances)
		}
	}
	if g := s.Grants; g != nil {
		for _, one := range []struct {
			name    string
			granted bool
		}{
			{abi.GrantRandom, g.Random}, {abi.GrantKV, g.KV}, {abi.GrantMetrics, g.Metrics}, {abi.GrantKeys, len(g.Keys) > 0}, {abi.GrantIdentity, g.Identity},
			{abi.GrantCredentials, len(g.Credentials) > 0}, {abi.GrantHTTP, len(g.HTTP) > 0}, {abi.GrantTools, len(g.Tools) > 0}, {abi.GrantEvents, g.Events},
			{abi.GrantClaims, len(g.Claims) > 0},
		} {
			if one.granted {
				spec.Grants = append(spec.Grants, one.name)
			}
		}
		spec.Keys, spec.Credentials, spec.HTTP, spec.Tools, spec.Claims = g.Keys, credentials, g.HTTP, g.Tools, g.Claims
	}
	return spec
}

// Part is a filter that Parse has accepted. It is immutable.
type Part struct{ spec Spec }

// Reader returns the module in a file.
type Reader func(path string) ([]byte, error)

// Parse checks a filter: the whole program if it is at hand, the grants it
// needs, and the configuration against the module's own schema. path is that
// of the object's spec, source that of the field that says where the module
// is. read reads a module in a file; nil leaves it for Load. A module behind a
// URL is checked when it is opened, and one in a file that is off never.
//
// What a module shows only when it is compiled and started is seen by Open:
// that the engine takes it, that it starts within its limits, that it accepts
// its configuration, and whether its subscriptions ask for what it may have. A
// script shows all of that here.
func Parse(spec Spec, read Reader, path, source *field.Path) (*Part, field.ErrorList) {
	var wrong field.ErrorList
	if n := len(spec.Match.Methods) + len(spec.Match.Tools) + len(spec.Match.Backends); n > maxGlobs {
		wrong = append(wrong, field.TooMany(path.Child("match"), n, maxGlobs))
	}
	if n := len(spec.HTTP); n > maxGlobs {
		wrong = append(wrong, field.TooMany(path.Child("grants", "http"), n, maxGlobs))
	}
	if n := len(spec.Tools); n > maxGlobs {
		wrong = append(wrong, field.TooMany(path.Child("grants", "tools"), n, maxGlobs))
	}
	if n := len(spec.Claims); n > maxGlobs {
		wrong = append(wrong, field.TooMany(path.Child("grants", "claims"), n, maxGlobs))
	}
	for i, pointer := range spec.Claims {
		if _, err := tokensOf(pointer); err != nil || pointer == "" {
			wrong = append(wrong, field.Invalid(path.Child("grants", "claims").Index(i), pointer, "must be the JSON pointer of a claim, such as /department or /realm_access/roles"))
		}
	}
	module := spec.Module
	if read != nil && spec.Path != "" && !spec.off() {
		var err error
		if module, err = read(spec.Path); err != nil {
			wrong = append(wrong, field.Invalid(source, field.OmitValueType{}, spec.unread(err)))
		} else if len(module) == 0 {
			wrong = append(wrong, field.Invalid(source, field.OmitValueType{}, spec.Path+": the file is empty: "+spec.instead("write the script", "build the module again")))
		}
	}
	if len(module) > 0 {
		wrong = append(wrong, spec.judge(module, path, source)...)
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	return &Part{spec}, nil
}

// instead is a text for a script or one for a module.
func (s *Spec) instead(script, module string) string {
	if s.Script {
		return script
	}
	return module
}

// unread says why a program cannot be read, and what to do.
func (s *Spec) unread(err error) string {
	var at *fs.PathError
	switch {
	case errors.As(err, &at) && errors.Is(err, fs.ErrNotExist):
		return at.Path + ": there is no such file: " + s.instead("write the script", "build the module (`weir plugin build`)") + ", or correct the path"
	case errors.As(err, &at):
		return at.Path + ": " + at.Err.Error() + ": name the file of a " + s.instead("script", "module") + " that can be read"
	}
	return err.Error()
}

// maxGlobs is how many globs a match may have.
const maxGlobs = 256

// fault is an error in a program and the field of its object to blame.
type fault struct {
	at   string // "source", "sha256", "grants", "limits.memory" or "config"
	what string
}

func (f fault) Error() string { return f.at + ": " + f.what }

// judge returns the errors of a program, each with its field.
func (s *Spec) judge(binary []byte, path, source *field.Path) field.ErrorList {
	var wrong field.ErrorList
	for _, f := range s.faults(binary) {
		at := source
		switch f.at {
		case "sha256", "grants", "config":
			at = path.Child(f.at)
		case "limits.memory":
			at = path.Child("limits", "memory")
		}
		wrong = append(wrong, field.Invalid(at, field.OmitValueType{}, f.what))
	}
	return wrong
}

// faults is judge without paths.
func (s *Spec) faults(binary []byte) []fault {
	if s.Script {
		return s.scriptFaults(binary)
	}
	about, err := wasm.Check(binary)
	if err != nil {
		return []fault{{"source", err.Error()}}
	}
	return s.misfits(about)
}

// misfits lists where a filter and its program disagree.
func (s *Spec) misfits(about *wasm.About) []fault {
	var all []fault
	if s.SHA256 != "" && s.SHA256 != about.Digest {
		all = append(all, fault{"sha256", fmt.Sprintf("the module's digest is %s: use the module that is meant, or correct the digest", about.Digest)})
	}
	optional := optionalGrants(about.Manifest)
	for _, n := range about.Needs {
		if !s.granted(n.Grant) && !slices.Contains(optional, n.Grant) {
			all = append(all, fault{"grants", fmt.Sprintf("the module calls %s: grant %s, or use another module", n.Function, n.Grant)})
		}
	}
	if limit := cmp.Or(s.Memory, int64(about.Memory)); int64(about.Minimum) > limit {
		all = append(all, fault{"limits.memory", fmt.Sprintf("the module starts with %d bytes, and its limit is %d: allow at least as many", about.Minimum, limit)})
	}
	if err := Conforms(about.Manifest, s.Config); err != nil {
		all = append(all, fault{"config", err.Error()})
	}
	return all
}

// off reports whether the filter is left out.
func (s *Spec) off() bool { return s.Mode == v1beta1.FilterOff }
