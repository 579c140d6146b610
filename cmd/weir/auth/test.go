package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/outgoing"
)

// maxTokenFile bounds the token of a user, in bytes.
const maxTokenFile = 64 << 10

// Find finds a backend by its name, or by that of its server and its own. The error is one
// of the name.
func Find(plan *compile.Plan, name string) (server *compile.Server, backend *compile.Backend, err error) {
	of, rest, both := strings.Cut(name, "/")
	var known []string
	for i := range plan.Servers {
		s := &plan.Servers[i]
		for j := range s.Backends {
			b := &s.Backends[j]
			known = append(known, s.Name+"/"+b.Name)
			if both && (s.Name != of || b.Name != rest) || !both && b.Name != name {
				continue
			}
			if server != nil {
				return nil, nil, fmt.Errorf("%s is a backend of several servers: name one of %s", edge.Printable(name), strings.Join(known, ", "))
			}
			server, backend = s, b
		}
	}
	if server == nil {
		return nil, nil, fmt.Errorf("there is no backend %s: name one of %s", edge.Printable(name), strings.Join(known, ", "))
	}
	return server, backend, nil
}

// User is the user whose token a file holds; - is in. The token of a stranger would have been
// refused at the door, so that it is not verified here.
func User(path string, in io.Reader) (*edge.Identity, error) {
	from := in
	if path != "-" {
		f, err := edge.OpenFile(path)
		if err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		defer f.Close()
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, maxTokenFile+1))
	if err != nil {
		return nil, fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimPrefix(strings.TrimSpace(string(text)), "Bearer ")
	if len(text) > maxTokenFile || !oauth.IsBearer(token) {
		return nil, errors.New("--token-file: it holds no bearer token")
	}
	who := &edge.Identity{Issuer: "weir-auth-test", Subject: "user", Token: edge.Secret(token), Digested: edge.DigestToken(edge.Secret(token))}
	if claims, err := oauth.Claims(who.Token); err == nil {
		who.Claims = map[string]any{}
		for name, raw := range claims {
			d := json.NewDecoder(bytes.NewReader(raw))
			d.UseNumber()
			var v any
			if d.Decode(&v) == nil {
				who.Claims[name] = v
			}
		}
		if s, ok := claims.Text("iss"); ok && s != "" {
			who.Issuer = s
		}
		if s, ok := claims.Text("sub"); ok && s != "" {
			who.Subject = s
		}
	}
	return who, nil
}

// Test is what was found out about the credential of a backend.
type Test struct {
	OK       bool   `json:"ok"`
	Server   string `json:"server"`
	Backend  string `json:"backend"`
	Strategy string `json:"strategy"`
	Steps    []Step `json:"steps"`
	Attached []Line `json:"attached"`
	Error    string `json:"error,omitempty"`
	Mend     string `json:"mend,omitempty"`

	spec *outgoing.Spec
	mu   sync.Mutex
	seen []edge.Fetched
}

// Step is one request and its answer, without secrets.
type Step struct {
	Method   string `json:"method"`
	URL      string `json:"url"`
	Sent     []Line `json:"sent"`
	Status   int    `json:"status"`
	Answered []Line `json:"answered"`
	Error    string `json:"error,omitempty"`
	Took     string `json:"took"`
}

// Line is a name with a value, as far as that may be shown.
type Line struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Try gets the credential of a backend for a user, nil for nobody, with secrets and what
// requests of the edge's own may do. What goes wrong is in the Test.
func Try(ctx context.Context, server *compile.Server, b *compile.Backend, secrets edge.Secrets, reach edge.Reach, who *edge.Identity) *Test {
	t := &Test{Server: server.Name, Backend: b.Name, Strategy: b.Outgoing.Type(), Steps: []Step{}, Attached: []Line{}, spec: b.Outgoing}
	t.run(ctx, b, secrets, reach, who)
	return t
}

// run gets the credential.
func (t *Test) run(ctx context.Context, b *compile.Backend, secrets edge.Secrets, reach edge.Reach, who *edge.Identity) {
	reach.Saw = func(f edge.Fetched) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.seen = append(t.seen, f)
	}
	var after []func()
	defer func() {
		for _, f := range after {
			f()
		}
	}()
	env := edge.Env{Log: slog.New(slog.DiscardHandler), Secrets: secrets, Reach: reach, Shared: &edge.Shared{}, Upstreams: edge.Nobody{}, Defer: func(f func()) { after = append(after, f) }}
	one, err := b.Outgoing.Open(env)
	if err != nil {
		t.fail(err)
		return
	}
	if one == nil {
		t.OK = true
		return
	}
	to, err := url.Parse(b.URL)
	if err != nil {
		t.fail(errors.New("its URL is malformed"))
		return
	}
	if one.Personal && who == nil {
		t.fail(errors.New("it is made of a token of the user"))
		t.Mend = "give one with --token-file"
		return
	}
	hide := &mask{}
	if who != nil {
		hide.add(string(who.Token))
	}
	body := []byte(`{}`)
	head := fmt.Sprintf("\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d", to.Host, len(body))
	_, err = one.Attach(ctx, &edge.Outbound{Exchange: &edge.Exchange{Server: t.Server, Identity: who}, Method: "POST", URL: to, Lines: []byte(head), Body: body}, func(name string, value edge.Secret) {
		t.Attached = append(t.Attached, Line{name, shownValue(name, string(value))})
		hide.add(string(value))
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.seen {
		hide.fetched(f)
	}
	for _, f := range t.seen {
		t.Steps = append(t.Steps, hide.step(f))
	}
	if err != nil {
		t.Attached = []Line{}
		t.fail(err)
		t.Error, t.Mend = hide.text(t.Error), t.mend(err)
		return
	}
	t.OK = true
}

// fail notes why there is no credential. The reason is that of the log.
func (t *Test) fail(err error) {
	text := err.Error()
	var e *edge.Error
	if errors.As(err, &e) && e.Op != "" {
		text = e.Op
	}
	t.Error = edge.Clean(strings.TrimPrefix(text, "outgoing: "))
	if t.Mend == "" {
		t.Mend = "see the section of this strategy in " + t.at("")
	}
}

// at is where a field of the strategy stands.
func (t *Test) at(name string) string {
	section := map[string]string{"token_exchange": "tokenExchange", "cloud_sts": "cloudSts", "upstream_inject": "upstreamInject", "header_injection": "headerInjection"}[t.Strategy]
	if section == "" {
		section = t.Strategy
	}
	if name != "" {
		section += "." + name
	}
	if t.spec != nil && t.spec.Kind != nil {
		return "MCPExternalAuthConfig/" + t.spec.Ref + ": spec." + section
	}
	return "VirtualMCPServer/" + t.Server + ": spec.config.outgoingAuth: " + section
}

// mend names the field to look at for an error of Attach.
func (t *Test) mend(err error) string {
	kind, last := edge.KindOf(err), edge.Fetched{}
	if len(t.seen) > 0 {
		last = t.seen[len(t.seen)-1]
	}
	cloud := strings.HasPrefix(strings.ToLower(strings.ReplaceAll(t.Strategy, "_", "")), "cloudsts")
	code := ""
	if o, err := oauth.ParseObject(last.Said, 8); err == nil {
		code, _ = o.Text("error")
	}
	endpoint, client, target := "tokenUrl", "clientId, and the secret beside it", "audience and scopes"
	switch t.Strategy {
	case "obo":
		endpoint = "tenantId and authority"
	case "xaa":
		endpoint, client, target = "idpTokenUrl and targetTokenUrl", "idpClientId and targetClientId, and the secrets beside them", "targetAudience, targetResource and scopes"
	case "cloudSts", "cloud_sts":
		endpoint, client, target = "region, or the setting --sts-endpoint", "roleMappings and fallbackRoleArn, and the identity provider of the cloud", "the trust policy of the role that fallbackRoleArn or roleMappings names"
	}
	switch {
	case errors.Is(err, edge.ErrNobody):
		return "nothing here: sign in at an edge that runs, and call the backend there"
	case kind == edge.Unauthenticated:
		return "--token-file: the user has to sign in again; or " + t.at(client) + ": whether it is for tokens of that issuer and audience"
	case kind == edge.Denied && cloud && strings.Contains(t.Error, "sessionNameClaim"):
		return t.at("sessionNameClaim")
	case kind == edge.Denied && cloud && len(t.seen) == 0:
		return t.at("roleMappings") + ", or fallbackRoleArn"
	case kind == edge.Denied:
		return t.at(target)
	case last.Status >= 400 && last.Status < 500 && slices.Contains([]string{"invalid_client", "unauthorized_client"}, code):
		return t.at(client)
	case last.Status >= 400 && last.Status < 500 && cloud:
		return t.at(client)
	case last.Status == 200:
		return "whoever runs " + placeOf(last.URL) + ": its answer cannot be used; or " + t.at(endpoint)
	}
	return t.at(endpoint)
}

// Write tells it to a person.
func (t *Test) Write(w io.Writer) error {
	var b strings.Builder
	kind := t.Strategy
	if kind == "" {
		kind = "no credential"
	}
	fmt.Fprintf(&b, "%s/%s: %s\n", t.Server, t.Backend, kind)
	for _, s := range t.Steps {
		fmt.Fprintf(&b, "\n%s %s\n", s.Method, s.URL)
		for _, l := range s.Sent {
			fmt.Fprintf(&b, "  > %s: %s\n", l.Name, l.Value)
		}
		if s.Error != "" {
			fmt.Fprintf(&b, "  ! %s\n", s.Error)
		} else {
			fmt.Fprintf(&b, "  < status %d in %s\n", s.Status, s.Took)
		}
		for _, l := range s.Answered {
			fmt.Fprintf(&b, "  < %s: %s\n", l.Name, l.Value)
		}
	}
	b.WriteString("\n")
	switch {
	case !t.OK:
		fmt.Fprintf(&b, "no credential: %s\nmend: %s\n", t.Error, t.Mend)
	case len(t.Attached) == 0:
		b.WriteString("nothing would be attached\n")
	default:
		b.WriteString("would be attached:\n")
		for _, l := range t.Attached {
			fmt.Fprintf(&b, "  %s: %s\n", l.Name, l.Value)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
