package workload

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// ownAnnotations are those of Weir itself, such as what the user wants of the workload: they
// belong to where it is kept, and no export has them.
const ownAnnotations = "weir.dev/"

// set is the manifest of a workload: its own object, which is one of the first two, and those
// that this refers to; nil for none.
type set struct {
	server *v1beta1.MCPServer
	proxy  *v1beta1.MCPRemoteProxy

	oidc      *v1beta1.MCPOIDCConfig
	authz     *v1beta1.MCPAuthzConfig
	auth      *v1beta1.MCPExternalAuthConfig
	tools     *v1beta1.MCPToolConfig
	telemetry *v1beta1.MCPTelemetryConfig
	webhooks  *v1beta1.MCPWebhookConfig
	profile   *compile.ConfigMap

	more []metav1.Object // that a manifest by hand has besides
}

// fields are those that both kinds of a workload's own object have.
type fields struct {
	meta      *metav1.ObjectMeta
	port      **int32
	group     **v1beta1.NameRef
	oidc      **v1beta1.OIDCConfigRef
	authz     **v1beta1.NameRef
	auth      **v1beta1.NameRef
	tools     **v1beta1.NameRef
	webhooks  **v1beta1.NameRef
	telemetry **v1beta1.TelemetryConfigRef
	audit     **v1beta1.AuditSwitch
	prefix    *string
	believes  *bool
	run       *v1beta1.ProxyRun
}

// fields are those of the workload's own object, with a spec.run to write to.
func (s *set) fields() fields {
	if s.proxy != nil {
		p := &s.proxy.Spec
		if p.Run == nil {
			p.Run = &v1beta1.ProxyRun{}
		}
		return fields{&s.proxy.ObjectMeta, &p.ProxyPort, &p.GroupRef, &p.OIDCConfigRef, &p.AuthzConfigRef, &p.ExternalAuthConfigRef, &p.ToolConfigRef, &p.Run.WebhookConfigRef, &p.TelemetryConfigRef, &p.Audit, &p.EndpointPrefix, &p.TrustProxyHeaders, p.Run}
	}
	p := &s.server.Spec
	if p.Run == nil {
		p.Run = &v1beta1.ServerRun{}
	}
	return fields{&s.server.ObjectMeta, &p.ProxyPort, &p.GroupRef, &p.OIDCConfigRef, &p.AuthzConfigRef, &p.ExternalAuthConfigRef, &p.ToolConfigRef, &p.WebhookConfigRef, &p.TelemetryConfigRef, &p.Audit, &p.EndpointPrefix, &p.TrustProxyHeaders, &p.Run.ProxyRun}
}

// objects are those of the set, the workload's own first.
func (s *set) objects() (all []metav1.Object) {
	for _, o := range []metav1.Object{s.server, s.proxy, s.oidc, s.authz, s.auth, s.tools, s.telemetry, s.webhooks, s.profile} {
		if !reflect.ValueOf(o).IsNil() {
			all = append(all, o)
		}
	}
	return append(all, s.more...)
}

// readSet reads the manifest of a workload. file stands for it in messages.
func readSet(file string, data []byte) (*set, error) {
	read, err := source.Read(file, data)
	if err != nil {
		return nil, &Error{Code: CodeInvalid, Message: err.Error()}
	}
	s := &set{}
	var rest []metav1.Object
	for _, o := range read.Objects {
		switch k := o.Value.(type) {
		case *compile.Secret:
			return nil, &Error{Code: CodeInvalid, Field: o.Ref().String(), Message: o.Origin + ": " + o.Ref().String() + " holds a secret in clear", Next: "take it out, and keep its values with weir secret set " + k.Name + "/KEY"}
		case *v1beta1.VirtualMCPServer:
			return nil, &Error{Code: CodeInvalid, Message: o.Origin + ": " + o.Ref().String() + " is no workload", Next: "weir serve -c " + file}
		case *v1beta1.MCPServer, *v1beta1.MCPRemoteProxy:
			if s.server != nil || s.proxy != nil {
				return nil, &Error{Code: CodeInvalid, Message: o.Origin + ": " + o.Ref().String() + " is a second workload", Next: "give each a file of its own"}
			}
			s.server, _ = k.(*v1beta1.MCPServer)
			s.proxy, _ = k.(*v1beta1.MCPRemoteProxy)
		case *v1beta1.MCPGroup: // whoever keeps workloads has the groups
		default:
			rest = append(rest, o.Value)
		}
	}
	if s.server == nil && s.proxy == nil {
		return nil, &Error{Code: CodeInvalid, Message: file + " describes no workload: it has neither an MCPServer nor an MCPRemoteProxy", Next: "`weir export NAME` shows one"}
	}
	for _, o := range rest {
		if !s.keep(o) {
			s.more = append(s.more, o)
		}
	}
	s.settle()
	return s, nil
}

// keep puts an object that the workload refers to into the one field of the set that is of its
// kind; false for another one: it may be of somebody else, and say something else.
func (s *set) keep(o metav1.Object) bool {
	f := s.fields()
	is := func(ref *v1beta1.NameRef) bool { return ref != nil && ref.Name == o.GetName() }
	switch k := o.(type) {
	case *v1beta1.MCPOIDCConfig:
		return first(&s.oidc, k, *f.oidc != nil && (*f.oidc).Name == k.Name)
	case *v1beta1.MCPAuthzConfig:
		return first(&s.authz, k, is(*f.authz))
	case *v1beta1.MCPExternalAuthConfig:
		return first(&s.auth, k, is(*f.auth))
	case *v1beta1.MCPToolConfig:
		return first(&s.tools, k, is(*f.tools))
	case *v1beta1.MCPTelemetryConfig:
		return first(&s.telemetry, k, *f.telemetry != nil && (*f.telemetry).Name == k.Name)
	case *v1beta1.MCPWebhookConfig:
		return first(&s.webhooks, k, is(*f.webhooks))
	case *compile.ConfigMap:
		p := s.server != nil && s.server.Spec.PermissionProfile != nil
		return first(&s.profile, k, p && s.server.Spec.PermissionProfile.Type == v1beta1.ProfileConfigMap && s.server.Spec.PermissionProfile.Name == k.Name)
	}
	return false
}

func first[T any](at **T, o *T, referred bool) bool {
	if *at != nil || !referred {
		return false
	}
	*at = o
	return true
}

// write is the set as YAML, the same for the same objects. Each object is called by its kind.
func (s *set) write() ([]byte, error) {
	var b bytes.Buffer
	for i, o := range s.objects() {
		text, err := writeObject(o)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteString("---\n")
		}
		b.Write(text)
	}
	return b.Bytes(), nil
}

// writeObject is an object as YAML, without what only a cluster writes.
func writeObject(o metav1.Object) ([]byte, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.GetName(), err)
	}
	var all map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&all); err != nil {
		return nil, err
	}
	delete(all, "status")
	if meta, ok := all["metadata"].(map[string]any); ok {
		delete(meta, "creationTimestamp")
	}
	kind := reflect.TypeOf(o).Elem().Name()
	all["kind"], all["apiVersion"] = kind, v1beta1.APIVersion
	if kind == "ConfigMap" {
		all["apiVersion"] = "v1"
	}
	if text, err = json.Marshal(all); err != nil {
		return nil, err
	}
	// It is read as YAML, which has one more end of a line than JSON.
	return yaml.JSONToYAML(bytes.ReplaceAll(text, []byte("\u0085"), []byte(`\u0085`)))
}

// inClear calls f with each value that stands in the set in clear though its name reads like that
// of a secret, and puts what it returns in its place.
func (s *set) inClear(f func(name, value string) string) {
	headers := func(all map[string]string) {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if secret.HeaderReadsLike(name) {
				all[name] = f(name, all[name])
			}
		}
	}
	remote := func(url *string, forward *v1beta1.HeaderForward) {
		if *url = secret.InQuery(*url, f); forward != nil {
			headers(forward.AddPlaintextHeaders)
		}
	}
	for _, o := range s.objects() { // also of those beside the workload's own
		switch k := o.(type) {
		case *v1beta1.MCPServer:
			k.Spec.Image = secret.InQuery(k.Spec.Image, f) // of a module
			for i, v := range k.Spec.Env {
				if secret.ReadsLike(v.Name) {
					k.Spec.Env[i].Value = f(v.Name, v.Value)
				}
			}
		case *v1beta1.MCPRemoteProxy:
			remote(&k.Spec.RemoteURL, k.Spec.HeaderForward)
		case *v1beta1.MCPServerEntry:
			remote(&k.Spec.RemoteURL, k.Spec.HeaderForward)
		case *v1beta1.MCPWebhookConfig:
			for _, url := range k.Spec.URLs() {
				*url = secret.InQuery(*url, f)
			}
		case *v1beta1.MCPTelemetryConfig:
			if k.Spec.OpenTelemetry != nil {
				k.Spec.OpenTelemetry.Endpoint = secret.InQuery(k.Spec.OpenTelemetry.Endpoint, f)
				headers(k.Spec.OpenTelemetry.Headers)
			}
		}
	}
}

// forget takes the annotations of Weir itself out.
func (s *set) forget() {
	meta := s.fields().meta
	maps.DeleteFunc(meta.Annotations, func(name, _ string) bool { return strings.HasPrefix(name, ownAnnotations) })
	if len(meta.Annotations) == 0 {
		meta.Annotations = nil
	}
}

// settle gives the set the form that every one is written in: no empty section.
func (s *set) settle() {
	switch {
	case s.server != nil && s.server.Spec.Run != nil && reflect.ValueOf(*s.server.Spec.Run).IsZero():
		s.server.Spec.Run = nil
	case s.proxy != nil && s.proxy.Spec.Run != nil && reflect.ValueOf(*s.proxy.Spec.Run).IsZero():
		s.proxy.Spec.Run = nil
	}
}

// judge compiles a manifest, and says what is wrong with it by the flags that stand for it.
func judge(manifest []byte) (plan *compile.Plan, notes []Note, err error) {
	read, _ := source.Read("manifest", manifest) // what it finds wrong is said by Compile
	read.Doors, read.Starts = true, []compile.Form{compile.FormLocal, compile.FormContainer, compile.FormWasm}
	wrong := grouped(&read.Set)
	result := read.Compile()
	for _, f := range result.Findings {
		flag := flagOf(f.Object.Kind, f.Path)
		text := f.Message
		switch {
		case flag != "":
			text = flag + ": " + text
		case f.Path != "":
			text = f.Object.String() + ": " + f.Path + ": " + text
		}
		if f.Severity != compile.Error {
			notes = append(notes, Note{Text: text})
			continue
		}
		code := CodeInvalid
		if f.Reason == compile.ReasonUnsupported || f.Reason == compile.ReasonEnterprise {
			code = CodeSandbox
		}
		if f.Reason == compile.ReasonNotAllowed {
			code = CodeRefused
		}
		field := flag
		if field == "" {
			field = f.Path
		}
		wrong = append(wrong, &Error{Code: code, Field: field, Message: text})
	}
	if len(wrong) == 0 {
		return result.Plan, notes, nil
	}
	// What leads to a flag comes first: the rest may follow from it.
	slices.SortStableFunc(wrong, func(a, b *Error) int {
		return cmp.Compare(strings.Index(a.Field+"--", "--"), strings.Index(b.Field+"--", "--"))
	})
	first := *wrong[0]
	for _, more := range wrong[1:min(len(wrong), 20)] {
		if !slices.Contains(strings.Split(first.Message, "\n"), more.Message) {
			first.Message += "\n" + more.Message
		}
	}
	return nil, notes, &first
}

// grouped adds the group that a workload refers to: manifests of workloads are without it, since
// several share it. It returns what is wrong with its name.
func grouped(s *compile.Set) (wrong []*Error) {
	for _, o := range s.Objects {
		var ref *v1beta1.NameRef
		switch k := o.Value.(type) {
		case *v1beta1.MCPServer:
			ref = k.Spec.GroupRef
		case *v1beta1.MCPRemoteProxy:
			ref = k.Spec.GroupRef
		}
		switch {
		case ref == nil:
		case ref.Name != "" && !IsName(ref.Name): // there can be no such group
			wrong = append(wrong, &Error{Code: CodeInvalid, Field: "--group", Message: fmt.Sprintf("--group: %q is no name of a group", edge.Brief(ref.Name))})
			ref.Name = defaultGroup // which the rest is judged with
			fallthrough
		case !slices.ContainsFunc(s.Objects, func(o compile.Object) bool { return o.Ref() == compile.Ref{Kind: "MCPGroup", Name: ref.Name} }):
			s.Objects = append(s.Objects, compile.Object{Value: &v1beta1.MCPGroup{ObjectMeta: metav1.ObjectMeta{Name: ref.Name}}})
		}
	}
	return wrong
}

// flagOf is the flag that a field of an object stands for; "" for none.
func flagOf(kind, path string) (flag string) {
	longest := 0
	for _, f := range Flags() {
		of, field, ok := strings.Cut(f.Field, " ")
		if !ok {
			of, field = "", f.Field
		}
		own := kind == "MCPServer" || kind == "MCPRemoteProxy"
		rest, below := strings.CutPrefix(path, field)
		if field == "" || of != kind && (of != "" || !own) || !below || rest != "" && rest[0] != '.' && rest[0] != '[' {
			continue
		}
		if len(field) > longest {
			flag, longest = "--"+f.Name, len(field)
		}
	}
	return flag
}

// readAll reads what is there, up to so many bytes.
func readAll(r io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("it is larger than %d bytes", most)
	}
	return data, err
}
