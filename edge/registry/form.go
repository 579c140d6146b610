package registry

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Rules are what the judgement of an entry depends on besides the entry.
type Rules struct {
	// Risky reports whether a variable has programs run code that their command does not
	// name.
	Risky func(name string) bool
	// Source is the registry that the entry is of.
	Source Source
	// Engine says why no container can be started here; nil for one that can be, and for a
	// user who is to decide that.
	Engine func() error
}

// Form is one of the ways to start what an entry describes.
type Form struct {
	Field string // of the entry: packages[0], remotes[1]
	Type  string // npm, pypi, oci, … of a package; remote
	Text  string // for people: npx -y NAME@VERSION, an image, a URL
	Err   error  // an *Error where it is not started: Refused, or Later; nil where it is

	command   []string // its runner and package, or an image; nil for a server at a URL
	transport string
	url       string // of a remote, with {variables}, or of a package that speaks HTTP
	args, env []Input
	headers   []Input
	variables map[string]Input
	profile   []byte      // a permission profile; nil for none
	private   bool        // the URL may lead to a private address
	signer    *Provenance // of an image; nil where the entry does not say
}

// Image is an image that an entry names, as it is pulled: with its registry and its tag or
// digest.
func (p *Package) Image() string {
	ref, _ := p.placed() // what is wrong with it is said when it is judged
	if last := ref[strings.LastIndexByte(ref, '/')+1:]; p.Version != "" && !strings.ContainsAny(last, ":@") {
		return ref + ":" + p.Version
	}
	return ref
}

// placed is the identifier of an image with its registry, where that stands apart (schemas
// before 2025-10-11). The error says why it is not certain which one is meant.
func (p *Package) placed() (string, error) {
	base := strings.TrimSuffix(p.RegistryBaseURL, "/")
	if base == "" {
		return p.Identifier, nil
	}
	host, https := strings.CutPrefix(base, "https://")
	if !https || !hostPattern.MatchString(host) {
		return p.Identifier, fmt.Errorf("%s is no https URL of a registry of images", shown(base))
	}
	docker := slices.Contains(dockerHosts, host)
	first, _, more := strings.Cut(p.Identifier, "/")
	switch own := more && (strings.ContainsAny(first, ".:") || first == "localhost"); {
	case own && first != host && !(docker && slices.Contains(dockerHosts, first)):
		return p.Identifier, fmt.Errorf("%s is another registry than the one in the identifier %s", shown(base), shown(p.Identifier))
	case own || docker: // an image that names no registry is of that one
		return p.Identifier, nil
	}
	return host + "/" + p.Identifier, nil
}

// dockerHosts are the names of the registry of images that name none.
var dockerHosts = []string{"docker.io", "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com", "hub.docker.com"}

// Forms are the ways to start an entry, its packages first. Each says by itself whether it
// can be started.
func (e *Entry) Forms(rules Rules) (all []Form) {
	for i := range e.Packages {
		f := e.Packages[i].form(fmt.Sprintf("packages[%d]", i), rules)
		all = append(all, f)
	}
	for i := range e.Remotes {
		all = append(all, e.Remotes[i].form(fmt.Sprintf("remotes[%d]", i), rules))
	}
	if len(e.Command) > 0 && string(e.Command) != "null" {
		text := edge.Brief(Plain(string(e.Command)))
		all = append(all, Form{Field: "command", Type: "command", Text: text, Err: refused("command", "%s: an entry may not name a program of this machine", text)})
	}
	return all
}

// Choose is the first form of an entry that can be started. Where there is none the error
// says of each why; it is Refused where all are refused.
func (e *Entry) Choose(rules Rules) (*Form, error) {
	forms := e.Forms(rules)
	none := &Error{Kind: Refused, Message: e.Name + " names nothing to start: it has neither packages nor remotes"}
	var why []string
	for i := range forms {
		f := &forms[i]
		if f.Err == nil {
			return f, nil
		}
		why = append(why, f.Err.Error())
		if one := new(Error); errors.As(f.Err, &one) {
			if one.Kind == Later {
				none.Kind = Later
			}
			none.Next = cmp.Or(none.Next, one.Next)
		}
	}
	if len(why) > 0 {
		none.Message = e.Name + ": " + strings.Join(why, "; ")
	}
	return nil, none
}

// What the names of packages are like: no option, no path, no URL.
var (
	npmPattern   = regexp.MustCompile(`^(@[A-Za-z0-9~_][A-Za-z0-9._~-]*/)?[A-Za-z0-9~_][A-Za-z0-9._~-]*$`)
	pypiPattern  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)
	exactPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+_-]*$`)
	hostPattern  = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?$`)
	imagePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]*[a-z0-9])?(:[0-9]+)?(/[a-z0-9]([a-z0-9._-]*[a-z0-9])?)*(:[A-Za-z0-9_][A-Za-z0-9._-]*)?(@sha256:[0-9a-f]{64})?$`)
)

// indexes are where packages of a type come from; an entry may name no other place.
var indexes = map[string][]string{
	"npm":  {"https://registry.npmjs.org"},
	"pypi": {"https://pypi.org"},
}

// form is how a package is started.
func (p *Package) form(field string, rules Rules) Form {
	f := Form{Field: field, Type: strings.ToLower(Plain(p.RegistryType)), Text: Plain(p.Identifier), env: p.EnvironmentVariables, args: p.PackageArguments}
	if len(f.args) == 0 {
		for _, text := range p.Extra.Args {
			f.args = append(f.args, Input{Type: "positional", Value: &text})
		}
	}
	f.Err = f.judgePackage(p, rules)
	return f
}

// judgePackage says why a package is not started. What no entry may set comes first.
func (f *Form) judgePackage(p *Package, rules Rules) error {
	// 1. What an entry may never set, however it is started.
	if err := runtimeArguments(f.Field, p.RuntimeArguments); err != nil {
		return err
	}
	if err := environment(f.Field, p.EnvironmentVariables, rules); err != nil {
		return err
	}
	if err := f.permissions(p.Extra.Permissions, rules); err != nil {
		return err
	}

	// 2. The package.
	name, version := p.Identifier, ""
	if p.Version != "" {
		version = "@" + p.Version
	}
	base := strings.TrimSuffix(p.RegistryBaseURL, "/")
	switch f.Type {
	case "npm", "pypi":
		pattern, runner := npmPattern, []string{"npx", "-y"}
		if f.Type == "pypi" {
			pattern, runner = pypiPattern, []string{"uvx"}
		}
		switch {
		case len(name) > 214 || !pattern.MatchString(name):
			return refused(f.Field+".identifier", "%s is no name of a package of %s", shown(name), f.Type)
		case p.Version != "" && (!exactPattern.MatchString(p.Version) || !strings.ContainsAny(p.Version, "0123456789")): // latest and its like are tags, which move
			return refused(f.Field+".version", "%s is no exact version", shown(p.Version))
		case base != "" && !slices.Contains(indexes[f.Type], base):
			return refused(f.Field+".registryBaseUrl", "%s: an entry may not choose where packages come from", shown(base))
		}
		f.command = append(runner, name+version)
		f.Text = strings.Join(f.command, " ")
	case "oci":
		image := p.Image()
		switch _, err := p.placed(); {
		case err != nil:
			return refused(f.Field+".registryBaseUrl", "%s", err)
		case len(image) > 512 || !imagePattern.MatchString(image):
			return refused(f.Field+".identifier", "%s is no image", shown(image))
		}
		if err := f.judgeImage(image, rules.Source); err != nil {
			return err
		}
		f.Text = image
		f.command, f.signer = []string{f.Text}, p.Extra.Provenance
		if rules.Engine != nil {
			if err := rules.Engine(); err != nil {
				return &Error{Kind: Later, Field: f.Field, Message: f.Text + " is an image: " + err.Error(), Next: "start a container engine, or run its program on this machine: weir run -- COMMAND"}
			}
		}
	case "":
		return refused(f.Field+".registryType", "it says no type: npm, pypi or oci (schemas before 2025-09-16, with registry_type, are not read)")
	default:
		return refused(f.Field+".registryType", "%s: Weir starts packages of npm, pypi and oci", shown(f.Type))
	}
	if p.FileSHA256 != "" {
		return later(f.Field+".fileSha256", "where you do not need it, start it yourself: weir run -- COMMAND", "a digest of the package's file, with which nobody compares what is fetched")
	}
	return f.local(p.Transport)
}

// judgeImage judges the registry that an image names, as judgeURL does where a URL leads. An
// image that names none is of Docker's.
func (f *Form) judgeImage(image string, source Source) error {
	host, _, named := strings.Cut(image, "/")
	if named = named && (strings.ContainsAny(host, ".:") || host == "localhost"); !named {
		return nil
	}
	at := f.Field + ".identifier"
	u := &url.URL{Scheme: "https", Host: host}
	addr, _ := netip.ParseAddr(u.Hostname())
	registry, _ := url.Parse(source.At)
	switch {
	case addr.IsValid() && edge.MayDial(addr, true) != nil:
		return refused(at, "%s: %s", shown(image), edge.MayDial(addr, true))
	case source.AllowPrivate, source.URL() && registry != nil && strings.EqualFold(registry.Host, host):
	case notPublic(u.Hostname()):
		return &Error{Kind: Refused, Field: at, Message: shown(image) + ": its registry is not of the public internet", Next: "where you trust it, name it yourself: weir run IMAGE; or let this registry lead there: weir registry set --allow-private"}
	}
	return nil
}

// local judges how a program of this machine is spoken to.
func (f *Form) local(t Transport) error {
	f.transport, f.url = t.Type, t.URL
	switch t.Type {
	case "", "stdio":
		f.transport, f.url = "stdio", ""
	case "streamable-http", "sse":
		if t.URL == "" {
			return refused(f.Field+".transport.url", "a server that speaks %s needs one", t.Type)
		}
		if len(t.Headers) > 0 {
			return later(f.Field+".transport.headers", "", "headers to a program of this machine")
		}
	default:
		return refused(f.Field+".transport.type", "%s is none of stdio, streamable-http and sse", shown(t.Type))
	}
	return nil
}

// quiet are the words of runtime arguments that say nothing: what they ask for is so anyway.
var quiet = []string{"-y", "--yes", "-i", "--interactive", "--rm", "--init", "run", "-t", "--tty"}

// runtimeArguments refuses words for what starts a server: they would shape its sandbox, its
// mounts and its network.
func runtimeArguments(field string, list []Input) error {
	for i, in := range list {
		word, value := in.Name, ""
		if in.Value != nil {
			value = *in.Value
		}
		if word == "" {
			word, value = cmp.Or(value, in.Default), ""
		}
		if slices.Contains(quiet, word) && (value == "" || value == "true") {
			continue
		}
		return refused(fmt.Sprintf("%s.runtimeArguments[%d]", field, i), "%s: an entry may not say how its server is started: mounts, privileges and networks are the user's", shown(strings.TrimSpace(word+" "+value)))
	}
	return nil
}

var (
	variablePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	proxyVariables  = []string{"http_proxy", "https_proxy", "all_proxy", "no_proxy", "ftp_proxy", "node_use_env_proxy"}
	fetchPrefixes   = []string{"npm_config_", "uv_", "pip_"} // of variables that say where packages come from
	trustVariables  = []string{"ssl_cert_file", "ssl_cert_dir", "node_extra_ca_certs", "node_tls_reject_unauthorized", "requests_ca_bundle", "curl_ca_bundle", "aws_ca_bundle", "git_ssl_no_verify", "git_ssl_cainfo"}
	placeVariables  = []string{"path", "home", "userprofile", "tmpdir", "tmp", "temp", "xdg_config_home", "xdg_cache_home", "xdg_data_home", "shell", "user", "logname"}
)

// environment refuses variables that no entry may set.
func environment(field string, list []Input, rules Rules) error {
	for i, in := range list {
		at, name := fmt.Sprintf("%s.environmentVariables[%d]", field, i), strings.ToLower(in.Name)
		sets := in.Value != nil || in.Default != "" || in.IsRequired
		switch {
		case len(in.Name) > 256 || !variablePattern.MatchString(in.Name):
			return refused(at, "%s is no name of a variable", shown(in.Name))
		case rules.Risky != nil && (rules.Risky(in.Name) || rules.Risky(strings.ToUpper(in.Name))):
			return refused(at, "%s: an entry may not have programs run code that their command does not name", in.Name)
		case sets && slices.Contains(proxyVariables, name):
			return refused(at, "%s: an entry may not choose a proxy", in.Name)
		case sets && slices.Contains(trustVariables, name):
			return refused(at, "%s: an entry may not choose whom its program trusts", in.Name)
		case sets && slices.Contains(placeVariables, name):
			return refused(at, "%s: an entry may not say where the programs and files of this machine are", in.Name)
		case sets && slices.ContainsFunc(fetchPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }):
			return refused(at, "%s: an entry may not say how its package is fetched", in.Name)
		}
	}
	return nil
}

// permissions judges the permission profile of an entry. Its hosts are public ones, unless the
// user has said that this registry may lead elsewhere: a name that is listed exactly may stand
// for a private address, so each is made one with what is below it, which may not.
func (f *Form) permissions(text []byte, rules Rules) error {
	if !is(text, '{') {
		return nil
	}
	at := f.Field + " permissions"
	p, err := v1beta1.ParseProfile(text)
	if err != nil {
		return refused(at, "%s", Plain(err.Error()))
	}
	switch {
	case p.Privileged:
		return refused(at+".privileged", "an entry may not ask for privileges")
	case len(p.Network.Inbound.AllowHost) > 0:
		return refused(at+".network.inbound.allow_host", "an entry may not say under which names its server is reached")
	case p.Network.Mode != "" && p.Network.Mode != "none" && p.Network.Mode != "bridge":
		return refused(at+".network.mode", "%s: an entry may not choose a network of the host", shown(p.Network.Mode))
	}
	for _, list := range []struct {
		name   string
		mounts []string
	}{{"read", p.Read}, {"write", p.Write}} {
		for i, mount := range list.mounts {
			if !strings.HasPrefix(mount, "volume://") {
				return refused(fmt.Sprintf("%s.%s[%d]", at, list.name, i), "%s: an entry may not mount what is of this machine", shown(mount))
			}
		}
	}
	if rules.Source.AllowPrivate {
		f.profile = text
		return nil
	}
	hosts := p.Network.Outbound.AllowHost
	for i, host := range hosts {
		addr, err := netip.ParseAddr(host)
		_, network := netip.ParsePrefix(host)
		switch {
		case network == nil, err == nil && edge.MayDial(addr, false) != nil:
			return &Error{Kind: Refused, Field: fmt.Sprintf("%s.network.outbound.allow_host[%d]", at, i), Message: shown(host) + ": an entry may not lead its server to networks or private addresses", Next: "where you trust it, let this registry lead there: weir registry set --allow-private"}
		case err != nil && !strings.HasPrefix(host, "."):
			hosts[i] = "." + host
		}
	}
	if f.profile, err = json.Marshal(p); err != nil {
		return refused(at, "%s", Plain(err.Error()))
	}
	return nil
}

// form is how a server at a URL is reached.
func (r *Remote) form(field string, rules Rules) Form {
	f := Form{Field: field, Type: "remote", Text: Plain(r.URL), transport: r.Type, url: r.URL, headers: r.Headers, variables: r.Variables, private: rules.Source.AllowPrivate}
	f.Err = f.judgeRemote(rules)
	return f
}

var headerPattern = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

func (f *Form) judgeRemote(rules Rules) error {
	if f.transport != "streamable-http" && f.transport != "sse" {
		return refused(f.Field+".type", "%s is neither streamable-http nor sse", shown(f.transport))
	}
	for i, h := range f.headers {
		if len(h.Name) > 256 || !headerPattern.MatchString(h.Name) {
			return refused(fmt.Sprintf("%s.headers[%d]", f.Field, i), "%s is no name of a header", shown(h.Name))
		}
		if v1beta1.RestrictedHeader(h.Name) {
			return refused(fmt.Sprintf("%s.headers[%d]", f.Field, i), "%s is set by Weir itself", h.Name)
		}
	}
	at := f.url
	if strings.ContainsAny(at, "{}") {
		// Where the host is certain it is judged now, else when it is.
		host, _, _ := strings.Cut(strings.TrimPrefix(at, "https://"), "/")
		if strings.ContainsAny(host, "{}") {
			return nil
		}
		at = strings.NewReplacer("{", "", "}", "").Replace(at)
	}
	return f.judgeURL(at, rules.Source)
}

// judgeURL judges where an entry leads. A stranger wrote it: it leads to the public internet,
// by https, unless the user has said that this registry may lead elsewhere, or it leads back to
// the registry.
func (f *Form) judgeURL(text string, source Source) error {
	at := f.Field + ".url"
	u, err := oauth.ParseURL(text, true)
	if err != nil {
		return refused(at, "%s: %s", shown(text), err)
	}
	own := source.URL() && sameOrigin(u, source.At)
	f.private = source.AllowPrivate || own
	private := notPublic(u.Hostname())
	next := "where you trust it, name it yourself: weir run URL; or let this registry lead there: weir registry set --allow-private"
	addr, _ := netip.ParseAddr(strings.TrimSuffix(u.Hostname(), "."))
	switch {
	case addr.IsValid() && edge.MayDial(addr, true) != nil:
		return refused(at, "%s: %s", shown(text), edge.MayDial(addr, true))
	case own:
	case u.Scheme == "http" && !(private && source.AllowPrivate):
		return &Error{Kind: Refused, Field: at, Message: shown(text) + ": its scheme is http, which is not allowed", Next: "where you trust it, name it yourself: weir run URL"}
	case private && !source.AllowPrivate:
		return &Error{Kind: Refused, Field: at, Message: shown(text) + ": its host is not of the public internet", Next: next}
	}
	return nil
}

func sameOrigin(u *url.URL, other string) bool {
	o, err := url.Parse(other)
	return err == nil && u.Scheme == o.Scheme && strings.EqualFold(u.Host, o.Host)
}

// notPublic reports whether a host is by its name one of this machine or of a private
// network. What other names stand for is judged when they are dialled.
func notPublic(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if addr, err := netip.ParseAddr(host); err == nil {
		return edge.MayDial(addr, false) != nil
	}
	return oauth.IsLoopback(host) || !strings.Contains(host, ".")
}

// portOf is the port of a URL of a program of this machine, and whether it is one that Weir
// reaches. given takes the place of the port of the URL; 0 for nothing. Errors say what the URL
// is or does, and show none of it: values that the user gave may be in it.
func portOf(text, transport string, given int) (int, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" {
		return 0, errors.New("is no http URL")
	}
	port, err := strconv.Atoi(u.Port())
	if given > 0 {
		port, err = given, nil
	}
	path := strings.TrimSuffix(u.Path, "/")
	switch {
	case !oauth.IsLoopback(u.Hostname()) && u.Hostname() != "0.0.0.0":
		return 0, errors.New("is not on the machine that it runs on")
	case err != nil || port < 1 || port > 65535:
		return 0, errors.New("names no port")
	case path != "" && path != map[string]string{"sse": "/sse", "streamable-http": "/mcp"}[transport]:
		return 0, errors.New("has a path that is not the usual one")
	}
	return port, nil
}
