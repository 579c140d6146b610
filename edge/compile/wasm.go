package compile

import (
	"cmp"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge/runner"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Servers in WebAssembly, which run in this process and in nothing of the machine's.

// Memory of an instance of a server in WebAssembly, in bytes.
const (
	ModuleMemory     = 64 << 20  // when nobody says another
	MaxModuleMemory  = 256 << 20 // and the most
	leastModuleBytes = 1 << 20
	leastMemory      = 16 << 20 // of a process or a container
)

// module plans a server in WebAssembly.
func (c *compiler) module(o *object, s *v1beta1.MCPServer) *Workload {
	run := s.Spec.Run
	if run == nil || c.set.Cluster {
		run = &v1beta1.ServerRun{}
	}
	w := &Workload{
		Name: s.Name, Form: FormWasm, Args: s.Spec.Args, Transport: s.Spec.Transport,
		Env: s.Spec.Env, AllowUnsafe: run.AllowUnsafeMounts, IgnoreGlobally: run.IgnoreGlobally == nil || *run.IgnoreGlobally,
		Network: run.Network, Isolate: true, Asked: true, Gateway: run.AllowContainerGateway,
		Processes: cmp.Or(run.Processes, v1beta1.ProcessPerSession), MaxProcesses: 16, Restart: cmp.Or(run.Restart, v1beta1.RestartOnFailure),
		Memory: ModuleMemory, Roots: run.CABundle,
	}
	// 1. The module.
	if ref, ok := runner.RegistryModule(s.Spec.Image); ok {
		w.Image = ref
		c.verified(w, run)
	} else {
		w.Program, w.SHA256 = c.moduleSource(o, s.Spec.Image)
		c.unverified(o, run, "a module of a file, or at a URL, is known by its digest")
	}
	// 2. What makes no sense for one. It speaks on its standard streams and is in no network,
	// and has no processor and no paths of its own.
	if s.Spec.Transport != v1beta1.ServerStdio {
		c.fail(o, "spec.transport", ReasonInvalid, "%s: a server in WebAssembly speaks on its standard streams: set stdio", brief(string(s.Spec.Transport)))
	}
	for _, no := range []struct {
		field, why string
		set        bool
	}{
		{"spec.run.writable", "it has the directories of spec.volumes alone: mount one that may be written to", len(run.Writable) > 0},
		{"spec.run.cpus", "what it may compute at a stretch is bounded already", run.CPUs != ""},
		{"spec.run.sandbox", "it needs none: it has what it is given and nothing of this machine's", run.Sandbox != "" && run.Sandbox != v1beta1.SandboxAuto},
		{"spec.run.runAs", "it runs as no user of this machine's", run.RunAs != ""},
		{"spec.run.allowPrivileged", "it has no rights of this machine's", run.AllowPrivileged},
		{"spec.run.publish", "it listens at no port", len(run.Publish) > 0},
		{"spec.run.network", "it is in no network", run.Network != "" && run.Network != "none"},
		{"spec.run.isolateNetwork", "it is in no network, which false would not change", run.IsolateNetwork != nil && !*run.IsolateNetwork && o.text("spec.run.isolateNetwork") != ""},
	} {
		if no.set {
			c.fail(o, no.field, ReasonConflict, "a server in WebAssembly: %s: leave this out", no.why)
		}
	}
	for _, field := range []string{"spec.mcpPort", "spec.run.targetHost"} {
		if o.text(field) != "" {
			c.find(Warning, o, field, ReasonUnused, "not used: the server speaks stdio")
		}
	}
	if o.text(externalRef) != "" && !c.unauthenticated(o) && !c.embeds(o) {
		c.fail(o, "spec.externalAuthConfigRef", ReasonConflict, "a server that speaks stdio is sent no headers: give it what it needs in spec.secrets, and take this out")
	}
	// 3. What it is given.
	for _, e := range s.Spec.Secrets {
		w.Secrets = append(w.Secrets, SecretVariable{cmp.Or(e.TargetEnvName, e.Key), SecretKey{e.Name, e.Key}})
	}
	for _, file := range run.EnvFiles {
		w.EnvFiles = append(w.EnvFiles, o.beside(file))
	}
	if run.MaxProcesses != nil {
		w.MaxProcesses = int(*run.MaxProcesses)
	}
	if o.text("spec.run.memory") != "" { // the default of the field is that of a process
		w.Memory, _ = run.Memory.Parse() // the object was judged before
		if w.Memory < leastModuleBytes || w.Memory > MaxModuleMemory {
			c.fail(o, "spec.run.memory", ReasonInvalid, "%s: a server in WebAssembly has from 1Mi to 256Mi", brief(string(run.Memory)))
		}
	}
	// Deny by default: without a profile it reaches nothing.
	ref := s.Spec.PermissionProfile
	if ref == nil {
		ref = &v1beta1.PermissionProfileRef{Type: v1beta1.ProfileBuiltin, Name: v1beta1.ProfileNone}
	}
	w.Profile = c.profile(o, ref, FormWasm)
	for _, port := range run.EgressPorts {
		w.EgressPorts = append(w.EgressPorts, int(port))
	}
	c.egress(o, w)
	c.mounts(o, s, w)
	return w
}

var sha256Pattern = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

// moduleSource reads where a module is: an absolute path, or an https URL with the digest
// that the module must have.
func (c *compiler) moduleSource(o *object, image string) (where, digest string) {
	const at = "spec.image"
	rest, fragment, hasFragment := strings.Cut(image, "#")
	if hasFragment {
		var ok bool
		if digest, ok = strings.CutPrefix(fragment, "sha256="); !ok || !sha256Pattern.MatchString(digest) {
			c.fail(o, at, ReasonInvalid, "%q: after # write sha256= and the 64 digits of the module's SHA-256", brief(image))
			return "", ""
		}
		digest = strings.ToLower(digest)
	}
	if link, ok := strings.CutPrefix(rest, "wasm+"); ok {
		u, err := url.Parse(link)
		switch {
		case err != nil || u.Hostname() == "" || u.Scheme != "https":
			c.fail(o, at, ReasonInvalid, "%q is no URL of a module: write wasm+https://HOST/PATH#sha256=DIGEST", brief(image))
		case u.User != nil:
			c.fail(o, at, ReasonInvalid, "the URL of the module holds a user or a password: take them out")
		case digest == "":
			c.fail(o, at, ReasonInvalid, "%q: a module that is fetched is known by its digest: write #sha256=DIGEST after it", brief(image))
		default:
			return link, digest
		}
		return "", ""
	}
	path := strings.TrimPrefix(rest, "wasm://")
	switch {
	case filepath.IsAbs(filepath.FromSlash(path)):
	case slices.Contains([]string{".", ".."}, strings.SplitN(path, "/", 2)[0]):
		path = o.beside(path)
	default:
		c.fail(o, at, ReasonInvalid, "%q names no module: write wasm:///PATH or wasm://./PATH for a file, wasm://HOST/REPOSITORY[:TAG][@DIGEST] for one in a registry, or wasm+https://HOST/PATH#sha256=DIGEST", brief(image))
		return "", ""
	}
	return filepath.Clean(filepath.FromSlash(path)), digest
}
