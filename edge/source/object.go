package source

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/near"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// kinds returns a maker of an empty object for every kind that a manifest may
// hold, and the apiVersion of each.
func kinds() map[string]kind {
	out := map[string]kind{
		"Secret":    {"v1", func() metav1.Object { return &compile.Secret{} }},
		"ConfigMap": {"v1", func() metav1.Object { return &compile.ConfigMap{} }},
	}
	for _, k := range v1beta1.Kinds() {
		out[k.Name] = kind{v1beta1.APIVersion, func() metav1.Object { return k.New() }}
	}
	return out
}

type kind struct {
	apiVersion string
	new        func() metav1.Object
}

// object turns a document into an object of the set.
func (s *Set) object(file string, d *document) {
	var (
		o   compile.Object
		ref compile.Ref
	)
	switch {
	case d.root == nil:
	case d.root.kind != mapping:
		d.fault(d.root, "", compile.ReasonWrongType, "a document is a mapping with apiVersion, kind, metadata and spec, not %s", d.root.describe())
	case d.root.has("kind"):
		o = s.manifest(d)
		ref.Kind = cut(d.root.get("kind").str(), 80)
		ref.Name = cut(d.root.get("metadata").get("name").str(), 80)
	case d.root.has("apiVersion") || d.root.has("spec"):
		d.fault(d.root, "kind", compile.ReasonUnknownKind, "required: say what the object is, such as VirtualMCPServer")
	default:
		o = s.config(d)
	}
	if o.Value == nil {
		s.Incomplete = true
	} else {
		ref = o.Ref()
		o.Origin = fmt.Sprintf("%s:%d", file, d.root.line)
		o.Partial = len(d.faults) > 0
		prefix := ""
		if o.Config {
			prefix = "spec.config."
		}
		o.Unread = d.unread(prefix)
		s.Objects = append(s.Objects, o)
		p := place{file: file, root: d.root, config: o.Config}
		for _, f := range d.faults {
			if f.reason == compile.ReasonWrongType {
				p.faulty = append(p.faulty, f.path)
			}
		}
		s.places = append(s.places, p)
	}
	for _, f := range d.faults {
		s.findings = append(s.findings, Finding{
			File: file, Line: f.line, Column: f.column,
			Finding: compile.Finding{Index: -1, Object: ref, Path: f.path, Reason: f.reason, Message: f.message},
		})
	}
}

// manifest decodes a document with a kind. It returns no value when the kind
// cannot even be guessed.
func (s *Set) manifest(d *document) compile.Object {
	known := kinds()
	at := d.root.get("kind")
	name := at.str()
	k, ok := known[name]
	if !ok {
		names := slices.Sorted(maps.Keys(known))
		word, hint := near.Hint(name, names)
		if k, ok := v1beta1.KindCalled(name); ok {
			word, hint = k.Name, "which stands for "+k.Name+" on a command line alone: write kind: "+k.Name
		}
		switch {
		case name == "":
			d.fault(at, "kind", compile.ReasonUnknownKind, "want the name of a kind, such as VirtualMCPServer, got %s", at.describe())
		case name == "List" || strings.HasSuffix(name, "List") && known[strings.TrimSuffix(name, "List")].new != nil:
			d.fault(at, "kind", compile.ReasonUnknownKind, "a list of objects is not read: write each object as a document of its own, with --- between them")
		case word != "":
			d.fault(at, "kind", compile.ReasonUnknownKind, "unknown kind %q, %s", cut(name, 80), hint)
			k, ok = known[word], true
		default:
			d.fault(at, "kind", compile.ReasonUnknownKind, "unknown kind %q: the kinds are %s", cut(name, 80), strings.Join(names, ", "))
		}
	}
	if !ok {
		return compile.Object{}
	}
	if version := d.root.get("apiVersion"); version.null() {
		d.fault(d.root, "apiVersion", compile.ReasonUnknownKind, "required: write apiVersion: %s", k.apiVersion)
	} else if version.str() != k.apiVersion {
		d.fault(version, "apiVersion", compile.ReasonUnknownKind, "%s is not the version of this kind: write apiVersion: %s", quoted(version), k.apiVersion)
	}
	o := k.new()
	t := reflect.TypeOf(o).Elem()
	_, secret := o.(*compile.Secret)
	dec := &decoder{doc: d, kind: t, secret: secret, brief: len(s.findings) > maxFaults}
	dec.decode(d.root, reflect.ValueOf(o).Elem(), "")
	if secret {
		d.root.forget()
	}
	return compile.Object{Value: o}
}

// config decodes a document without a kind: the spec.config of a server that is
// called as the document is.
func (s *Set) config(d *document) compile.Object {
	o := &v1beta1.VirtualMCPServer{}
	o.APIVersion, o.Kind = v1beta1.APIVersion, "VirtualMCPServer"
	o.Spec.Config = &v1beta1.ServerConfig{}
	known := slices.ContainsFunc(d.root.members, func(m member) bool {
		return slices.ContainsFunc(compile.Fields(reflect.TypeFor[v1beta1.ServerConfig]()), func(f compile.Field) bool { return f.Name == m.key })
	})
	if !known {
		d.fault(d.root, "", compile.ReasonUnknownKind, "neither an object (it has no kind) nor the configuration of a server (it has no field of one): write apiVersion and kind")
		return compile.Object{}
	}
	dec := &decoder{doc: d, kind: reflect.TypeFor[v1beta1.VirtualMCPServer](), prefix: "spec.config.", brief: len(s.findings) > maxFaults}
	dec.decode(d.root, reflect.ValueOf(o.Spec.Config).Elem(), "")
	o.Name = objectName(o.Spec.Config.Name)
	return compile.Object{Value: o, Config: true}
}

// objectName makes the name of an object out of that of a configuration, which
// may be any text: what no name of an object may hold becomes a dash.
func objectName(name string) string {
	var b strings.Builder
	for _, c := range strings.ToLower(name) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' {
			b.WriteRune(c)
		} else if !strings.HasSuffix(b.String(), "-") {
			b.WriteByte('-')
		}
	}
	return strings.Trim(cut(b.String(), 63), "-.…")
}

func (d *document) fault(n *node, path, reason, format string, args ...any) {
	if len(d.faults) < maxFaults {
		d.faults = append(d.faults, fault{line: n.line, column: n.column, path: path, reason: reason, message: fmt.Sprintf(format, args...)})
	}
}

// quoted shows a scalar in a message.
func quoted(n *node) string {
	if n.str() == "" {
		return n.describe()
	}
	return fmt.Sprintf("%q", cut(n.str(), 80))
}

// cut keeps the start of text that is too long for a message.
func cut(s string, limit int) string {
	if len(s) > limit {
		return strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}
