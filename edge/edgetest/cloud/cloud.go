// Package cloud is a cloud for tests: a security token service that gives sessions for web
// identity tokens, and what stands before a backend that takes requests signed by such
// sessions alone. Signatures are compared with those of the AWS SDK, over what was received.
package cloud

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest/tokens"
	"github.com/weir-edge/weir/edge/oauth"
)

// maxBody bounds what is read of a request, in bytes.
const maxBody = 8 << 20

// Cloud is a security token service. It trusts the tokens of one issuer.
type Cloud struct {
	URL string // of the service
	CA  []byte // PEM

	// Instead answers a question in place of the service, where it reports true.
	Instead func(http.ResponseWriter, *http.Request) bool

	// Life is how long a session is good, in place of what was asked for; 0 for that.
	Life time.Duration

	// Asks is how many questions came.
	Asks atomic.Int64

	// Trust is the CA, in PEM, of whoever has the keys of the issuer; nil without TLS. It is set
	// before the first question.
	Trust []byte

	issuer, keys, audience string
	server                 *httptest.Server
	given                  atomic.Int64 // sessions

	mu       sync.Mutex
	roles    map[string]bool
	asked    []url.Values // what the service was asked and gave a session for
	refused  []string     // why it gave none
	sessions map[string]*Session
}

// Session is what the service gave.
type Session struct {
	Role, Name, Subject, Token string
	Expires                    time.Time
	credentials                aws.Credentials
	revoked                    bool
}

// Start starts a service, which ends with the test. It takes the tokens that issuer signs with
// the keys at a URL, for an audience, for some roles.
func Start(t testing.TB, issuer, keys, audience string, roles ...string) *Cloud {
	t.Helper()
	c := New(issuer, keys, audience, roles...)
	t.Cleanup(c.Close)
	return c
}

// New is Start for what is no test: Close ends the service.
func New(issuer, keys, audience string, roles ...string) *Cloud {
	c := &Cloud{issuer: issuer, keys: keys, audience: audience, roles: map[string]bool{}, sessions: map[string]*Session{}}
	for _, r := range roles {
		c.roles[r] = true
	}
	c.server = httptest.NewUnstartedServer(http.HandlerFunc(c.serve))
	c.server.Config.ErrorLog = log.New(io.Discard, "", 0) // who leaves in the middle of a handshake is no news
	c.server.StartTLS()
	c.URL = c.server.URL + "/"
	c.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.server.Certificate().Raw})
	return c
}

// Close ends what New began.
func (c *Cloud) Close() {
	c.server.CloseClientConnections()
	c.server.Close()
}

// Reach is what has the edge ask this service.
func (c *Cloud) Reach() edge.Reach { return edge.Reach{CAs: c.CA, STS: c.URL} }

// Asked returns what the service gave sessions for since the last time, and why it gave none.
func (c *Cloud) Asked() (granted []url.Values, refused []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	granted, refused = c.asked, c.refused
	c.asked, c.refused = nil, nil
	return granted, refused
}

// Revoke ends all sessions.
func (c *Cloud) Revoke() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sessions {
		s.revoked = true
	}
}

func (c *Cloud) serve(w http.ResponseWriter, r *http.Request) {
	c.Asks.Add(1)
	if c.Instead != nil && c.Instead(w, r) {
		return
	}
	w.Header().Set("Content-Type", "text/xml")
	s, code, err := c.assume(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.refused = append(c.refused, err.Error())
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error><RequestId>1</RequestId></ErrorResponse>`, code, "refused")
		return
	}
	c.asked = append(c.asked, r.PostForm)
	c.sessions[s.credentials.AccessKeyID] = s
	fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><SubjectFromWebIdentityToken>%s</SubjectFromWebIdentityToken><Credentials><AccessKeyId>%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>%s</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleWithWebIdentityResult><ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></AssumeRoleWithWebIdentityResponse>`,
		s.Subject, s.credentials.AccessKeyID, s.credentials.SecretAccessKey, s.credentials.SessionToken, s.Expires.UTC().Format(time.RFC3339))
}

// assume judges a question as the service does. The code is that of its error.
func (c *Cloud) assume(r *http.Request) (*Session, string, error) {
	if err := r.ParseForm(); err != nil || r.Method != http.MethodPost || r.URL.RawQuery != "" || r.Header.Get("Authorization") != "" {
		return nil, "ValidationError", errors.New("no form that was posted without credential")
	}
	f := r.PostForm
	name, role := f.Get("RoleSessionName"), f.Get("RoleArn")
	seconds, err := strconv.Atoi(f.Get("DurationSeconds"))
	switch {
	case f.Get("Action") != "AssumeRoleWithWebIdentity" || f.Get("Version") != "2011-06-15":
		return nil, "InvalidAction", errors.New("another action")
	case !regexp.MustCompile(`^[\w+=,.@-]{2,64}$`).MatchString(name):
		return nil, "ValidationError", errors.New("RoleSessionName")
	case err != nil || seconds < 900 || seconds > 43200:
		return nil, "ValidationError", errors.New("DurationSeconds")
	}
	claims, code, err := c.claims(f.Get("WebIdentityToken"))
	switch {
	case err != nil:
		return nil, code, err
	case !c.roles[role]:
		return nil, "AccessDenied", errors.New("role " + role)
	}
	life := time.Duration(seconds) * time.Second
	if c.Life > 0 {
		life = c.Life
	}
	subject, _ := claims.Text("sub")
	n := c.given.Add(1)
	secret := sha256.Sum256(fmt.Appendf(nil, "%s %d", c.URL, n))
	s := &Session{Role: role, Name: name, Subject: subject, Expires: time.Now().Add(life)}
	s.credentials = aws.Credentials{AccessKeyID: fmt.Sprintf("ASIA%016d", n), SecretAccessKey: hex.EncodeToString(secret[:20]), SessionToken: "token/" + hex.EncodeToString(secret[:]) + "=="}
	s.Token = s.credentials.SessionToken
	return s, "", nil
}

// claims verifies a web identity token.
func (c *Cloud) claims(token string) (oauth.Object, string, error) {
	header, err := oauth.Header(edge.Secret(token))
	if err != nil {
		return nil, "InvalidIdentityToken", errors.New("it is no JWT")
	}
	all, err := tokens.Keys(c.keys, c.Trust)
	if err != nil {
		return nil, "IDPCommunicationError", err
	}
	id, _ := header.Text("kid")
	algorithm, _ := header.Text("alg")
	key := all.Find(id)
	if key == nil {
		return nil, "InvalidIdentityToken", errors.New("no such key")
	}
	payload, err := key.Verify(algorithm, []byte(token))
	if err != nil {
		return nil, "InvalidIdentityToken", errors.New("the signature")
	}
	claims, err := oauth.ParseObject(payload, 16)
	if err != nil {
		return nil, "InvalidIdentityToken", err
	}
	issuer, _ := claims.Text("iss")
	until, err := claims.Time("exp")
	switch {
	case issuer != c.issuer:
		return nil, "InvalidIdentityToken", errors.New("another issuer")
	case !claims.Audience(c.audience):
		return nil, "InvalidIdentityToken", errors.New("another audience")
	case err != nil || !until.After(time.Now()):
		return nil, "ExpiredTokenException", errors.New("it has expired")
	}
	return claims, "", nil
}

// Backend is what stands before a backend that takes signed requests alone.
type Backend struct {
	URL string

	front *httptest.Server

	mu   sync.Mutex
	seen []Seen
}

// Seen is a request that came: whose, or why it was refused.
type Seen struct {
	Session *Session // nil for none
	Refused string
	Method  string
	Kind    string // method of the message; "" for none
	Header  http.Header
	Body    []byte
}

// Before starts what stands before a server, for the sessions of the cloud for a region and a
// service. It ends with the test. open lets requests pass that have no signature at all.
func (c *Cloud) Before(t testing.TB, server, region, service string, open func(*http.Request) bool) *Backend {
	t.Helper()
	b, err := c.Front(server, region, service, open)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// Front is Before for what is no test: Close ends it.
func (c *Cloud) Front(server, region, service string, open func(*http.Request) bool) (*Backend, error) {
	to, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	b := &Backend{}
	pass := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.Path, r.Out.URL.RawPath, r.Out.URL.RawQuery = to.Scheme, to.Host, to.Path, "", ""
		r.Out.Host = to.Host
	}}
	b.front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
		if err != nil {
			return
		}
		one := Seen{Method: r.Method, Kind: r.Header.Get("Mcp-Method"), Header: r.Header.Clone(), Body: body}
		one.Session, err = c.verify(r, body, region, service)
		if err != nil {
			one.Refused = err.Error()
		}
		b.mu.Lock()
		b.seen = append(b.seen, one)
		b.mu.Unlock()
		if err != nil && (r.Header.Get("Authorization") != "" || open == nil || !open(r)) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		pass.ServeHTTP(w, r)
	}))
	b.URL = b.front.URL
	return b, nil
}

// Close ends what Front began.
func (b *Backend) Close() {
	b.front.CloseClientConnections()
	b.front.Close()
}

// Seen returns what came since the last time.
func (b *Backend) Seen() []Seen {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.seen
	b.seen = nil
	return all
}

var authorization = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=(\w+)/(\d{8})/([a-z0-9-]+)/([\w.-]+)/aws4_request, SignedHeaders=([a-z0-9;_-]+), Signature=([0-9a-f]{64})$`)

// verify compares the signature of a request with that which the AWS SDK makes of it, as the
// service does: with the headers that are signed, and with its path as RFC 3986 reads it.
func (c *Cloud) verify(r *http.Request, body []byte, region, service string) (*Session, error) {
	got := authorization.FindStringSubmatch(r.Header.Get("Authorization"))
	if got == nil || len(r.Header.Values("Authorization")) != 1 {
		return nil, errors.New("no signature")
	}
	c.mu.Lock()
	s := c.sessions[got[1]]
	c.mu.Unlock()
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	sum := sha256.Sum256(body)
	switch {
	case s == nil || s.revoked:
		return nil, errors.New("no such session")
	case !s.Expires.After(time.Now()):
		return nil, errors.New("the session has ended")
	case r.Header.Get("X-Amz-Security-Token") != s.Token || len(r.Header.Values("X-Amz-Security-Token")) != 1:
		return nil, errors.New("another token of the session")
	case err != nil || time.Since(at).Abs() > 5*time.Minute || got[2] != at.Format("20060102"):
		return nil, errors.New("the time")
	case got[3] != region || got[4] != service:
		return nil, errors.New("another region or service")
	case r.Header.Get("X-Amz-Content-Sha256") != hex.EncodeToString(sum[:]):
		return nil, errors.New("the digest of the body")
	}
	names := strings.Split(got[5], ";")
	// The SDK signs what a request has, so that it is given what was signed; and whatever is
	// not, must be of the few lines that a hop may change.
	again := &http.Request{Method: r.Method, URL: &url.URL{Scheme: "http", Host: r.Host, Opaque: "//" + r.Host + clean(r.URL.EscapedPath()), RawQuery: r.URL.RawQuery}, Host: r.Host, Header: http.Header{}}
	for name, values := range r.Header {
		switch low := strings.ToLower(name); {
		case low == "content-length" && slices.Contains(names, low):
		case slices.Contains(names, low):
			again.Header[name] = slices.Clone(values)
		case !slices.Contains([]string{"authorization", "user-agent", "connection", "accept-encoding"}, low):
			return nil, errors.New("a line that is not signed: " + low)
		}
	}
	if slices.Contains(names, "content-length") {
		again.ContentLength = int64(len(body))
	}
	if err := v4.NewSigner().SignHTTP(r.Context(), s.credentials, again, hex.EncodeToString(sum[:]), service, region, at); err != nil {
		return nil, err
	}
	if want := again.Header.Get("Authorization"); subtle.ConstantTimeCompare([]byte(want), []byte(got[0])) != 1 {
		return nil, fmt.Errorf("%s, and the SDK has %s", got[0], want)
	}
	return s, nil
}

// clean takes out of a path what the service takes out of it before it encodes it.
func clean(path string) string {
	var all []string
	for _, s := range strings.Split(path, "/") {
		switch {
		case s == ".." && len(all) > 0:
			all = all[:len(all)-1]
		case s != "" && s != "." && s != "..":
			all = append(all, s)
		}
	}
	text := "/" + strings.Join(all, "/")
	if strings.HasSuffix(path, "/") && text != "/" {
		text += "/"
	}
	return text
}
