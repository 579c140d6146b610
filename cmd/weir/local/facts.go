package local

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/sandbox"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/edge/workload"
	"github.com/weir-edge/weir/filters/guest"
)

// What a manager knows of a workload by its manifests.

// readWorkload reads the manifests of a workload, and finds the one that is the workload.
func readWorkload(manifest []byte) (*source.Set, compile.Ref, error) {
	const file = "manifest.yaml"
	set, err := source.Read(file, manifest)
	if err != nil {
		return nil, compile.Ref{}, &workload.Error{Code: workload.CodeInvalid, Message: err.Error()}
	}
	var ref compile.Ref
	group, groups := "", map[string]bool{}
	refuse := func(format string, args ...any) (*source.Set, compile.Ref, error) {
		return nil, ref, &workload.Error{Code: workload.CodeInvalid, Message: file + ": " + fmt.Sprintf(format, args...)}
	}
	for _, o := range set.Objects {
		var of *v1beta1.NameRef
		switch k := o.Value.(type) {
		case *v1beta1.MCPServer:
			of = k.Spec.GroupRef
		case *v1beta1.MCPRemoteProxy:
			of = k.Spec.GroupRef
		case *v1beta1.MCPGroup:
			groups[k.Name] = true
			continue
		case *v1beta1.VirtualMCPServer:
			return refuse("%s: a workload is an MCPServer or an MCPRemoteProxy: serve this one with `weir serve -c`", o.Ref())
		case *compile.Secret:
			return refuse("%s holds values, and the manifests of a workload name secrets alone: keep them with `weir secret set`, and take it out", o.Ref())
		default:
			continue
		}
		if ref.Name != "" {
			return refuse("%s and %s: a workload is one of them: run each by itself", ref, o.Ref())
		}
		if ref = o.Ref(); of != nil {
			group = of.Name
		}
	}
	switch {
	case ref.Name == "":
		return refuse("there is no MCPServer and no MCPRemoteProxy in it")
	case group == "" || groups[group]:
		return set, ref, nil
	}
	// Groups are the manager's, which knows whether there is one.
	set, err = source.Read(file, append(slices.Clip(manifest), "\n---\napiVersion: weir.dev/v1beta1\nkind: MCPGroup\nmetadata: {name: "+strconv.Quote(group)+"}\n"...))
	if err != nil {
		return refuse("spec.groupRef.name: %q is no name of a group", group)
	}
	return set, ref, nil
}

// compileWorkload makes the plan of a workload.
func compileWorkload(manifest []byte) (*source.Result, compile.Ref, error) {
	set, ref, err := readWorkload(manifest)
	if err != nil {
		return nil, ref, err
	}
	set.Serve, set.Doors, set.Starts, set.LocalRateLimits, set.Modules = ref, true, []compile.Form{compile.FormLocal, compile.FormContainer, compile.FormWasm}, true, guest.ReadModule
	r := set.Compile()
	wrong := r.Findings.Errors()
	if len(wrong) == 0 {
		return r, ref, nil
	}
	e := &workload.Error{Code: workload.CodeInvalid, Field: wrong[0].Path, Message: wrong.Error()}
	if !slices.ContainsFunc(wrong, func(f source.Finding) bool { return f.Reason != compile.ReasonUnsupported }) {
		e.Code = workload.CodeSandbox // somebody else could run it
	}
	return nil, ref, e
}

// Read is workload.Edge.Read.
func (d *Doors) Read(manifest []byte) (*workload.Facts, error) {
	r, ref, err := compileWorkload(manifest)
	if err != nil {
		return nil, err
	}
	f := &workload.Facts{Name: ref.Name, ProxyMode: string(v1beta1.TransportStreamableHTTP), Tools: toolsOf(r)}
	var run *v1beta1.ProxyRun
	var group *v1beta1.NameRef
	var port *int32
	for _, o := range r.Set.Objects {
		switch k := o.Value.(type) {
		case *v1beta1.MCPServer:
			if k.Spec.Run != nil {
				run = &k.Spec.Run.ProxyRun
			}
			group, port, f.Transport = k.Spec.GroupRef, k.Spec.ProxyPort, string(k.Spec.Transport)
			if k.Spec.ProxyMode != "" {
				f.ProxyMode = string(k.Spec.ProxyMode)
			}
		case *v1beta1.MCPRemoteProxy:
			run, group, port, f.Transport, f.Remote = k.Spec.Run, k.Spec.GroupRef, k.Spec.ProxyPort, string(k.Spec.Transport), true
			f.Package, _, _ = strings.Cut(k.Spec.RemoteURL, "?") // a query may hold a secret
		}
	}
	if w := r.Plan.Servers[0].Backends[0].Workload; w != nil {
		f.Command = commandOf(w)
		f.Command[0] = located(w)
		switch w.Form {
		case compile.FormContainer:
			f.Package, f.Isolation = w.Image, isolates(w)
		case compile.FormWasm:
			f.Package, f.Isolation = w.Image, true
		default:
			box, err := boxOf(w, "/")
			f.Isolation = err == nil && box.Network != sandbox.Host
		}
		if f.Package == "" {
			f.Package = strings.Join(append([]string{filepath.Base(f.Command[0])}, w.Args...), " ")
		}
	}
	if f.Host = "127.0.0.1"; run != nil {
		f.Labels = run.Labels
		if run.ProxyHost != "" {
			f.Host = run.ProxyHost
		}
	}
	if group != nil {
		f.Group = group.Name
	}
	if port != nil {
		f.Port = int(*port)
	}
	return f, nil
}

// toolsOf are the tools that the filter of a workload lets through; nil for all.
func toolsOf(r *source.Result) (tools []string) {
	for _, o := range r.Set.Objects {
		if k, ok := o.Value.(*v1beta1.MCPToolConfig); ok {
			tools = append(tools, k.Spec.ToolsFilter...)
		}
	}
	return tools
}
