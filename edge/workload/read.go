package workload

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/egress"
	"github.com/weir-edge/weir/edge/envfile"
	"github.com/weir-edge/weir/edge/runner"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// What flags name is read here: files, secrets, and values that are lists.

// Bounds of files, in bytes.
const (
	maxDocument   = 4 << 20
	maxSecretFile = 1 << 20
)

// read reads what the flags name.
func (d *draft) read() error {
	for _, read := range []func() error{d.readEntry, d.readEnv, d.readVolumes, d.readProfile, d.readTools, d.readWebhooks, d.readAudit, d.readAuthz, d.readFiles, d.readSecrets, d.readHeaders} {
		if err := read(); err != nil {
			return err
		}
	}
	d.remark()
	return nil
}

// file reads a file that a flag names, up to so many bytes.
func (d *draft) file(flag, name string, most int64) ([]byte, error) {
	f, err := edge.OpenFile(d.path(name))
	if err != nil {
		return nil, wrong(flag, "%s: %s", edge.Brief(name), cause(err))
	}
	data, err := readAll(f, most)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, wrong(flag, "%s: %s", edge.Brief(name), cause(err))
	}
	return data, nil
}

// cause is what kept a file from being read, without its name.
func cause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// decode decodes a file that a flag names, strictly.
func (d *draft) decode(flag, name string, data []byte, into any) error {
	if err := source.Decode(name, data, into).Err(); err != nil {
		return wrong(flag, "%s", err)
	}
	return nil
}

func (d *draft) readEnv() error {
	for _, text := range d.Env {
		name, value, _ := strings.Cut(text, "=")
		d.env = slices.DeleteFunc(d.env, func(v v1beta1.EnvVar) bool { return v.Name == name })
		d.env = append(d.env, v1beta1.EnvVar{Name: name, Value: value})
	}
	for _, text := range d.Options.Secrets {
		ref, target, err := secretFlag(text)
		if err != nil {
			return err
		}
		d.variables = append(d.variables, v1beta1.ServerSecret{Name: ref.Name, Key: ref.Key, TargetEnvName: target})
	}
	for _, f := range []struct{ flag, name string }{{"env-file", d.EnvFile}, {"env-file-dir", d.EnvFileDir}} {
		if f.name == "" {
			continue
		}
		path := d.path(f.name)
		info, err := os.Stat(path)
		switch {
		case f.flag == "env-file-dir" && errors.Is(err, fs.ErrNotExist):
			d.notes = append(d.notes, note("--env-file-dir: %s is not there: no variables come from it", edge.Brief(f.name)))
			continue
		case err != nil:
			return wrong(f.flag, "%s: %s", edge.Brief(f.name), cause(err))
		case info.IsDir() != (f.flag == "env-file-dir"):
			return wrong(f.flag, "%s is a directory for --env-file-dir, or a file for --env-file", edge.Brief(f.name))
		}
		if !info.IsDir() && !info.Mode().IsRegular() {
			return wrong(f.flag, "%s is no regular file, and it is read at each start", edge.Brief(f.name))
		}
		if _, err := envfile.Read(path); err != nil {
			return wrong(f.flag, "%s", err)
		}
		d.envFiles = append(d.envFiles, path)
	}
	return nil
}

func (d *draft) readVolumes() error {
	inside := map[string]bool{}
	for i, text := range d.Options.Volumes {
		v, err := d.volume(text)
		if err != nil {
			return err
		}
		if _, err := os.Stat(v.HostPath); err != nil {
			return wrong("volume", "%s: %s", edge.Brief(v.HostPath), cause(err))
		}
		if inside[v.MountPath] {
			return wrong("volume", "%s is mounted twice", edge.Brief(v.MountPath))
		}
		inside[v.MountPath] = true
		v.Name = "v" + strconv.Itoa(i)
		d.volumes = append(d.volumes, v)
	}
	for i, path := range d.Writable {
		if !edge.PathInside(path) {
			return wrong("writable", "%q is no absolute path such as /var/cache", edge.Brief(path))
		}
		d.Writable[i] = filepath.ToSlash(filepath.Clean(path))
	}
	for i, path := range d.AllowUnsafeMount {
		d.AllowUnsafeMount[i] = d.path(path)
	}
	return nil
}

// volume reads HOST:INSIDE[:ro].
func (d *draft) volume(text string) (v v1beta1.HostVolume, err error) {
	rest, mode := text, ""
	for _, m := range []string{":ro", ":rw"} {
		if before, ok := strings.CutSuffix(text, m); ok {
			rest, mode = before, m
		}
	}
	at := strings.LastIndexByte(rest, ':')
	if at <= 0 || strings.ContainsRune(text, 0) {
		return v, wrong("volume", "%q: write HOST:INSIDE, or HOST:INSIDE:ro", edge.Brief(text))
	}
	v.HostPath, v.MountPath, v.ReadOnly = d.path(rest[:at]), rest[at+1:], mode == ":ro"
	if !edge.PathInside(v.MountPath) {
		return v, wrong("volume", "%q is no absolute path inside of the sandbox", edge.Brief(v.MountPath))
	}
	v.MountPath = filepath.ToSlash(filepath.Clean(v.MountPath))
	return v, nil
}

func (d *draft) readProfile() error {
	name := d.PermissionProfile
	ofEntry := name == "" && d.Entry != nil && d.Entry.Profile != nil
	if name == "" && !ofEntry {
		return nil // network, which lets out to every port that is named
	}
	p, builtin := v1beta1.BuiltinProfile(name)
	if !builtin {
		data, err := []byte(nil), error(nil)
		if ofEntry {
			name, data = "the entry's own", d.Entry.Profile
		} else if data, err = d.file("permission-profile", name, maxDocument); err != nil {
			return err
		}
		if p, err = v1beta1.ParseProfile(data); err != nil {
			return wrong("permission-profile", "%s: %s", edge.Brief(name), err)
		}
		d.document = strings.TrimSpace(strings.TrimPrefix(string(data), "\ufeff")) + "\n"
	}
	d.profile = profileRef(name, builtin)
	out := p.Network.Outbound
	switch {
	case p.Privileged && !isLocal(d.server.Image) && !isModule(d.server.Image):
		if !d.AllowPrivileged {
			return &Error{Code: CodeRefused, Field: "--permission-profile", Message: "--permission-profile: the profile asks for a privileged container, which can do what root of this machine can", Next: "take privileged out of it, or allow it with --allow-privileged"}
		}
	case p.Privileged:
		return &Error{Code: CodeRefused, Field: "--permission-profile", Message: "--permission-profile: the profile is privileged, which is for containers", Next: "take privileged out of it"}
	case d.Network == "none" && d.given("permission-profile") && (out.InsecureAllowAll || len(out.AllowHost) > 0):
		return wrong("permission-profile", "the profile lets the server out, and --network none does not: leave one out")
	}
	if len(d.EgressPort) > 0 && p.Offline() {
		return wrong("egress-port", "the profile %s names no hosts, and a port of none says nothing: leave it out", edge.Brief(name))
	}
	if _, err := egress.NewRules(p, egress.Options{Ports: d.EgressPort, Gateway: d.AllowGateway}); err != nil {
		if ofEntry {
			return &Error{Code: CodeRefused, Field: "--permission-profile", Message: "the entry's permissions: " + err.Error(), Next: "give a profile of your own: --permission-profile FILE"}
		}
		return wrong("permission-profile", "%s: %s", edge.Brief(name), err)
	}
	return nil
}

// profileRef refers to a profile: a built-in one, or one of a ConfigMap that is still without
// a name.
func profileRef(name string, builtin bool) *v1beta1.PermissionProfileRef {
	if builtin {
		return &v1beta1.PermissionProfileRef{Type: v1beta1.ProfileBuiltin, Name: name}
	}
	return &v1beta1.PermissionProfileRef{Type: v1beta1.ProfileConfigMap, Key: profileKey}
}

func (d *draft) readTools() error {
	d.Options.Tools, d.OIDCScopes, d.TokenExchangeScopes = splitList(d.Options.Tools...), splitList(d.OIDCScopes...), splitList(d.TokenExchangeScopes...)
	d.OtelEnvVars, d.RemoteAuthScopes = splitList(d.OtelEnvVars...), splitList(d.RemoteAuthScopes...)
	if d.ToolsOverride == "" {
		return nil
	}
	data, err := d.file("tools-override", d.ToolsOverride, maxDocument)
	if err != nil {
		return err
	}
	// The inner object may stand alone.
	var outer map[string]json.RawMessage
	if json.Unmarshal(data, &outer) == nil && (len(outer) != 1 || outer["toolsOverride"] == nil) {
		data = slices.Concat([]byte(`{"toolsOverride":`), data, []byte("}"))
	}
	var file struct {
		ToolsOverride map[string]v1beta1.ToolOverride `json:"toolsOverride"`
	}
	if err := d.decode("tools-override", d.ToolsOverride, data, &file); err != nil {
		return err
	}
	if d.overrides = file.ToolsOverride; len(d.overrides) == 0 {
		return wrong("tools-override", "%s names no tool", edge.Brief(d.ToolsOverride))
	}
	return oneName("tools-override", d.overrides)
}

// oneName refuses overrides by which two tools have one name.
func oneName(flag string, overrides map[string]v1beta1.ToolOverride) error {
	called := map[string]string{}
	for _, tool := range slices.Sorted(maps.Keys(overrides)) {
		name := cmp.Or(overrides[tool].Name, tool)
		if first, ok := called[name]; ok {
			return wrong(flag, "%s and %s are both called %s", edge.Brief(first), edge.Brief(tool), edge.Brief(name))
		}
		called[name] = tool
	}
	return nil
}

// readFiles looks at files that are read again while the workload runs.
func (d *draft) readFiles() error {
	if d.CABundle != "" {
		data, err := d.file("weir-ca-bundle", d.CABundle, maxDocument)
		if err != nil {
			return err
		}
		if !edge.HasCertificate(data) {
			return wrong("weir-ca-bundle", "%s holds no certificate in PEM", edge.Brief(d.CABundle))
		}
		d.CABundle = d.path(d.CABundle)
	}
	if err := runner.CheckBase(d.RuntimeImage, nil); err != nil {
		return wrong("runtime-image", "%v", err)
	}
	if err := runner.CheckBase("", d.RuntimeAddPackages); err != nil {
		return wrong("runtime-add-package", "%v", err)
	}
	if d.CACert != "" {
		data, err := d.file("ca-cert", d.CACert, maxDocument)
		if err == nil {
			why := runner.CheckCA(data)
			if len(data) == 0 {
				why = errors.New("it is empty")
			}
			if why != nil {
				err = wrong("ca-cert", "%s: %v", edge.Brief(d.CACert), why)
			}
		}
		if err != nil {
			return err
		}
		d.CACert = d.path(d.CACert)
	}
	if d.JWKSAuthTokenFile != "" {
		data, err := d.file("jwks-auth-token-file", d.JWKSAuthTokenFile, maxSecretFile)
		if err == nil && strings.TrimSpace(string(data)) == "" {
			err = wrong("jwks-auth-token-file", "%s: it is empty", edge.Brief(d.JWKSAuthTokenFile))
		}
		if err != nil {
			return err
		}
		d.JWKSAuthTokenFile = d.path(d.JWKSAuthTokenFile)
	}
	return nil
}

// readSecrets keeps the values that flags gave, or files that they name, as secrets. The files
// of what a server at a URL is sent stay where they are: whoever sends reads them again.
func (d *draft) readSecrets() error {
	for _, s := range []struct {
		flag, value, file, key string
		to                     **v1beta1.SecretRef
		stays                  *string // the path of a file that is read again; nil for none
	}{
		{"oidc-client-secret", d.OIDCClientSecret, "", "oidc-client-secret", &d.oidcSecret, nil},
		{"remote-auth-bearer-token", d.RemoteAuthBearerToken, d.RemoteAuthBearerTokenFile, "bearer-token", &d.bearer, &d.RemoteAuthBearerTokenFile},
		{"remote-auth-client-secret", d.RemoteAuthClientSecret, d.RemoteAuthClientSecretFile, "remote-auth-client-secret", &d.loginSecret, &d.RemoteAuthClientSecretFile},
		{"token-exchange-client-secret", d.TokenExchangeClientSecret, d.TokenExchangeClientSecretFile, "token-exchange-client-secret", &d.exchangeSecret, nil},
	} {
		value, flag := s.value, s.flag
		if s.file != "" {
			flag += "-file"
			data, err := d.file(flag, s.file, maxSecretFile)
			if err != nil {
				return err
			}
			value = string(data)
		}
		value = strings.TrimRight(value, "\r\n")
		switch {
		case value == "" && d.Given[flag]:
			return wrong(flag, "it is empty")
		case value == "":
		case strings.ContainsAny(value, "\x00\r\n"):
			return wrong(flag, "it is not one line of text")
		case s.file != "" && s.stays != nil:
			*s.stays = d.path(s.file)
		default:
			*s.to = d.keep(s.key, value)
		}
	}
	return nil
}

// public are what to know of a workload at a host that others than this machine reach, each with
// what to do.
func public(host string, asks, origins bool, ask, origin string) (notes []string) {
	if loopback(host) {
		return nil
	}
	notes = append(notes, fmt.Sprintf("others than this machine reach %s", edge.Brief(host)))
	if !asks {
		notes = append(notes, "nobody asks them who they are: "+ask)
	}
	if !origins {
		notes = append(notes, "any web page that they visit may call the workload: "+origin)
	}
	return notes
}

// keep keeps a value as a secret of the workload.
func (d *draft) keep(key, value string) *v1beta1.SecretRef {
	d.secrets = append(d.secrets, Secret{d.name, key, edge.Secret(value)})
	return &v1beta1.SecretRef{Name: d.name, Key: key}
}

// free is a key that no secret of the workload has yet: names may differ and be the same as keys.
func (d *draft) free(key string) string {
	base := key
	for n := 2; slices.ContainsFunc(d.secrets, func(s Secret) bool { return s.Key == key }); n++ {
		key = fmt.Sprintf("%s-%d", base, n)
	}
	return key
}

// secretRef reads the name of a secret, as users write it.
func secretRef(flag, text string) (v1beta1.SecretRef, error) {
	ref, err := secret.ParseRef(text)
	if err != nil {
		return v1beta1.SecretRef{}, wrong(flag, "%s", err)
	}
	return v1beta1.SecretRef{Name: ref.Name, Key: ref.Key}, nil
}

// readHeaders reads headers, whose values may be secrets.
func (d *draft) readHeaders() error {
	seen := map[string]bool{}
	once := func(flag, name string) error {
		if lower := flag[:4] + strings.ToLower(name); seen[lower] {
			return wrong(flag, "%s is given twice", edge.Brief(name))
		} else {
			seen[lower] = true
		}
		return nil
	}
	for _, text := range d.OtelHeaders {
		name, value, _ := strings.Cut(text, "=")
		if err := once("otel-headers", name); err != nil {
			return err
		}
		rest, sealed := strings.CutPrefix(value, "secret://")
		if !sealed {
			if d.headers == nil {
				d.headers = map[string]string{}
			}
			d.headers[name] = value
			continue
		}
		ref, err := secretRef("otel-headers", rest)
		if err != nil {
			return err
		}
		d.sealed = append(d.sealed, v1beta1.SensitiveHeader{Name: name, SecretKeyRef: ref})
	}
	forward := d.forward // of an entry
	if forward == nil {
		forward = &v1beta1.HeaderForward{}
	}
	for _, text := range d.RemoteForwardHeaders {
		name, value, _ := strings.Cut(text, "=")
		if err := once("remote-forward-headers", name); err != nil {
			return err
		}
		if forward.AddPlaintextHeaders == nil {
			forward.AddPlaintextHeaders = map[string]string{}
		}
		forward.AddPlaintextHeaders[name] = value
	}
	for _, text := range d.RemoteForwardHeadersSecret {
		name, value, _ := strings.Cut(text, "=")
		if err := once("remote-forward-headers-secret", name); err != nil {
			return err
		}
		ref, err := secretRef("remote-forward-headers-secret", value)
		if err != nil {
			return err
		}
		forward.AddHeadersFromSecret = append(forward.AddHeadersFromSecret, v1beta1.SecretHeader{HeaderName: name, ValueSecretRef: ref})
	}
	if len(forward.AddPlaintextHeaders)+len(forward.AddHeadersFromSecret) > 0 {
		d.forward = forward
	}
	return nil
}

// remark notes what is good to know.
func (d *draft) remark() {
	say := func(format string, args ...any) { d.notes = append(d.notes, note(format, args...)) }
	for _, v := range d.env {
		if (secret.ReadsLike(v.Name) || d.Entry.IsSecret(v.Name)) && v.Value != "" {
			say("--env: %[1]s reads like a secret, and stands in the manifest in clear: keep it with `weir secret set %[1]s` and give --secret %[1]s,target=%[1]s", v.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.headers)) {
		if secret.HeaderReadsLike(name) {
			say("--otel-headers: %[1]s reads like a secret, and stands in the manifest in clear: keep it with `weir secret set NAME` and give --otel-headers %[1]s=secret://NAME", edge.Brief(name))
		}
	}
	secret.InQuery(d.server.URL, func(name, value string) string {
		say("%s in the query of the URL reads like a secret, and stands in the manifest in clear: where the server takes it in a header, keep it with `weir secret set NAME` and give --remote-forward-headers-secret HEADER=NAME", edge.Brief(name))
		return value
	})
	if d.forward != nil {
		for _, name := range slices.Sorted(maps.Keys(d.forward.AddPlaintextHeaders)) {
			if secret.HeaderReadsLike(name) || d.Entry.IsSecret(name) {
				say("--remote-forward-headers: %[1]s reads like a secret, and stands in the manifest in clear: keep it with `weir secret set NAME` and give --remote-forward-headers-secret %[1]s=NAME", edge.Brief(name))
			}
		}
	}
	for _, n := range public(d.Host, d.asksWho(), len(d.AllowedOrigins) > 0, "give --oidc-issuer and --oidc-audience", "give --allowed-origins") {
		say("--host: %s", n)
	}
	if d.OIDCIssuer == "" && d.OIDCIntrospectionURL != "" {
		say("--oidc-introspection-url: it is asked about every token, and without --oidc-issuer clients are not told who gives them one")
	}
	if d.TokenExchangeURL != "" && !d.asksWho() {
		say("--token-exchange-url: nobody verifies the tokens of clients: they go to that endpoint as they come, and nowhere else; --oidc-issuer and --oidc-audience have them verified")
	}
	if flag := d.firstGiven("otel-", "otel-endpoint", "otel-enable-prometheus-metrics-path"); flag != "" && d.OtelEndpoint == "" && !d.OtelPrometheus {
		say("--%s: without --otel-endpoint nothing is sent, and it says nothing", flag)
	}
	if d.given("isolate-network") && !d.IsolateNetwork && d.AllowGateway {
		say("--allow-container-gateway: nothing is blocked with --isolate-network=false, and it says nothing")
		d.AllowGateway = false
	}
	if d.given("isolate-network") && !d.IsolateNetwork && d.given("permission-profile") && d.PermissionProfile != "network" {
		say("--permission-profile: with --isolate-network=false the server goes out wherever it likes, and what the profile says of networks says nothing")
	}
	if d.Network == "host" {
		say("--network: the server is in the network of this machine, and nothing of it is kept from it")
	}
	if d.Sandbox != "off" && filepath.Base(filepath.Dir(d.server.Image)) == "shims" {
		say("%s is a shim, which looks for the program in directories that the server does not see: name the program itself, as pyenv which and its like print it", edge.Brief(strings.TrimPrefix(d.server.Image, "exec://")))
	}
	for _, arg := range d.server.Args {
		if path := d.path(arg); !strings.HasPrefix(arg, "-") && strings.ContainsAny(arg, `/.`) && (arg != path || !d.visible(path)) {
			if _, err := os.Stat(path); err == nil && d.visible(path) {
				say("the server is in a directory of its own: name %s as %s", edge.Brief(arg), path)
			} else if err == nil {
				more := ""
				if arg != path {
					more = ", and name it " + path
				}
				say("the server does not see %s: make it, or the directory that it needs, visible: -v %s:%[2]s:ro%s", edge.Brief(arg), path, more)
			}
		}
	}
}

// visible reports whether the server sees a path, in a sandbox or in none.
func (d *draft) visible(path string) bool {
	below := func(top string) bool { return path == top || strings.HasPrefix(path, strings.TrimSuffix(top, "/")+"/") }
	return d.Sandbox == "off" || slices.ContainsFunc(systemPaths, below) ||
		slices.ContainsFunc(d.volumes, func(v v1beta1.HostVolume) bool { return below(v.MountPath) })
}

// systemPaths are what every sandbox shows of this machine.
var systemPaths = []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt"}
