package compile

import (
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/guest"
)

// filters plans the programs that a server's messages pass, in the order of
// spec.filterRefs and then of spec.config.filterRefs.
func (c *compiler) filters(o *object, s *v1beta1.VirtualMCPServer, config *v1beta1.ServerConfig) []guest.Spec {
	var specs []guest.Spec
	seen := map[string]bool{}
	for _, list := range []struct {
		path string
		refs []v1beta1.NameRef
	}{{"spec.filterRefs", s.Spec.FilterRefs}, {"spec.config.filterRefs", config.FilterRefs}} {
		for i, ref := range list.refs {
			if seen[ref.Name] {
				if path := fmt.Sprintf("%s[%d].name", list.path, i); !o.wrong[path] {
					c.fail(o, path, ReasonDuplicate, "%q is named before: a message passes a filter once", brief(ref.Name))
				}
				continue
			}
			seen[ref.Name] = true
			if of := c.byRef[Ref{"EdgeFilter", ref.Name}]; of != nil { // that it is not there was said where it is referred to
				if f, ok := of.value.(*v1beta1.EdgeFilter); ok {
					specs = append(specs, c.filter(of, f))
				}
			}
		}
	}
	return specs
}

// filter judges one filter, once for all servers that name it.
func (c *compiler) filter(o *object, f *v1beta1.EdgeFilter) guest.Spec {
	if spec, ok := c.programs[o]; ok {
		return spec
	}
	path := field.NewPath("spec")
	source := path.Child("source", "inline")
	var module []byte
	if f.Spec.Source.Path != "" {
		source = path.Child("source", "path")
	}
	if r := f.Spec.Source.ConfigMapRef; r != nil {
		source = path.Child("source", "configMapRef", "key")
		for _, l := range o.links {
			if m, ok := l.to.Value.(*ConfigMap); ok && !l.to.Partial && m.Name == r.Name {
				text, _ := m.entry(r.Key) // that it is not there was said where it is referred to
				module = []byte(text)
			}
		}
	}
	spec := guest.FromObject(f, module, o.beside(f.Spec.Source.Path), c.granted(f))
	if o.errors == 0 {
		_, wrong := guest.Parse(spec, c.set.Modules, path, source)
		c.faults(o, wrong)
	}
	c.programs[o] = spec
	return spec
}

// granted is the credentials that a filter may choose among. That one is not
// there was said where it is referred to.
func (c *compiler) granted(f *v1beta1.EdgeFilter) []*outgoing.Spec {
	if f.Spec.Grants == nil {
		return nil
	}
	var all []*outgoing.Spec
	for _, ref := range f.Spec.Grants.Credentials {
		of := c.byRef[Ref{"MCPExternalAuthConfig", ref.Name}]
		if of == nil {
			continue
		}
		if k, ok := of.value.(*v1beta1.MCPExternalAuthConfig); ok {
			_, wrong := outgoing.Parse(field.NewPath("spec"), &k.Spec)
			if c.reach(of, true); len(wrong) > 0 {
				c.faults(of, wrong)
			}
			all = append(all, &outgoing.Spec{Ref: k.Name, Kind: &k.Spec})
		}
	}
	return all
}

// beside is a path that an object writes relative to the file it stands in.
func (o *object) beside(path string) string {
	i := strings.LastIndexByte(o.Origin, ':')
	if path == "" || filepath.IsAbs(path) || i < 0 {
		return path
	}
	return filepath.Join(filepath.Dir(o.Origin[:i]), path)
}
