package workload

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// What of a command line is refused before anything is read or started.

// wrong is the error about a flag that makes no sense.
func wrong(flag, format string, args ...any) error {
	return &Error{Code: CodeInvalid, Field: "--" + flag, Message: "--" + flag + ": " + fmt.Sprintf(format, args...)}
}

// check refuses what is wrong with the flags by themselves.
func (o *Options) check() error {
	for _, check := range []func() error{o.checkLater, o.checkWords, o.checkPorts, o.checkPairs, o.checkEmpty, o.checkGroups, o.checkNetwork} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkLater refuses the flags of what does not exist yet, by name.
func (o *Options) checkLater() error {
	for _, f := range Flags() {
		if f.Later == "" || !o.Given[f.Name] {
			continue
		}
		return &Error{Code: CodeSandbox, Field: "--" + f.Name, Message: "--" + f.Name + ": not supported yet: " + f.Later, Next: "leave it out"}
	}
	return nil
}

// checkWords refuses values that are none of the words that a flag takes.
func (o *Options) checkWords() error {
	for _, c := range []struct {
		flag, value string
		words       []string
	}{
		{"transport", o.Transport, []string{"", "stdio", "streamable-http", "sse"}},
		{"proxy-mode", o.ProxyMode, []string{"streamable-http", "sse"}},
		{"image-verification", o.ImageVerification, []string{"warn", "enabled", "disabled"}},
		{"processes", o.Processes, []string{"session", "shared"}},
		{"restart", o.Restart, []string{"on-failure", "always", "no"}},
		{"sandbox", o.Sandbox, []string{"auto", "bwrap", "landlock", "off"}},
		{"token-exchange-subject-token-type", o.TokenExchangeSubjectTokenType, []string{"access_token", "id_token"}},
	} {
		if !slices.Contains(c.words, c.value) || c.value == "" && o.Given[c.flag] {
			return wrong(c.flag, "%q is none of %s", edge.Brief(c.value), strings.Join(slices.DeleteFunc(c.words, func(w string) bool { return w == "" }), ", "))
		}
	}
	switch {
	case o.Given["name"] && !IsName(o.Name):
		return wrong("name", "%q: use small letters, digits and -, at most 63, and no - at an end", edge.Brief(o.Name))
	case o.Given["group"] && !IsName(o.Group):
		return wrong("group", "%q is no name of a group", edge.Brief(o.Group))
	case o.EndpointPrefix != "" && !strings.HasPrefix(o.EndpointPrefix, "/"):
		return wrong("endpoint-prefix", "%q does not begin with /", edge.Brief(o.EndpointPrefix))
	case o.SessionTTL < 0:
		return wrong("session-ttl", "%s is negative", o.SessionTTL)
	case o.OtelSamplingRate < 0 || o.OtelSamplingRate > 1 || o.OtelSamplingRate != o.OtelSamplingRate:
		return wrong("otel-sampling-rate", "%v is not from 0 to 1", o.OtelSamplingRate)
	}
	for _, c := range []struct{ flag, value string }{{"memory", quantity(o.Memory)}, {"cpus", quantity(o.CPUs)}} {
		if n, err := v1beta1.Quantity(c.value).Milli(); err != nil || c.value != "" && n <= 0 {
			return wrong(c.flag, "%q is no size such as 512MiB, or number such as 0.5", edge.Brief(c.value))
		}
	}
	return nil
}

func (o *Options) checkPorts() error {
	for _, text := range o.Publish {
		if _, ok := v1beta1.ParsePublished(text); !ok {
			return wrong("publish", "%q: write HOST:CONTAINER or IP:HOST:CONTAINER, two ports of TCP from 1 to 65535", edge.Brief(text))
		}
	}
	for _, p := range []struct {
		flag        string
		value, from int
	}{{"proxy-port", o.ProxyPort, 0}, {"target-port", o.TargetPort, 0}, {"max-processes", o.MaxProcesses, 1}} {
		most := 65535
		if p.flag == "max-processes" {
			most = 1024
		}
		if p.flag == "target-port" && o.Given[p.flag] {
			p.from = 1
		}
		if p.value < p.from || p.value > most {
			return wrong(p.flag, "%d is not from %d to %d", p.value, p.from, most)
		}
	}
	return nil
}

// checkPairs refuses values that are no NAME=VALUE, and names that make no sense.
func (o *Options) checkPairs() error {
	for _, p := range []struct {
		flag   string
		values []string
	}{
		{"env", o.Env}, {"label", o.Labels}, {"otel-headers", o.OtelHeaders}, {"otel-custom-attributes", splitList(o.OtelCustomAttributes)},
		{"remote-forward-headers", o.RemoteForwardHeaders}, {"remote-forward-headers-secret", o.RemoteForwardHeadersSecret},
	} {
		for _, text := range p.values {
			name, value, ok := strings.Cut(text, "=")
			switch {
			case !ok:
				return wrong(p.flag, "there is no = in %s", shown(p.flag, text))
			case name == "" || strings.ContainsAny(name, "\x00 \t\r\n"):
				return wrong(p.flag, "%q is no name", edge.Brief(name))
			case strings.ContainsRune(value, 0):
				return wrong(p.flag, "the value of %s holds a NUL byte", edge.Brief(name))
			case p.flag == "label" && strings.HasPrefix(name, ownAnnotations):
				return wrong(p.flag, "%q: labels of %s are set by Weir alone", edge.Brief(name), ownAnnotations)
			}
		}
	}
	targets := map[string]bool{}
	for _, text := range o.Secrets {
		_, target, err := secretFlag(text)
		if err != nil {
			return err
		}
		if targets[target] {
			return wrong("secret", "%s is set twice", edge.Brief(target))
		}
		targets[target] = true
	}
	for _, name := range splitList(o.OtelEnvVars...) {
		if targets[name] || strings.HasPrefix(name, "WEIR_") {
			return wrong("otel-env-vars", "%s may be a secret: take it out", edge.Brief(name))
		}
	}
	return nil
}

// checkEmpty refuses flags that were given nothing, as by a variable of the shell that is not
// set: what they are to forbid would be allowed without a word. Scopes may be none.
func (o *Options) checkEmpty() error {
	for _, f := range Flags() {
		empty, odd := false, false
		switch value := f.Of(o).(type) {
		case *string:
			empty, odd = *value == "", !utf8.ValidString(*value)
		case *[]string:
			nothing := f.Commas && len(splitList(*value...)) == 0 // as of "$A,$B"
			empty = (nothing || slices.Contains(*value, "")) && !strings.HasSuffix(f.Name, "-scopes")
			odd = !utf8.ValidString(strings.Join(*value, "\n"))
		}
		if odd { // which would be others in a manifest
			return wrong(f.Name, "it holds bytes that are not UTF-8: give it in UTF-8")
		}
		if empty && o.Given[f.Name] {
			return wrong(f.Name, "it is empty: give it a value, or leave it out")
		}
	}
	return nil
}

// shown is a value for a message. A text without = may be a secret.
func shown(flag, text string) string {
	if flag == "env" || strings.Contains(flag, "headers") {
		return fmt.Sprintf("one of %d bytes", len(text))
	}
	return fmt.Sprintf("%q", edge.Brief(text))
}

// secretFlag reads NAME,target=VARIABLE.
func secretFlag(text string) (ref v1beta1.SecretRef, target string, err error) {
	name, rest, ok := strings.Cut(text, ",")
	target, is := strings.CutPrefix(rest, "target=")
	if !ok || !is || name == "" || target == "" {
		return ref, "", wrong("secret", "write NAME,target=VARIABLE: a name that `weir secret list` shows, and a variable of the server's environment")
	}
	if ref, err = secretRef("secret", name); err != nil {
		return ref, "", err
	}
	if strings.ContainsAny(target, "=, \t\r\n\x00") {
		return ref, "", wrong("secret", "%q is no name of a variable", edge.Brief(target))
	}
	return ref, target, nil
}

// checkGroups refuses flags that others are missing for, or that contradict each other.
func (o *Options) checkGroups() error {
	switch oidc := o.firstGiven("oidc-", "oidc-issuer", "oidc-introspection-url"); {
	case !o.asksWho() && oidc != "":
		return wrong(oidc, "give --oidc-issuer or --oidc-introspection-url, too")
	case !o.asksWho() && o.given("jwks-allow-private-ip", "jwks-auth-token-file", "resource-url"):
		return wrong(o.firstGiven("", slices.DeleteFunc(flagNames(), func(f string) bool {
			return slices.Contains([]string{"jwks-allow-private-ip", "jwks-auth-token-file", "resource-url"}, f)
		})...), "give --oidc-issuer or --oidc-introspection-url, too")
	case o.OIDCIntrospectionURL != "" && edge.HostOf(o.OIDCIntrospectionURL) == "":
		return wrong("oidc-introspection-url", "%q is no URL such as https://login.example.com/introspect", edge.Brief(o.OIDCIntrospectionURL))
	case o.OIDCIssuer == "" && o.OIDCJWKSURL != "":
		return wrong("oidc-jwks-url", "give --oidc-issuer, too: nobody says whose keys these are")
	case o.OIDCIssuer == "" && o.JWKSAuthTokenFile != "":
		return wrong("jwks-auth-token-file", "give --oidc-issuer, too: without it no keys are asked for")
	case o.OIDCIssuer == "" && o.JWKSAllowPrivateIP:
		return wrong("jwks-allow-private-ip", "give --oidc-issuer, too: without it no keys are asked for, and --oidc-introspection-url may be any address")
	case o.OIDCIssuer == "" && o.OIDCIntrospectionURL != "" && o.OIDCAudience == "":
		return wrong("oidc-introspection-url", "give --oidc-audience, too: a token for another server would open this one")
	case o.OIDCIssuer != "" && edge.HostOf(o.OIDCIssuer) == "":
		return wrong("oidc-issuer", "%q is no URL such as https://login.example.com", edge.Brief(o.OIDCIssuer))
	case o.OIDCIssuer != "" && o.OIDCAudience == "":
		return wrong("oidc-issuer", "give --oidc-audience, too: a token for another server would open this one")
	case o.RemoteAuthBearerToken != "" && o.RemoteAuthBearerTokenFile != "":
		return wrong("remote-auth-bearer-token-file", "and --remote-auth-bearer-token say the same: leave one out")
	case o.TokenExchangeClientSecret != "" && o.TokenExchangeClientSecretFile != "":
		return wrong("token-exchange-client-secret-file", "and --token-exchange-client-secret say the same: leave one out")
	}
	if err := o.checkLogin(); err != nil {
		return err
	}
	exchange := o.firstGiven("token-exchange-", "token-exchange-url")
	switch {
	case o.TokenExchangeURL == "" && exchange != "":
		return wrong(exchange, "give --token-exchange-url, too")
	case o.TokenExchangeURL == "":
	case o.TokenExchangeAudience == "":
		return wrong("token-exchange-url", "give --token-exchange-audience, too")
	case o.given("remote-auth-bearer-token", "remote-auth-bearer-token-file"):
		return wrong("token-exchange-url", "the server is sent a bearer token: leave one out")
	}
	return nil
}

// asksWho reports whether clients are asked who they are.
func (o *Options) asksWho() bool { return o.OIDCIssuer != "" || o.OIDCIntrospectionURL != "" }

// logsIn reports whether the server is sent a login.
func (o *Options) logsIn() bool {
	return o.RemoteAuth || o.firstGiven("remote-auth-", bearerFlags...) != ""
}

// CredentialHeader is the header in which the server is sent the credential that flags describe;
// "" for none.
func (o *Options) CredentialHeader() string {
	switch {
	case o.logsIn() || o.RemoteAuthBearerToken+o.RemoteAuthBearerTokenFile != "":
		return "Authorization"
	case o.TokenExchangeURL != "":
		return cmp.Or(o.TokenExchangeHeaderName, "Authorization")
	}
	return ""
}

// bearerFlags are those of a token that nobody logs in for.
var bearerFlags = []string{"remote-auth-bearer-token", "remote-auth-bearer-token-file"}

// idle reports whether a switch was given to be off.
func (o *Options) idle(flag string) bool { return flag == "remote-auth" && !o.RemoteAuth }

// checkLogin refuses what makes no login to a server at a URL.
func (o *Options) checkLogin() error {
	if !o.logsIn() {
		return nil
	}
	first := o.firstGiven("remote-auth", bearerFlags...)
	switch {
	case o.given(bearerFlags...):
		return wrong(first, "the server is sent a bearer token: leave one out")
	case o.given("token-exchange-url"):
		return wrong(first, "the server is sent tokens that --token-exchange-url gives: leave one out")
	case o.Given["remote-auth"] && !o.RemoteAuth:
		return wrong(o.firstGiven("remote-auth-", bearerFlags...), "and --remote-auth=false: leave one out")
	case (o.RemoteAuthAuthorizeURL == "") != (o.RemoteAuthTokenURL == ""):
		if o.RemoteAuthTokenURL == "" {
			return wrong("remote-auth-authorize-url", "give --remote-auth-token-url, too, or --remote-auth-issuer alone")
		}
		return wrong("remote-auth-token-url", "give --remote-auth-authorize-url, too, or --remote-auth-issuer alone")
	case o.RemoteAuthIssuer != "" && o.RemoteAuthTokenURL != "":
		return wrong("remote-auth-issuer", "its metadata name the endpoints: leave out --remote-auth-authorize-url and --remote-auth-token-url, or the issuer")
	case o.RemoteAuthClientSecret != "" && o.RemoteAuthClientSecretFile != "":
		return wrong("remote-auth-client-secret-file", "and --remote-auth-client-secret say the same: leave one out")
	case o.given("remote-auth-client-secret", "remote-auth-client-secret-file") && o.RemoteAuthClientID == "":
		return wrong(o.firstGiven("remote-auth-client-secret"), "it is of a client: give --remote-auth-client-id, too")
	case o.RemoteAuthCallbackPort < 1 || o.RemoteAuthCallbackPort > 65535:
		return wrong("remote-auth-callback-port", "%d is not from 1 to 65535", o.RemoteAuthCallbackPort)
	case o.RemoteAuthTimeout < time.Second:
		return wrong("remote-auth-timeout", "%s is less than a second", o.RemoteAuthTimeout)
	}
	for _, u := range []struct{ flag, value string }{
		{"remote-auth-issuer", o.RemoteAuthIssuer}, {"remote-auth-authorize-url", o.RemoteAuthAuthorizeURL}, {"remote-auth-token-url", o.RemoteAuthTokenURL},
	} {
		if at, err := url.Parse(u.value); u.value != "" && (err != nil || at.Scheme != "https" && (at.Scheme != "http" || !loopback(at.Hostname()))) {
			return wrong(u.flag, "%q is no https URL", edge.Brief(u.value))
		}
	}
	return nil
}

func flagNames() (names []string) {
	for _, f := range Flags() {
		names = append(names, f.Name)
	}
	return names
}

// checkNetwork refuses a network beside what it contradicts.
func (o *Options) checkNetwork() error {
	explicit := o.given("isolate-network") && o.IsolateNetwork
	open := o.given("isolate-network") && !o.IsolateNetwork
	for _, port := range o.EgressPort {
		if port < 1 || port > 65535 {
			return wrong("egress-port", "%d is not from 1 to 65535", port)
		}
	}
	switch {
	case len(o.EgressPort) > 0 && open:
		return wrong("egress-port", "nothing is blocked with --isolate-network=false: leave one out")
	case len(o.EgressPort) > 0 && o.Network != "":
		return wrong("egress-port", "--network %s, and a port that an isolated server reaches: leave one out", edge.Brief(o.Network))
	case o.AllowGateway && o.Network != "" && !open:
		return wrong("allow-container-gateway", "--network %s, and the gateway that an isolated server reaches: leave one out", edge.Brief(o.Network))
	case explicit && o.Network != "" && o.Network != "none":
		return wrong("network", "%s, and --isolate-network: an isolated server is in no network of the host or of the container engine: leave one out", edge.Brief(o.Network))
	}
	return nil
}

// suits refuses flags that make no sense for the server that was named.
func (o *Options) suits(s Server) error {
	if s.URL == "" && isLocal(s.Image) {
		switch {
		case o.Network != "" && o.Network != "host" && o.Network != "none":
			return wrong("network", "%q: a process of this machine has host or none", edge.Brief(o.Network))
		case o.given("allow-privileged") && o.AllowPrivileged:
			return wrong("allow-privileged", "a process of this machine has your rights at the most: leave the flag out")
		case o.ImageVerification == "enabled":
			return wrong("image-verification", "enabled, and what is started is no image of a registry: nothing says who made it: leave the flag out")
		case o.given("run-as"):
			return wrong("run-as", "a process of this machine has your rights at the most: leave the flag out")
		}
	}
	if s.URL == "" && !isLocal(s.Image) && o.given("sandbox") && o.Sandbox != "auto" {
		return wrong("sandbox", "%s is for processes of this machine: a container has no other sandbox", o.Sandbox)
	}
	if s.URL == "" && !isBuilt(s.Image) {
		for _, flag := range []string{"runtime-image", "runtime-add-package", "ca-cert"} {
			if o.given(flag) {
				return wrong(flag, "the server is no image that is built (npx://, uvx:// or go://): leave the flag out")
			}
		}
	}
	if s.URL == "" {
		if flag := o.firstGiven("remote-"); flag != "" && !o.idle(flag) {
			return wrong(flag, "the server is none at a URL")
		}
		if o.given("token-exchange-url") && (o.Transport == "" || o.Transport == "stdio") {
			return wrong("token-exchange-url", "a server that speaks stdio is sent no headers: give it what it needs with --secret")
		}
		return nil
	}
	if o.Transport == "stdio" {
		return wrong("transport", "stdio, and a URL: a server at a URL speaks streamable-http or sse")
	}
	for _, f := range Flags() {
		ofServer := f.Theme == "Server" || f.Theme == "Sandbox" || f.Name == "proxy-mode"
		if ofServer && o.Given[f.Name] && f.Name != "label" && !harmless(o, f) {
			return wrong(f.Name, "the server is at a URL, and Weir does not start it: leave the flag out")
		}
	}
	return nil
}

// harmless reports whether a flag says no more than its default.
func harmless(o *Options, f Flag) bool {
	switch value := f.Of(o).(type) {
	case *string:
		return *value == f.Default
	case *bool:
		return *value == (f.Default == "true")
	}
	return false
}

// transportOf is the transport of a server at a URL, by the custom that the older one has a
// path that ends in /sse.
func transportOf(text string) string {
	if u, err := url.Parse(text); err == nil && strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/sse") {
		return string(v1beta1.TransportSSE)
	}
	return string(v1beta1.TransportStreamableHTTP)
}
