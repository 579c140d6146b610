// Package login is the client side of OAuth for MCP servers behind other people's
// authorization servers: it finds out who gives access, registers, asks the user in a
// browser, keeps what it was given, renews it and asks for more when a server wants more
// (MCP 2026-07-28, basic/authorization).
//
// login.go is the way from a refusal to a token, in numbered steps; discover.go reads the
// documents, register.go and callback.go are steps of it, grants.go the requests for tokens,
// store.go the file of what is kept, which.go what tells logins to one server apart, and session.go what a program uses: the token for the
// next request.
package login

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
)

// Defaults of Options, and the port that stands for any free one.
const (
	DefaultCallbackPort = 8666
	AnyPort             = -1
	DefaultTimeout      = 30 * time.Second
)

// Grant is how tokens are asked for.
type Grant string

// The grants. Code is that of a user in a browser, ClientCredentials that of a program on
// its own account, Enterprise exchanges an ID token of the user's identity provider
// (io.modelcontextprotocol/enterprise-managed-authorization).
const (
	Code              Grant = "authorization_code"
	ClientCredentials Grant = "client_credentials"
	Enterprise        Grant = "enterprise"
)

// Options say how to get access to one MCP server. Only URL is needed: what is empty is
// discovered, or has the default that is given. URLs in it count as named by the operator.
type Options struct {
	URL string // of the MCP server

	Issuer       string // of the authorization server; discovered when empty
	AuthorizeURL string // for a server without metadata, together with TokenURL
	TokenURL     string

	ClientID          string      // empty to register (--client-metadata-url, RFC 7591)
	ClientSecret      edge.Secret // of the client; empty for none
	ClientSecretFile  string      // that holds it, read for each request; in place of ClientSecret
	PrivateKeyFile    string      // PEM or JWK, by which the client proves itself (private_key_jwt), in place of a secret
	ClientMetadataURL string      // https URL of a document about this installation, which is its client id where servers take such

	// ReadClientSecret reads the secret for each request; nil for one that does not change.
	ReadClientSecret func() (edge.Secret, error)

	Scopes     []string // empty: those of the challenge, else of the resource, else, with Issuer, openid profile email
	ScopeParam string   // name of the parameter that carries them to the authorization endpoint; scope when empty
	Resource   string   // resource indicator (RFC 8707); that of the server's metadata when empty

	CallbackPort int           // of the loopback address 127.0.0.1; 0 for DefaultCallbackPort
	SkipBrowser  bool          // print the URL, and open nothing
	Timeout      time.Duration // of the whole flow; 0 for DefaultTimeout

	BearerToken     edge.Secret // sent as it is: no OAuth
	BearerTokenFile string      // that holds it, read for each request

	Grant Grant // Code when empty

	// Main makes the login the one that commands use which name the URL alone.
	Main bool

	// Of Enterprise: who gives the identity assertion (ID-JAG), as whom, and for which user.
	IDPTokenURL         string
	IDPClientID         string
	IDPClientSecretFile string // empty for none
	IDTokenFile         string // holds the user's ID token, read for each request

	// Say tells the user something, a line each; nil for nobody.
	Say func(line string)
	// Browse opens a URL in the user's browser; nil for the system's way.
	Browse func(url string) error
}

// Check returns what is wrong with the options, each fault in a line that begins with the
// name of the flag.
func (o *Options) Check() error {
	var wrong []error
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	for _, one := range []struct {
		flag, text string
		https      bool
	}{
		{"issuer", o.Issuer, false}, {"authorize-url", o.AuthorizeURL, false}, {"token-url", o.TokenURL, false},
		{"idp-token-url", o.IDPTokenURL, false}, {"client-metadata-url", o.ClientMetadataURL, true},
	} {
		if one.text == "" {
			continue
		}
		switch u, err := oauth.ParseURL(one.text, true); {
		case err != nil:
			bad("%s: %v: give an https URL", one.flag, err)
		case u.Scheme == "http" && (one.https || !oauth.IsLoopback(u.Hostname())):
			bad("%s: its scheme is http: give an https URL", one.flag)
		}
	}
	if u, err := oauth.ParseURL(o.URL, true); err != nil || len(u.Hostname()) == 0 {
		bad("URL: %v: give the https URL of an MCP server", err)
	}
	if o.Resource != "" {
		u, err := url.Parse(o.Resource)
		switch {
		case err != nil || u.Scheme == "" || strings.Contains(o.Resource, "#"):
			err = errors.New("it is no absolute URI without a fragment (RFC 8707)")
		case u.Scheme == "https" || u.Scheme == "http":
			_, err = oauth.ParseURL(o.Resource, true)
		}
		if err != nil {
			bad("resource: %v: give the URI by which the authorization server knows the MCP server", err)
		}
	}
	if (o.AuthorizeURL == "") != (o.TokenURL == "") && o.grant() == Code {
		bad("authorize-url: it goes together with token-url: give both, or the issuer alone")
	}
	if o.Issuer != "" && o.TokenURL != "" {
		bad("issuer: its metadata name the endpoints: leave out authorize-url and token-url, or the issuer")
	}
	for _, s := range o.Scopes {
		if !oauth.IsScope(s) {
			bad("scopes: %q is no scope", edge.Brief(s))
		}
	}
	if o.CallbackPort < AnyPort || o.CallbackPort > 65535 {
		bad("callback-port: %d is no port", o.CallbackPort)
	}
	if o.Timeout < 0 {
		bad("timeout: %s: give a positive duration, such as 2m", o.Timeout)
	}
	if n := count(o.ClientSecret != "", o.ClientSecretFile != "", o.PrivateKeyFile != ""); n > 1 {
		bad("client-secret: a secret, a file of it and a private key are ways to say one thing: give one")
	} else if n == 1 && o.ClientID == "" {
		bad("client-secret: it is of a client: give its client-id too")
	}
	if count(o.BearerToken != "", o.BearerTokenFile != "") > 1 {
		bad("bearer-token: a token and a file of it are ways to say one thing: give one")
	}
	switch o.grant() {
	case Code:
	case ClientCredentials:
		if o.ClientID == "" || count(o.ClientSecret != "", o.ClientSecretFile != "", o.PrivateKeyFile != "") == 0 {
			bad("client-credentials: they are of a client: give client-id, and client-secret-file or private-key-file")
		}
	case Enterprise:
		if o.ClientID == "" || o.IDPTokenURL == "" || o.IDPClientID == "" || o.IDTokenFile == "" {
			bad("id-token-file: give idp-token-url, idp-client-id and client-id with it")
		}
	default:
		bad("grant: %q is none", edge.Brief(string(o.Grant)))
	}
	return errors.Join(wrong...)
}

func count(is ...bool) (n int) {
	for _, one := range is {
		if one {
			n++
		}
	}
	return n
}

func (o *Options) grant() Grant {
	if o.Grant == "" {
		return Code
	}
	return o.Grant
}

func (o *Options) say(format string, args ...any) {
	if o.Say != nil {
		o.Say(edge.Clean(fmt.Sprintf(format, args...)))
	}
}

// named are the URLs whose origins count as named by the operator.
func (o *Options) named() []string {
	return []string{o.URL, o.Issuer, o.AuthorizeURL, o.TokenURL, o.IDPTokenURL}
}

// trust is who named a URL, and allowHTTP whether it may be of http: on loopback alone, or
// where it is the very server that the operator named.
func (o *Options) trust(text string) (trust oauth.Trust, allowHTTP bool) {
	if slices.ContainsFunc(o.named(), func(n string) bool { return n != "" && oauth.SameOrigin(text, n) }) {
		return oauth.Named, true
	}
	return oauth.Learned, false
}

// endpoint judges the URL of an endpoint, which sees codes and credentials: it is https, or
// http on this machine where the operator named it or allows that (dev).
func (o *Options) endpoint(name, text string, dev bool) error {
	if text == "" {
		return fmt.Errorf("%s: the authorization server names none", name)
	}
	u, err := oauth.ParseURL(text, true)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if u.Scheme == "http" {
		place := edge.Brief(shown(text))
		if !oauth.IsLoopback(u.Hostname()) {
			return fmt.Errorf("%s: its scheme is http (%s): it has to be https", name, place)
		}
		if _, named := o.trust(text); !named && !dev {
			return fmt.Errorf("%s: its scheme is http (%s): for development, dev-loopback allows that on this machine", name, place)
		}
	}
	return nil
}

const maxSecretFile = 64 << 10 // bytes

// secretOf reads a secret from a file, at the time when it is needed.
func secretOf(flag, path string) (edge.Secret, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w: name a file with one line in it", flag, err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" || len(text) > maxSecretFile || strings.ContainsAny(secret, "\r\n\x00") {
		return "", fmt.Errorf("%s: %s: it holds no line of text alone", flag, path)
	}
	return edge.Secret(secret), nil
}
