package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/oauth"
)

// homeIssuer is whose tokens the edges of rows about sign-ins issue. It has no port: their
// endpoints answer wherever they are.
const homeIssuer = "http://127.0.0.1"

// plantedWord stands in whatever an identity provider issues, and nowhere else.
const plantedWord = "PLANTED"

// lobby is what rows about sign-ins have: identity providers, a backend for each that takes
// the tokens of that one alone, and secrets that edges share.
type lobby struct {
	*storm
	hubs []*hub
	back []*kit.Backend

	calls   atomic.Int64 // that reached a backend with the token of whom they are for
	crossed atomic.Int64 // that reached one with the token of another, or of another provider
	own     atomic.Int64 // requests with a token of the edge's own

	mu     sync.Mutex
	given  []string // what nobody may read: tokens, codes, states, cookies
	files  []string // of audit records
	logs   string   // file of all that edges say
	spans  []byte   // that edges sent, as they are on the wire
	spanAt string   // where to; "" for nowhere
}

// hub is an identity provider over HTTP. The code that it takes is the name of whoever signs
// in, and each of its refresh tokens is good once.
type hub struct {
	name string
	*httptest.Server

	mu        sync.Mutex
	life      int // seconds that access tokens are good for
	good      map[string]string
	serial    int
	refreshes map[string]int // by user
	twice     int            // refresh tokens that were shown again
	revoked   map[string]bool
}

func (s *storm) newHub(name string) *hub {
	h := &hub{name: name, life: 3600, good: map[string]string{}, refreshes: map[string]int{}, revoked: map[string]bool{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := r.PostFormValue("code")
		h.mu.Lock()
		defer h.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if r.PostFormValue("grant_type") == "refresh_token" {
			old := r.PostFormValue("refresh_token")
			user = h.good[old]
			delete(h.good, old)
			if user == "" && !h.revoked[holderOf(old)] {
				h.twice++
			}
			if user == "" || h.revoked[user] {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = w.Write([]byte(`{"error":"invalid_grant","error_description":"` + plantedWord + ` words"}`))
				return
			}
			h.refreshes[user]++
		}
		h.serial++
		refresh := fmt.Sprintf("%s-refresh.%s.%s.%d", plantedWord, h.name, user, h.serial)
		h.good[refresh] = user
		_ = json.NewEncoder(w).Encode(map[string]any{
			"access_token": fmt.Sprintf("%s-access.%s.%s.%d", plantedWord, h.name, user, h.serial), "refresh_token": refresh,
			"token_type": "Bearer", "expires_in": h.life, "user": map[string]string{"id": user, "name": plantedWord + " " + user},
		})
	}))
	s.later(h.Close)
	return h
}

// holderOf is the user of a token of a hub.
func holderOf(token string) string {
	if parts := strings.Split(token, "."); len(parts) == 4 {
		return parts[2]
	}
	return ""
}

// asked are how often tokens of a user were renewed, and how often a refresh token was shown
// that had been used.
func (h *hub) asked(user string) (refreshes, twice int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refreshes[user], h.twice
}

// newLobby starts the providers and their backends.
func (s *storm) newLobby(hubs int) *lobby {
	l := &lobby{storm: s}
	// What edges say is kept to the last line, where a process keeps the end of it.
	dir := l.folder("said")
	l.logs = filepath.Join(dir, "log")
	script := filepath.Join(dir, "weir")
	kit.Check(os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\nexec '%s' \"$@\" 2>>'%s'\n", s.weir, l.logs), 0o700))
	s.weir = script
	for i := range hubs {
		h := s.newHub(fmt.Sprintf("hub%d", i+1))
		l.hubs = append(l.hubs, h)
		l.back = append(l.back, s.newBackend(kit.Modern, func(b *kit.Backend) { b.Admit = l.admit(h.name) }))
	}
	return l
}

// trace has edges that are started from now on send a span of every request.
func (l *lobby) trace() {
	at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var from io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			plain, err := gzip.NewReader(r.Body)
			if err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			from = plain
		}
		text, err := io.ReadAll(from)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.spans = append(l.spans, text...)
	}))
	l.later(at.Close)
	l.spanAt = at.URL
}

// admit is the gate of the backend that takes the tokens of one provider.
func (l *lobby) admit(provider string) func(*kit.Asked) int {
	return func(a *kit.Asked) int {
		if bytes.Contains(a.Lines, []byte(" eyJ")) {
			l.own.Add(1)
		}
		call := a.Method == "tools/call"
		if len(a.Credential) == 0 && !call { // the edge's own
			return http.StatusUnauthorized
		}
		parts := strings.Split(string(a.Credential), ".")
		if len(parts) != 4 || parts[0] != "Bearer "+plantedWord+"-access" {
			return http.StatusUnauthorized
		}
		if call {
			if parts[1] != provider || parts[2] != a.Message.Params.Arguments.How {
				l.crossed.Add(1)
				return http.StatusUnauthorized
			}
			l.calls.Add(1)
		}
		return 0
	}
}

// door are the manifests of an edge. secrets and keys are the lists, by name, and store is the
// address of a Redis, "" for memory.
func (l *lobby) door(store string, secrets, keys []string, more string) string {
	var m strings.Builder
	fmt.Fprintf(&m, "apiVersion: weir.dev/v1beta1\nkind: MCPGroup\nmetadata: {name: %[1]s}\n---\napiVersion: weir.dev/v1beta1\nkind: MCPOIDCConfig\nmetadata: {name: own}\nspec: {type: inline, inline: {issuer: %[2]q, insecureAllowHTTP: true}}\n", kit.ServerName, homeIssuer)
	var providers []string
	for i, h := range l.hubs {
		providers = append(providers, fmt.Sprintf(`{name: %s, type: oauth2, oauth2Config: {authorizationEndpoint: "%s/auth", tokenEndpoint: "%s/token", clientId: edge, scopes: [openid], insecureAllowHTTP: true, redirectUri: "%s/oauth/callback", identityFromToken: {subjectPath: user.id, namePath: user.name}}}`, h.name, h.URL, h.URL, homeIssuer))
		fmt.Fprintf(&m, "---\napiVersion: weir.dev/v1beta1\nkind: MCPExternalAuthConfig\nmetadata: {name: %[1]s}\nspec: {type: upstreamInject, upstreamInject: {providerName: %[1]s}}\n---\napiVersion: weir.dev/v1beta1\nkind: MCPServerEntry\nmetadata: {name: %[2]s}\nspec: {groupRef: {name: %[3]s}, remoteUrl: \"http://%[4]s/mcp\", transport: streamable-http, allowPrivateEndpoint: true, externalAuthConfigRef: {name: %[1]s}}\n", h.name, kit.NameOf(i), kit.ServerName, l.back[i].Addr)
	}
	refs := func(names []string) string {
		var all []string
		for _, n := range names {
			all = append(all, "{name: as, key: "+n+"}")
		}
		return strings.Join(all, ", ")
	}
	auth := fmt.Sprintf(`{issuer: %q, upstreamProviders: [%s], hmacSecretRefs: [%s], signingKeySecretRefs: [%s]`, homeIssuer, strings.Join(providers, ", "), refs(secrets), refs(keys))
	if store != "" {
		auth += fmt.Sprintf(`, storage: {type: kvstore, kvstore: {addr: %q, dialTimeout: 1s, readTimeout: 1s, writeTimeout: 1s, aclUserConfig: {passwordSecretRef: {name: as, key: password}}}}`, store)
	}
	file := filepath.Join(l.folder("audit"), "audit.log")
	l.files = append(l.files, file)
	fmt.Fprintf(&m, `---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: %[1]s}
spec:
  groupRef: {name: %[1]s}
  incomingAuth: {type: oidc, oidcConfigRef: {name: own, audience: "%[2]s/mcp", resourceUrl: "%[2]s/mcp"}}
  outgoingAuth: {source: discovered}
  authServerConfig: %[3]s%[4]s}
  config:
    aggregation: {conflictResolution: prefix, conflictResolutionConfig: {prefixFormat: "{workload}_"}}
    audit: {enabled: true, logFile: %[5]q, includeRequestData: true, includeResponseData: true}
`, kit.ServerName, homeIssuer, auth, more, file)
	if l.spanAt != "" {
		fmt.Fprintf(&m, "    telemetry: {endpoint: %q, insecure: true, tracingEnabled: true, samplingRate: \"1\"}\n", l.spanAt)
	}
	return m.String()
}

// secretsDir is a folder with what the manifests of edges name: secrets hmac and hmac2, keys
// key and key2, and the password of their Redis.
func (l *lobby) secretsDir() string {
	dir := l.folder("secrets")
	kit.Check(os.Mkdir(filepath.Join(dir, "as"), 0o700))
	write := func(name string, text []byte) {
		kit.Check(os.WriteFile(filepath.Join(dir, "as", name), text, 0o600))
	}
	for _, n := range []string{"", "2"} {
		write("hmac"+n, bytes.Repeat([]byte(plantedWord+"-hmac"+n+"."), 4))
		write("key"+n, kit.Must(oauth.NewSigningKey()))
	}
	write("password", []byte(storePassword))
	return dir
}

// storePassword is that of the Redis of rows about sign-ins.
const storePassword = plantedWord + "-password"

// edgeAt starts an edge with manifests at given addresses.
func (l *lobby) edgeAt(ctx context.Context, seat kit.Seat, manifest, secrets string, flags ...string) *kit.Edge {
	return l.startAt(ctx, manifest, seat, append([]string{"--dev-loopback", "--secrets-dir", secrets, "--log-level", "debug"}, flags...)...)
}

// planted keeps what nobody may read.
func (l *lobby) planted(all ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range all {
		if len(one) > 16 {
			l.given = append(l.given, one)
		}
	}
}

// clean holds all that edges wrote, and what their pages say, against what nobody may read,
// raw, in base64 and in hex (K16).
func (l *lobby) clean(ctx context.Context, edges ...*kit.Edge) {
	var all strings.Builder
	said, err := os.ReadFile(l.logs)
	kit.Check(err)
	all.Write(said)
	records := 0
	for _, file := range l.files {
		text, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			kit.Check(err)
		}
		records += bytes.Count(text, []byte("\n"))
		all.Write(text)
	}
	for _, e := range edges {
		for _, page := range []string{"/metrics", "/status"} {
			status, text := e.Get(ctx, page, kit.Patience)
			if status != http.StatusOK {
				kit.Fail("%s: HTTP %d", page, status)
			}
			all.Write(text)
		}
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", e.PID()))
		kit.Check(err)
		all.Write(args)
	}
	l.mu.Lock()
	spans := len(l.spans)
	all.Write(l.spans)
	text := all.String()
	given := append([]string{plantedWord + "-access", plantedWord + "-refresh", plantedWord + "-hmac", storePassword, plantedWord + " words", personVerifier}, l.given...)
	l.mu.Unlock()
	needles := newNeedles()
	for _, secret := range given {
		needles.add(base64.StdEncoding.EncodeToString([]byte(secret)))
		needles.add(base64.RawURLEncoding.EncodeToString([]byte(secret)))
		needles.add(fmt.Sprintf("%x", secret))
		// Of a token what no other has: all begin in the same way.
		needles.add(secret[strings.LastIndexByte(secret, '.')+1:])
	}
	hits, first := needles.in(text)
	l.bar(hits == 0 && records > 0 && (spans > 0 || l.spanAt == ""), "0", "%d places with one of %d tokens, codes, states, cookies and secrets in %.1f MiB of logs, audit records (%d), spans (%.1f MiB), metrics, status pages and arguments of processes", hits, len(given), kit.MiB(int64(len(text))), records, kit.MiB(int64(spans)))
	if first != "" {
		l.note("such as in: %q", first)
	}
	l.bar(l.crossed.Load() == 0 && l.own.Load() == 0, "0, 0", "backends were sent the token of another user or provider %d times, and a token of the edge's own %d times, in %d calls", l.crossed.Load(), l.own.Load(), l.calls.Load())
}

// needles are texts that are looked for all at once.
type needles struct{ by map[string][]string }

// needleHead is how much of a needle is compared first.
const needleHead = 12

func newNeedles() needles { return needles{map[string][]string{}} }

// add adds one. What is shorter than a head is no secret.
func (n needles) add(text string) {
	if len(text) >= needleHead {
		n.by[text[:needleHead]] = append(n.by[text[:needleHead]], text)
	}
}

// in is how many places of a text hold one, and what is around the first.
func (n needles) in(text string) (hits int, first string) {
	for i := 0; i+needleHead <= len(text); i++ {
		for _, one := range n.by[text[i:i+needleHead]] {
			if strings.HasPrefix(text[i:], one) {
				if hits++; first == "" {
					first = text[max(0, i-120):min(len(text), i+60)]
				}
				break
			}
		}
	}
	return hits, first
}

// roads are transports, one for each address that clients come from.
type roads struct {
	// fresh has each request on a connection of its own. On one that was used before, Go's
	// transport sends a GET once more by itself when the edge is killed, and what leads back
	// from a provider holds once.
	fresh bool

	mu  sync.Mutex
	all map[int]*http.Client
}

// from is the client of one address.
func (r *roads) from(host int) *http.Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[int]*http.Client{}
	}
	if r.all[host] == nil {
		d := &net.Dialer{Timeout: kit.Patience, KeepAlive: -1, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, byte(1+host/200%200), byte(1+host%200))}}
		r.all[host] = &http.Client{
			Timeout:       kit.Patience,
			Transport:     &http.Transport{DialContext: d.DialContext, MaxIdleConnsPerHost: 32, DisableKeepAlives: r.fresh},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return r.all[host]
}

func (r *roads) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.all {
		c.CloseIdleConnections()
	}
}

// claimsOf are those of an access token of an edge.
func claimsOf(token string) (all struct {
	Subject string `json:"sub"`
	Grant   string `json:"tsid"`
}) {
	if parts := strings.Split(token, "."); len(parts) == 3 {
		if text, err := base64.RawURLEncoding.DecodeString(parts[1]); err == nil {
			_ = json.Unmarshal(text, &all)
		}
	}
	return all
}

// withPassword is a Redis that wants the password of these rows.
func (s *storm) withPassword(ctx context.Context) *redis {
	return s.newRedis(ctx, "--requirepass", storePassword)
}

// records is how many records of a kind it holds.
func (r *redis) records(ctx context.Context, kind string) int {
	text, err := r.command(ctx, "--no-auth-warning", "-a", storePassword, "keys", "weir:as:*:"+kind+":*")
	kit.Check(err)
	return len(strings.Fields(text))
}
