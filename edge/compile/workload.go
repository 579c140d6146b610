package compile

import (
	"cmp"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/edge/egress"
	"github.com/weir-edge/weir/edge/runner"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Form is how a workload is started.
type Form string

// The forms of workloads.
const (
	FormLocal     Form = "local"     // a process of this machine
	FormContainer Form = "container" // a container, of an image that is there or is built
	FormWasm      Form = "wasm"      // a module of WebAssembly
)

// Workload is a server that the process starts, on this machine, with every default filled
// in. Secrets stand in it by name.
type Workload struct {
	Name      string
	Form      Form     // FormLocal, FormContainer or FormWasm
	Image     string   `json:",omitempty"` // of a container, or what it is built of; or of a registry, which is a module; "" for others
	Build     *Build   `json:",omitempty"` // of an image that is built; nil for others
	Program   string   // of a process an absolute path, or the name of a package runner, which is looked up in PATH; of a module its path or URL, "" for one of a registry
	SHA256    string   // of a module, in hexadecimal; "" for any, of a file
	Args      []string // as given
	Transport v1beta1.ServerTransport
	Port      int                 // that it listens on; 0 for one that speaks stdio
	AnyPort   bool                // nobody asked for Port: another will do
	Host      string              // where its port is reached, when that is not its own loopback; "" else
	Publish   []v1beta1.Published `json:",omitempty"` // ports of its loopback that this machine listens on, too

	Env      []v1beta1.EnvVar
	EnvFiles []string         // files, and directories of files; a later one wins, and Env over all
	Secrets  []SecretVariable // they win over Env

	Mounts         []Mount
	Volumes        []Volume `json:",omitempty"` // of a container
	AllowUnsafe    []string // paths of the host that may be mounted although they show much
	Writable       []string // paths inside with memory of their own
	IgnoreGlobally bool     // the user's ignore patterns hold for Mounts

	Profile v1beta1.Profile
	Network string // host, none, of a container also a network of the engine, or "" for what Isolate says
	Isolate bool   // it reaches what Profile names, and nothing else
	Asked   bool   // Isolate was asked for, and not only the default
	Gateway bool   // isolated, it reaches the gateway of the container engine all the same

	// EgressPorts are reached beside those of Profile.
	EgressPorts []int

	Processes    v1beta1.ProcessMode
	MaxProcesses int
	Restart      v1beta1.RestartPolicy
	Memory       int64 // bytes
	MilliCPUs    int64 // thousandths of one; 0 for no limit
	Sandbox      v1beta1.SandboxGrade
	RunAs        string `json:",omitempty"` // of a container: image, or UID[:GID]; "" for the image's user unless that is root

	// Verification says what becomes of an image, or of a module at a registry, of which it is
	// not certain who made it; "" for what is neither. Signer is who has to have signed it, as
	// the entry of a registry says; nil for nobody.
	Verification v1beta1.ImageVerification `json:",omitempty"`
	Signer       *v1beta1.ImageSigner      `json:",omitempty"`

	// Roots is a file of certificates in PEM that requests for it trust, besides those of the
	// edge: for its image or module, and those that a module makes; "" for none.
	Roots string `json:",omitempty"`

	Labels     map[string]string `json:",omitempty"` // of a container
	Privileged bool              `json:",omitempty"` // of a container: as Profile asks for, and somebody allowed

	// Start tells one start of the workload from another, for who starts it anew; 0 else.
	Start uint64
}

// Build is how the image of a workload is built.
type Build struct {
	Source       string   // npx://…, uvx://…, go://…; of a directory with its absolute path
	RuntimeImage string   `json:",omitempty"` // in place of the usual base
	AddPackages  []string `json:",omitempty"` // of its system
	CA           string   `json:",omitempty"` // a file of PEM certificates; "" for none
}

// SecretVariable is a variable of the environment whose value is a secret.
type SecretVariable struct {
	Variable string
	SecretKey
}

// Volume is a directory of a container's own that the container engine keeps.
type Volume struct {
	Name, Target string
	Writable     bool
}

// Mount makes a path of the host visible inside.
type Mount struct {
	Source, Target string
	Writable       bool
}

// runners are the programs that fetch a package and run it, which an image may name without
// a path.
var runners = []string{"npx", "uvx", "pipx", "bunx"}

// formOf reads what spec.image says: how the server is started; "" for nothing that is known.
func formOf(image string) Form {
	scheme, _, found := strings.Cut(image, "://")
	switch {
	case slices.Contains(runners, image):
		return FormLocal
	case !found:
		return FormContainer
	case scheme == "exec":
		return FormLocal
	case scheme == runner.SchemeNPX || scheme == runner.SchemeUVX || scheme == runner.SchemeGo:
		return FormContainer
	case scheme == "wasm" || scheme == "wasm+https":
		return FormWasm
	}
	return ""
}

// workload plans how a server is started; nil for one that cannot be.
func (c *compiler) workload(o *object, s *v1beta1.MCPServer) *Workload {
	const at = "spec.image"
	if o.wrong[at] || s.Spec.Image == "" {
		return nil
	}
	form := formOf(s.Spec.Image)
	switch {
	case strings.HasPrefix(s.Spec.Image, "http://") || strings.HasPrefix(s.Spec.Image, "https://"):
		c.fail(o, at, ReasonInvalid, "a URL is none of a server to start: describe it with an MCPRemoteProxy")
		return nil
	case form == "":
		c.fail(o, at, ReasonInvalid, "%q is no form that is known: write an image, exec:///PATH, or one of %s", brief(s.Spec.Image), strings.Join(runners, ", "))
		return nil
	case !slices.Contains(c.set.Starts, form):
		c.fail(o, at, ReasonSetting, "a manifest alone may not start programs: start the edge with --allow-workloads %s", form)
		return nil
	}
	c.unbuilt(o, s.Spec.Image)
	if form == FormWasm {
		return c.module(o, s)
	}
	return c.local(o, s, form)
}

// local plans a process of this machine, or a container.
func (c *compiler) local(o *object, s *v1beta1.MCPServer, form Form) *Workload {
	run := s.Spec.Run
	if run == nil || c.set.Cluster {
		run = &v1beta1.ServerRun{}
	}
	w := &Workload{
		Name: s.Name, Form: FormLocal, Program: s.Spec.Image, Args: s.Spec.Args, Transport: s.Spec.Transport,
		Env: s.Spec.Env, Writable: run.Writable, AllowUnsafe: run.AllowUnsafeMounts, IgnoreGlobally: run.IgnoreGlobally == nil || *run.IgnoreGlobally,
		Network: run.Network, Isolate: run.IsolateNetwork == nil || *run.IsolateNetwork, Asked: run.IsolateNetwork != nil && o.text("spec.run.isolateNetwork") == "true",
		Processes: cmp.Or(run.Processes, v1beta1.ProcessPerSession), MaxProcesses: 16, Restart: cmp.Or(run.Restart, v1beta1.RestartOnFailure),
		Sandbox: cmp.Or(run.Sandbox, v1beta1.SandboxAuto), Memory: 1 << 30,
	}
	if form == FormContainer {
		w.Form, w.Image, w.Program, w.RunAs, w.Labels = FormContainer, w.Program, "", run.RunAs, run.Labels
		c.verified(w, run)
		c.contained(o, w)
		w.Build = c.built(o, s.Spec.Image, run)
	} else {
		c.unverified(o, run, "a process of this machine")
	}
	if form != FormContainer && run.RunAs != "" {
		c.fail(o, "spec.run.runAs", ReasonConflict, "a process of this machine has your rights at the most: runAs is for containers")
	}
	if path, ok := strings.CutPrefix(w.Program, "exec://"); ok {
		if w.Program = filepath.Clean(path); !filepath.IsAbs(path) {
			c.fail(o, "spec.image", ReasonInvalid, "%q has no absolute path: write exec:///PATH, and the arguments in args", brief(s.Spec.Image))
		}
	}
	c.listens(o, s, run, w)
	c.publishes(o, run, w)
	if o.text(externalRef) != "" && s.Spec.Transport == v1beta1.ServerStdio && !c.unauthenticated(o) && !c.embeds(o) {
		c.fail(o, "spec.externalAuthConfigRef", ReasonConflict, "a server that speaks stdio is sent no headers: give it what it needs in spec.secrets, and take this out")
	}
	for _, e := range s.Spec.Secrets {
		w.Secrets = append(w.Secrets, SecretVariable{cmp.Or(e.TargetEnvName, e.Key), SecretKey{e.Name, e.Key}})
	}
	for _, file := range run.EnvFiles {
		w.EnvFiles = append(w.EnvFiles, o.beside(file))
	}
	if run.MaxProcesses != nil {
		w.MaxProcesses = int(*run.MaxProcesses)
	}
	if run.Memory != "" {
		if w.Memory, _ = run.Memory.Parse(); w.Memory < leastMemory { // its form was judged before
			c.fail(o, "spec.run.memory", ReasonInvalid, "%s: a process or a container has 16Mi at least", brief(string(run.Memory)))
		}
	}
	if run.CPUs != "" {
		w.MilliCPUs, _ = run.CPUs.Milli()
	}
	if w.Image == "" && w.Network != "" && w.Network != "host" && w.Network != "none" {
		c.fail(o, "spec.run.network", ReasonInvalid, "%q: a process of this machine has host or none", brief(w.Network))
	}
	w.Profile, w.Gateway = c.profile(o, s.Spec.PermissionProfile, form), run.AllowContainerGateway
	for _, port := range run.EgressPorts {
		w.EgressPorts = append(w.EgressPorts, int(port))
	}
	c.privileged(o, run, w)
	c.egress(o, w)
	if w.Network != "" && w.Network != "none" && w.Asked {
		c.fail(o, "spec.run.network", ReasonConflict, "%s, and isolateNetwork: take one out", brief(w.Network))
	}
	c.mounts(o, s, w)
	return w
}

// users are what spec.run.runAs may be.
var users = regexp.MustCompile(`^(image|[0-9]{1,10}(:[0-9]{1,10})?)$`)

// verified plans how it is found out who made what is fetched of a registry.
func (c *compiler) verified(w *Workload, run *v1beta1.ServerRun) {
	if w.Verification = cmp.Or(run.ImageVerification, v1beta1.VerifyWarn); run.Registry != nil {
		w.Signer = run.Registry.Signer
	}
	w.Roots = run.CABundle
}

// unverified refuses to promise that something is verified that comes from no registry.
func (c *compiler) unverified(o *object, run *v1beta1.ServerRun, what string) {
	if run.ImageVerification == v1beta1.VerifyEnabled {
		c.fail(o, "spec.run.imageVerification", ReasonConflict, "%s: nothing says who made it, and only images are verified: take this out", what)
	}
}

// contained judges what a container has, and a process of this machine has not.
func (c *compiler) contained(o *object, w *Workload) {
	if w.RunAs != "" && !users.MatchString(w.RunAs) {
		c.fail(o, "spec.run.runAs", ReasonInvalid, "%q: write image, UID or UID:GID, in numbers", brief(w.RunAs))
	}
	// A name, so no "container:NAME": it would be in the network of another container.
	if w.Network != "" && (len(w.Network) > maxNetworkName || !engineNames.MatchString(w.Network)) {
		c.fail(o, "spec.run.network", ReasonInvalid, "%q: write host, none, or the name of a network of the container engine", brief(w.Network))
	}
	if w.Sandbox != v1beta1.SandboxAuto {
		c.fail(o, "spec.run.sandbox", ReasonConflict, "%q is for processes of this machine: a container has no other sandbox", brief(string(w.Sandbox)))
	}
	if w.Network != "" && w.Network != "none" && w.Isolate {
		w.Isolate = false
		c.find(Warning, o, "spec.run.network", ReasonUnused, "%s: the server is not isolated: it reaches what that network reaches", brief(w.Network))
	}
}

// defaultPort is where a server that speaks HTTP listens when nobody says another.
const defaultPort = 8080

// listens plans where a process that speaks HTTP listens, and says what is not used of a
// process with the other transport.
func (c *compiler) listens(o *object, s *v1beta1.MCPServer, run *v1beta1.ServerRun, w *Workload) {
	unused, why := []string{"spec.mcpPort", "spec.run.targetHost"}, "the server speaks stdio"
	if s.Spec.Transport != v1beta1.ServerStdio {
		unused, why = []string{"spec.run.processes", "spec.run.maxProcesses"}, "a server that speaks HTTP has one process"
		if w.Port, w.AnyPort = defaultPort, true; s.Spec.MCPPort != nil {
			w.Port, w.AnyPort = int(*s.Spec.MCPPort), false
		}
		switch host := run.TargetHost; {
		case slices.Contains([]string{"", "localhost", "127.0.0.1", "::1"}, host):
		case loopback(net.JoinHostPort(host, "1")):
			c.fail(o, "spec.run.targetHost", ReasonInvalid, "%s: a server on the loopback is reached at 127.0.0.1 and ::1 alone: have it listen at one of them, and leave this out", brief(host))
		default:
			w.Host, w.AnyPort = host, false
			if w.Asked {
				c.fail(o, "spec.run.targetHost", ReasonConflict, "%s, and isolateNetwork: an isolated server is reached on its own loopback: take one out", brief(host))
			}
		}
	}
	for _, field := range unused {
		if o.text(field) != "" {
			c.find(Warning, o, field, ReasonUnused, "not used: %s", why)
		}
	}
}

// URL is where the backend of a workload is spoken to; "" for one that speaks stdio.
func (w *Workload) URL() string {
	if w == nil || w.Port == 0 {
		return ""
	}
	path := "/mcp"
	if w.Transport == v1beta1.ServerSSE {
		path = "/sse"
	}
	return "http://" + net.JoinHostPort(cmp.Or(w.Host, "127.0.0.1"), strconv.Itoa(w.Port)) + path
}

// unauthenticated reports whether what a server refers to for its credential is none.
func (c *compiler) unauthenticated(o *object) bool {
	of := c.byRef[Ref{"MCPExternalAuthConfig", o.text(externalRef)}]
	if of == nil {
		return true // that it is not there was said where it is referred to
	}
	k, ok := of.value.(*v1beta1.MCPExternalAuthConfig)
	return !ok || k.Spec.Type == v1beta1.AuthUnauthenticated
}

// egress judges what a process is let out to.
func (c *compiler) egress(o *object, w *Workload) {
	const ports, gateway = "spec.run.egressPorts", "spec.run.allowContainerGateway"
	for path, given := range map[string]bool{ports: len(w.EgressPorts) > 0, gateway: w.Gateway} {
		if given && w.Network != "" {
			c.fail(o, path, ReasonConflict, "spec.run.network is %s, and then it says nothing: take one out", brief(w.Network))
		}
	}
	if len(w.EgressPorts) > 0 && w.Profile.Offline() {
		c.fail(o, ports, ReasonConflict, "the permission profile %s names no hosts, and a port of none says nothing: take it out, or name another profile", brief(w.Profile.Name))
	} else if _, err := egress.NewRules(&w.Profile, w.Egress()); err != nil {
		c.fail(o, "spec.permissionProfile", ReasonInvalid, "%v", err)
	}
}

// Egress is what a process is let out to beside its profile.
func (w *Workload) Egress() egress.Options {
	return egress.Options{Ports: w.EgressPorts, Gateway: w.Gateway}
}

// profile reads the permission profile of a server: network, without one.
func (c *compiler) profile(o *object, ref *v1beta1.PermissionProfileRef, form Form) v1beta1.Profile {
	const at = "spec.permissionProfile"
	name := v1beta1.ProfileAnywhere
	if ref != nil {
		name = ref.Name
	}
	p, ok := v1beta1.BuiltinProfile(name)
	if ref != nil && ref.Type == v1beta1.ProfileConfigMap {
		p, ok = nil, true
		for _, l := range o.links {
			m, is := l.to.Value.(*ConfigMap)
			if !is || l.to.Partial || l.from == nil || !under(l.from.path, at) {
				continue
			}
			text, there := m.entry(ref.Key)
			if !there {
				continue // said where the key is referred to
			}
			var err error
			if p, err = v1beta1.ParseProfile([]byte(text)); err != nil {
				c.fail(o, at+".key", ReasonInvalid, "what %s holds under %q is no profile: %v", l.to.ref, brief(ref.Key), err)
			}
		}
	}
	switch {
	case !ok && !o.wrong[at+".name"]:
		c.fail(o, at+".name", ReasonNotFound, "there is no profile %q: the built-in ones are none and network; another one stands in a ConfigMap", brief(name))
	case p == nil:
	case p.Privileged && form != FormContainer:
		c.fail(o, at, ReasonInvalid, "privileged is for containers: a process of this machine has the rights of its user at the most")
	case len(p.Network.Inbound.AllowHost) > 0 && !c.set.Doors:
		c.find(Warning, o, at, ReasonUnused, "network.inbound.allow_host is not used: at the door of the process --allowed-hosts says it")
	}
	if p == nil {
		return v1beta1.Profile{}
	}
	return *p
}

// mounts plans what of the host is visible inside: the volumes, and what the profile says.
func (c *compiler) mounts(o *object, s *v1beta1.MCPServer, w *Workload) {
	inside := map[string]string{}
	add := func(path string, m Mount) {
		if first, ok := inside[m.Target]; ok {
			c.fail(o, path, ReasonDuplicate, "%s is mounted by %s already", brief(m.Target), first)
			return
		}
		inside[m.Target] = path
		w.Mounts = append(w.Mounts, m)
	}
	for i, v := range s.Spec.Volumes {
		path := "spec.volumes[" + strconv.Itoa(i) + "]"
		if !filepath.IsAbs(v.HostPath) {
			c.fail(o, path+".hostPath", ReasonInvalid, "%q is no absolute path", brief(v.HostPath))
			continue
		}
		add(path, Mount{v.HostPath, filepath.Clean(v.MountPath), !v.ReadOnly})
	}
	for _, list := range []struct {
		mounts   []string
		writable bool
	}{{w.Profile.Read, false}, {w.Profile.Write, true}} {
		for _, text := range list.mounts {
			m, err := v1beta1.ParseMount(text)
			switch {
			case err != nil: // said where the profile was read
			case m.Volume != "" && w.Form == FormContainer:
				c.volume(o, w, inside, Volume{m.Volume, filepath.Clean(m.Target), list.writable})
			case m.Volume != "":
				c.fail(o, "spec.permissionProfile", ReasonInvalid, "volume://%s is a volume of a container engine: a process of this machine mounts paths", brief(m.Volume))
			case !filepath.IsAbs(m.Source):
				c.fail(o, "spec.permissionProfile", ReasonInvalid, "%q is no absolute path", brief(m.Source))
			default:
				add("spec.permissionProfile", Mount{m.Source, filepath.Clean(m.Target), list.writable})
			}
		}
	}
	for i, path := range w.Writable {
		if first, ok := inside[path]; ok {
			c.fail(o, "spec.run.writable["+strconv.Itoa(i)+"]", ReasonDuplicate, "%s is mounted by %s already", brief(path), first)
		}
	}
}
