package workload

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/runner"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Import makes the manifest of a workload of a file: manifests of Weir, or a RunConfig of the
// reference. It reads no other file but those that a RunConfig names by an absolute path, and
// whether the manifest can be served is for Check to say. Errors are *Error.
func Import(file string, data []byte) (manifest []byte, notes []Note, err error) {
	if int64(len(data)) > maxDocument {
		return nil, nil, &Error{Code: CodeInvalid, Message: fmt.Sprintf("%s is larger than %d bytes", file, maxDocument)}
	}
	var s *set
	if isRunConfig(file, data) {
		c, err := ReadRunConfig(file, data)
		if err != nil {
			return nil, nil, err
		}
		if s, notes, err = c.set(file); err != nil {
			return nil, nil, err
		}
	} else if s, err = readSet(file, data); err != nil {
		return nil, nil, err
	}
	if name := s.fields().meta.Name; !IsName(name) {
		return nil, nil, &Error{Code: CodeInvalid, Field: "metadata.name", Message: fmt.Sprintf("%s: %q is no name of a workload", file, edge.Brief(name)), Next: "use small letters, digits and -, at most 63"}
	}
	s.forget()
	s.settle()
	s.inClear(func(name, value string) string {
		if value == "" {
			notes = append(notes, note("%s: the value of %s is empty, as an export leaves it: fill it in, or name a secret in its place", file, edge.Brief(name)))
		}
		return value
	})
	if s.proxy != nil && s.proxy.Spec.HeaderForward != nil {
		for _, name := range slices.Sorted(maps.Keys(s.proxy.Spec.HeaderForward.AddPlaintextHeaders)) {
			if s.proxy.Spec.HeaderForward.AddPlaintextHeaders[name] == "" {
				return nil, nil, &Error{Code: CodeInvalid, Field: "spec.headerForward", Message: fmt.Sprintf("%s: the header %s has no value", file, edge.Brief(name)), Next: "fill it in where an export has left it out, or name a secret in its place"}
			}
		}
	}
	f := s.fields()
	asks := *f.oidc != nil || s.server != nil && s.server.Spec.AuthServerRef != nil || s.proxy != nil && s.proxy.Spec.AuthServerRef != nil
	for _, text := range public(cmp.Or(f.run.ProxyHost, "127.0.0.1"), asks, len(f.run.AllowedOrigins) > 0, "say in the file who gives them tokens", "list those that may in the file") {
		notes = append(notes, note("%s: %s", file, text))
	}
	manifest, err = s.write()
	return manifest, notes, err
}

// Check compiles the manifest of a workload, and says what is wrong with it, and what is good
// to know. Errors are *Error.
func Check(manifest []byte) (*compile.Plan, []Note, error) { return judge(manifest) }

// isRunConfig reports whether a file holds a RunConfig: one document, with keys of its own
// and none of a manifest. What cannot be read is none.
func isRunConfig(file string, data []byte) bool {
	var keys struct {
		Kind          v1beta1.JSONValue `json:"kind"`
		APIVersion    v1beta1.JSONValue `json:"apiVersion"`
		Spec          v1beta1.JSONValue `json:"spec"`
		SchemaVersion v1beta1.JSONValue `json:"schema_version"`
		Transport     v1beta1.JSONValue `json:"transport"`
		RemoteURL     v1beta1.JSONValue `json:"remote_url"`
	}
	_ = source.Decode(file, data, &keys) // whatever else there is
	manifest := keys.Kind != "" || keys.APIVersion != "" || keys.Spec != ""
	return !manifest && (keys.SchemaVersion != "" || keys.Transport != "" || keys.RemoteURL != "")
}

// importer makes a draft of a RunConfig.
type importer struct {
	*draft
	c    *RunConfig
	file string
}

func (i *importer) say(format string, args ...any) { i.notes = append(i.notes, note(format, args...)) }

// bad is an error about a key.
func (i *importer) bad(key, format string, args ...any) error {
	return &Error{Code: CodeInvalid, Field: key, Message: i.file + ": " + key + ": " + fmt.Sprintf(format, args...)}
}

// set is the workload that a RunConfig describes.
func (c *RunConfig) set(file string) (*set, []Note, error) {
	i := &importer{draft: &draft{Options: DefaultOptions()}, c: c, file: file}
	i.Given = map[string]bool{}
	for _, step := range []func() error{i.foreign, i.servers, i.door, i.process, i.permissions, i.incoming, i.policies, i.observation, i.outgoing, i.hooked} {
		if err := step(); err != nil {
			return nil, nil, err
		}
	}
	return i.build(), i.notes, nil
}

// foreign refuses what Weir has nothing for, and says what is left out.
func (i *importer) foreign() error {
	c := i.c
	for _, section := range []struct {
		key  string
		text v1beta1.JSONObject
	}{{"upstream_swap_config", c.UpstreamSwap}, {"aws_sts_config", c.AWSSTS}, {"rate_limit_config", c.RateLimit}, {"embedded_auth_server_config", c.AuthServer}, {"scaling_config", c.Scaling}} {
		if section.text != "" && section.text != "{}" {
			return &Error{Code: CodeSandbox, Field: section.key, Message: i.file + ": " + section.key + ": not supported yet", Next: "take it out"}
		}
	}
	for _, key := range []struct {
		name  string
		given bool
	}{{"k8s_pod_template_patch", c.PodTemplate != ""}, {"rate_limit_namespace", c.RateNamespace != ""}} {
		if key.given {
			i.say("%s: only in a cluster: left out", key.name)
		}
	}
	if c.Strict {
		i.say("strict_protocol_validation: Weir always validates: left out")
	}
	if c.RegistryServerName != "" || c.RegistryURL != "" || c.RegistryAPIURL != "" {
		i.say("registry_server_name: where the server was found is left out")
	}
	return i.middleware()
}

// middleware looks at the parts of the reference's chain. Each says once more what another
// key says, or nothing; one that says something of its own is refused.
func (i *importer) middleware() error {
	c := i.c
	said := map[string]bool{
		"mcp-parser": true, "tool-call-filter": len(c.ToolsFilter)+len(c.ToolsOverride) > 0, "tool-filter": len(c.ToolsFilter)+len(c.ToolsOverride) > 0,
		"auth": true, "recovery": true, "usagemetrics": true, "body-limit": true, "strip-auth": true,
		"authorization": c.Authz != nil || c.AuthzPath != "", "audit": c.Audit != nil || c.AuditPath != "", "telemetry": c.Telemetry != nil,
		"tokenexchange": c.TokenExchange != nil, "header-forward": c.HeaderForward != nil, "validating-webhook": len(c.Validating) > 0, "mutating-webhook": len(c.Mutating) > 0,
	}
	for _, list := range []struct {
		key string
		all []runMiddleware
	}{{"middleware_configs", c.Middleware}, {"additional_middleware_configs", c.MoreMiddleware}} {
		for n, m := range list.all {
			if !said[m.Type] {
				return i.bad(fmt.Sprintf("%s[%d].type", list.key, n), "%q says what no other key says: not supported yet; take it out", edge.Brief(m.Type))
			}
		}
	}
	return nil
}

// servers reads what is started, or where it is.
func (i *importer) servers() error {
	c := i.c
	i.name = c.Name
	if !IsName(i.name) {
		if i.name == "" {
			return i.bad("name", "required")
		}
		i.name = runner.PlainName(i.name)
		i.say("name: %q is called %s here", edge.Brief(c.Name), i.name)
	}
	switch {
	case c.RemoteURL != "":
		server, err := readURL(c.RemoteURL, nil)
		if err != nil {
			return i.bad("remote_url", "%s", err)
		}
		if i.server = server; c.Image != "" {
			i.say("image: the server is at remote_url: left out")
		}
	case c.Image == "":
		return i.bad("image", "required, or remote_url")
	default:
		for n, arg := range c.CmdArgs {
			if strings.ContainsRune(arg, 0) {
				return i.bad(fmt.Sprintf("cmd_args[%d]", n), "it holds a NUL byte, which no argument can")
			}
		}
		i.server = Server{Image: c.Image, Args: c.CmdArgs}
	}
	switch c.Transport {
	case "stdio", "streamable-http", "sse":
	default:
		return i.bad("transport", "%q is none of stdio, streamable-http, sse", edge.Brief(c.Transport))
	}
	if i.Transport = c.Transport; c.RemoteURL != "" && c.Transport == "stdio" {
		return i.bad("transport", "a server at a URL does not speak stdio")
	}
	switch c.ProxyMode {
	case "", "sse", "streamable-http":
	default:
		return i.bad("proxy_mode", "%q is neither streamable-http nor sse", edge.Brief(c.ProxyMode))
	}
	if c.Transport == "stdio" {
		i.ProxyMode = cmp.Or(c.ProxyMode, i.ProxyMode)
	}
	return nil
}

// door reads where clients come in.
func (i *importer) door() error {
	c := i.c
	for _, port := range []struct {
		key    string
		number int
	}{{"port", c.Port}, {"target_port", c.TargetPort}} {
		if port.number < 0 || port.number > 65535 {
			return i.bad(port.key, "%d is no port", port.number)
		}
	}
	if c.SessionTTL < 0 {
		return i.bad("session_ttl", "it is negative")
	}
	i.ProxyPort, i.TargetPort = c.Port, c.TargetPort
	i.Host, i.TargetHost = cmp.Or(c.Host, i.Host), cmp.Or(c.TargetHost, i.TargetHost)
	i.AllowedOrigins, i.EndpointPrefix, i.TrustProxyHeaders, i.Stateless, i.SessionTTL, i.Debug = c.AllowedOrigins, c.EndpointPrefix, c.TrustHeaders, c.Stateless, c.SessionTTL, c.Debug
	i.Group = cmp.Or(c.Group, i.Group)
	for name, value := range c.Labels {
		if !strings.HasPrefix(name, "toolhive") { // those that the reference sets itself
			i.Labels = append(i.Labels, name+"="+value)
		}
	}
	slices.Sort(i.Labels)
	var err error
	i.CABundle, err = i.absolute("thv_ca_bundle", c.CABundle)
	return err
}

// absolute refuses a relative path: nobody knows what of.
func (i *importer) absolute(key, path string) (string, error) {
	if path != "" && (!filepath.IsAbs(path) || filepath.Clean(path) != path) {
		return "", i.bad(key, "%q is no absolute path without . and .. in it", edge.Brief(path))
	}
	return path, nil
}

// ownVariables are those that the reference sets itself.
var ownVariables = []string{"MCP_TRANSPORT", "MCP_PORT", "MCP_HOST", "FASTMCP_PORT"}

// process reads how the server is started.
func (i *importer) process() error {
	c := i.c
	for _, name := range slices.Sorted(maps.Keys(c.EnvVars)) {
		if slices.Contains(ownVariables, name) {
			continue
		}
		if name == "" || strings.ContainsAny(name, "= \t\r\n\x00") || strings.ContainsRune(c.EnvVars[name], 0) {
			return i.bad("env_vars", "%q is no name of a variable, or its value holds a NUL byte", edge.Brief(name))
		}
		i.env = append(i.env, v1beta1.EnvVar{Name: name, Value: c.EnvVars[name]})
		if secret.ReadsLike(name) && c.EnvVars[name] != "" {
			i.say("env_vars: %[1]s reads like a secret: keep it with `weir secret set %[1]s`, and write %[1]s,target=%[1]s among secrets", name)
		}
	}
	dir, err := i.absolute("env_file_dir", c.EnvFileDir)
	if err != nil {
		return err
	}
	if dir != "" {
		i.envFiles = []string{dir}
	}
	for n, text := range c.Secrets {
		ref, target, err := secretFlag(text)
		if err != nil {
			return i.bad(fmt.Sprintf("secrets[%d]", n), "write NAME,target=VARIABLE")
		}
		i.variables = append(i.variables, v1beta1.ServerSecret{Name: ref.Name, Key: ref.Key, TargetEnvName: target})
	}
	for n, text := range c.Volumes {
		key := fmt.Sprintf("volumes[%d]", n)
		v, err := i.volume(text)
		if err == nil {
			v.HostPath, err = i.absolute(key, v.HostPath)
		}
		if err != nil {
			return i.bad(key, "%q: write HOST:INSIDE or HOST:INSIDE:ro, with absolute paths", edge.Brief(text))
		}
		v.Name = fmt.Sprint("v", n)
		i.volumes = append(i.volumes, v)
	}
	i.Publish, i.AllowGateway = c.Publish, c.Gateway
	if !c.Isolate && c.RemoteURL == "" {
		i.Given["isolate-network"], i.IsolateNetwork, i.AllowGateway = true, false, false
	}
	if r := c.Runtime; r != nil {
		if i.RuntimeImage, i.RuntimeAddPackages = r.BuilderImage, r.Packages; !isBuilt(c.Image) {
			i.say("runtime_config is left out: %s is built already", edge.Brief(c.Image))
			i.RuntimeImage, i.RuntimeAddPackages = "", nil
		}
	}
	if g := c.Ignore; g != nil {
		i.IgnoreGlobally = g.LoadGlobal
		if g.PrintOverlays {
			i.say("ignore_config.printOverlays: left out: `weir run --dry-run --print-resolved-overlays` shows what is hidden")
		}
	}
	for _, key := range []struct {
		name  string
		given bool
	}{
		{"cmd_args", len(c.CmdArgs) > 0}, {"env_vars", len(i.env) > 0}, {"env_file_dir", dir != ""}, {"secrets", len(c.Secrets) > 0}, {"volumes", len(c.Volumes) > 0}, {"publish", len(c.Publish) > 0},
		{"target_port", c.TargetPort != 0},
	} {
		if key.given && c.RemoteURL != "" {
			i.say("%s: left out: nothing is started for a server at a URL", key.name)
		}
	}
	return nil
}

// unrepeated takes the mounts out of a profile that are volumes already.
func (i *importer) unrepeated(mounts *[]string, readOnly bool) (some bool) {
	before := len(*mounts)
	*mounts = slices.DeleteFunc(*mounts, func(text string) bool {
		m, err := v1beta1.ParseMount(text)
		return err == nil && slices.ContainsFunc(i.volumes, func(v v1beta1.HostVolume) bool {
			return v.HostPath == m.Source && v.MountPath == m.Target && v.ReadOnly == readOnly
		})
	})
	return len(*mounts) < before
}

// permissions reads the permission profile: its own text, before its name.
func (i *importer) permissions() error {
	name, text := i.c.ProfileName, []byte(i.c.Profile)
	text, err := i.network(text)
	if err != nil {
		return err
	}
	builtin, named := v1beta1.BuiltinProfile(name)
	switch {
	case named && len(text) == 0:
		i.profile = profileRef(name, true)
		return nil
	case len(text) == 0 && name == "":
		return nil
	case len(text) == 0:
		path, err := i.absolute("permission_profile_name_or_path", name)
		if err != nil {
			return err
		}
		if text, err = i.draft.file("permission-profile", path, maxDocument); err != nil {
			return i.bad("permission_profile_name_or_path", "%s", err)
		}
	}
	p, err := v1beta1.ParseProfile(text)
	if err != nil {
		return i.bad("permission_profile", "%s", err)
	}
	// The reference writes a volume twice: in volumes, and in the profile.
	read, write := i.unrepeated(&p.Read, true), i.unrepeated(&p.Write, false)
	if named && saysNoMore(p, builtin) {
		i.profile = profileRef(name, true)
		return nil
	}
	if read || write {
		if text, err = json.Marshal(p); err != nil {
			return i.bad("permission_profile", "%s", err)
		}
	}
	var b bytes.Buffer
	if err := json.Indent(&b, bytes.TrimSpace(text), "", "  "); err != nil {
		return i.bad("permission_profile", "it is no JSON")
	}
	i.profile, i.document = profileRef(name, false), b.String()+"\n"
	return nil
}

// saysNoMore reports whether a profile is a built-in one, written out. The reference writes the
// text beside the name, and the text counts: somebody may have changed it.
func saysNoMore(p, builtin *v1beta1.Profile) bool {
	out := p.Network.Outbound
	return !p.Privileged && out.InsecureAllowAll == builtin.Network.Outbound.InsecureAllowAll &&
		len(p.Read)+len(p.Write)+len(out.AllowHost)+len(out.AllowPort)+len(p.Network.Inbound.AllowHost) == 0
}

// network takes the network out of the text of a profile: there the reference keeps what
// --network said, beside a built-in profile, too.
func (i *importer) network(text []byte) ([]byte, error) {
	if len(text) == 0 {
		return text, nil
	}
	p, err := v1beta1.ParseProfile(text)
	if err != nil {
		return nil, i.bad("permission_profile", "%s", err)
	}
	mode := p.Network.Mode
	switch mode {
	case "", "bridge", "default": // the usual one
		return text, nil
	}
	if i.c.RemoteURL != "" {
		i.say("permission_profile.network.mode: left out: nothing is started for a server at a URL")
		return text, nil
	}
	i.Network, p.Network.Mode = mode, ""
	if mode == "none" { // nobody is let out, whatever the list says
		p.Network.Outbound = v1beta1.ProfileOutbound{}
	}
	if i.AllowGateway {
		i.say("allow_docker_gateway: left out: the server is in the network %s", edge.Brief(mode))
		i.AllowGateway = false
	}
	if text, err = json.Marshal(p); err != nil {
		return nil, i.bad("permission_profile", "%s", err)
	}
	return text, nil
}

// secret reads a secret as the reference writes one: NAME,target=WORD. One in clear is
// refused.
func (i *importer) secret(key, text string) (*v1beta1.SecretRef, error) {
	if text == "" {
		return nil, nil
	}
	ref, _, err := secretFlag(text)
	if err != nil {
		return nil, &Error{Code: CodeInvalid, Field: key, Message: i.file + ": " + key + ": it holds a secret in clear", Next: "keep it with `weir secret set NAME`, and write NAME,target=" + strings.ToUpper(key[strings.LastIndexByte(key, '.')+1:])}
	}
	return &ref, nil
}

// incoming reads who may come in.
func (i *importer) incoming() error {
	var o runOIDC
	if err := loosely("oidc_config", i.c.OIDC, &o); err != nil {
		return err
	}
	if o.Issuer == "" && o.JWKSURL != "" {
		return i.bad("oidc_config.issuer", "required with jwks_url: nobody says whose keys these are")
	}
	if o.Issuer == "" && o.IntrospectionURL == "" {
		return nil
	}
	if o.Audience == "" {
		return i.bad("oidc_config.audience", "required: a token for another server would open this one")
	}
	i.OIDCIssuer, i.OIDCAudience, i.OIDCJWKSURL, i.OIDCIntrospectionURL, i.OIDCClientID = o.Issuer, o.Audience, o.JWKSURL, o.IntrospectionURL, o.ClientID
	i.OIDCInsecureHTTP, i.JWKSAllowPrivateIP, i.ResourceURL = o.InsecureAllowHTTP, o.AllowPrivateIP, o.ResourceURL
	if o.Scopes != nil { // [] for none
		i.OIDCScopes = o.Scopes
	}
	var err error
	if i.oidcSecret, err = i.secret("oidc_config.client_secret", o.ClientSecret); err != nil {
		return err
	}
	if i.JWKSAuthTokenFile, err = i.absolute("oidc_config.auth_token_file", cmp.Or(o.AuthTokenFile, i.c.JWKSTokenFile)); err != nil {
		return err
	}
	return i.authorities("oidc_config.ca_cert_path", o.CACertPath)
}

// authorities reads a file of them. A workload has one, for all that Weir asks on its behalf.
func (i *importer) authorities(key, path string) error {
	ca, err := i.absolute(key, path)
	switch {
	case err != nil || ca == "" || ca == i.CABundle:
		return err
	case i.CABundle != "":
		return i.bad(key, "and %s differ: put the authorities into one file", edge.Brief(i.CABundle))
	}
	i.CABundle = ca
	return nil
}

// beside reads a document that stands in a key, or in a file that another key names.
func (i *importer) beside(key, path string, into any) error {
	path, err := i.absolute(key, path)
	if path == "" || err != nil {
		return err
	}
	data, err := edge.ReadFile(path, maxDocument)
	if err != nil {
		return i.bad(key, "%s", cause(err))
	}
	if err := source.Decode(path, data, into).Err(); err != nil {
		return i.bad(key, "%s", err)
	}
	return nil
}

// policies reads what clients may do, and which tools they see.
func (i *importer) policies() error {
	c := i.c
	if c.Authz == nil && c.AuthzPath != "" {
		c.Authz = &authzFile{}
		if err := i.beside("authz_config_path", c.AuthzPath, c.Authz); err != nil {
			return err
		}
	}
	if c.Authz != nil {
		spec, err := c.Authz.spec()
		if err != nil {
			return i.bad("authz_config", "%s", err)
		}
		i.authz = spec
	}
	i.Tools = c.ToolsFilter
	for tool, o := range c.ToolsOverride {
		if i.overrides == nil {
			i.overrides = map[string]v1beta1.ToolOverride{}
		}
		i.overrides[tool] = v1beta1.ToolOverride{Name: o.Name, Description: o.Description}
	}
	if err := oneName("tools_override", i.overrides); err != nil {
		return i.bad("tools_override", "two tools have one name")
	}
	return nil
}
