package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/edge/source"
)

// maxTokenFile bounds the token of a user, in bytes.
const maxTokenFile = 64 << 10

func (a *app) authTestCommand() *cobra.Command {
	var config []string
	var tokenFile string
	var asJSON bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "test BACKEND -c FILE [--token-file FILE]",
		Short: "Get the credential of one backend, and show how",
		Long: `Get the credential that the edge would send to one backend, as it would: with
the same manifests, secrets and settings. Each request to a token endpoint is
shown with its answer, and what would be attached to a call. Nothing is sent to
the backend. Secrets and tokens are never shown.

A credential that is made of a token of the user needs one, in --token-file (-
is standard input). It is taken as it is: whether the edge would let its bearer
in is not looked at.

BACKEND is a name, or SERVER/BACKEND where several servers have one of that
name. The exit code is 1 where the credential cannot be had; the last line says
what to mend.`,
		Example: `  weir auth test github -c weir.yaml
  weir auth test tools -c weir.yaml --token-file alice.jwt
  weir auth test main/tools -c manifests/ --token-file alice.jwt --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(config) == 0:
				return usagef("name a file or a directory of manifests with -c")
			case timeout <= 0:
				return usagef("--timeout %s: give a positive duration, such as 10s", timeout)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()

			// 1. The backend, and whose credential it is to be.
			l, err := loadSettings(cmd.Flags(), a.environ)
			if err = errors.Join(err, l.check()); err != nil {
				return err
			}
			opened := source.OpenAll(config, source.Webhooks(l.WebhookConfig...), source.LocalRateLimits(l.LocalRateLimits), source.AllowWorkloads(l.AllowWorkloads...))
			if opened.Plan == nil {
				if err := opened.Findings.Render(a.err); err != nil {
					return err
				}
				return &saidError{exitFault}
			}
			server, backend, err := backendOf(opened.Plan, args[0])
			if err != nil {
				return err
			}
			secrets, err := secretsOf(opened.Set, l.SecretsDir, a.environ)
			if err != nil {
				return err
			}
			reach, err := l.Reach()
			if err != nil {
				return err
			}
			var who *edge.Identity
			if tokenFile != "" {
				if who, err = userOf(tokenFile, a.in); err != nil {
					return err
				}
			}

			// 2. The credential.
			t := &authTest{Server: server.Name, Backend: backend.Name, Strategy: backend.Outgoing.Type(), spec: backend.Outgoing}
			t.run(ctx, backend, secrets, reach, who)

			// 3. What is said.
			if asJSON {
				err = json.NewEncoder(a.out).Encode(t)
			} else {
				err = t.write(a.out)
			}
			if err == nil && !t.OK {
				return &saidError{exitFault}
			}
			return err
		},
	}
	f := cmd.Flags()
	addConfigFlag(cmd, &config, "")
	f.StringVar(&tokenFile, "token-file", "", "`FILE` with the token of a user; - is standard input")
	f.DurationVar(&timeout, "timeout", 20*time.Second, "`DURATION` that all of it may take")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	addSettingFlags(cmd)
	return cmd
}

// backendOf finds a backend by its name, or by that of its server and its own.
func backendOf(plan *compile.Plan, name string) (server *compile.Server, backend *compile.Backend, err error) {
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
				return nil, nil, usagef("%s is a backend of several servers: name one of %s", edge.Printable(name), strings.Join(known, ", "))
			}
			server, backend = s, b
		}
	}
	if server == nil {
		return nil, nil, usagef("there is no backend %s: name one of %s", edge.Printable(name), strings.Join(known, ", "))
	}
	return server, backend, nil
}

// userOf is the user whose token a file holds. The token of a stranger would have been
// refused at the door, so that it is not verified here.
func userOf(path string, in io.Reader) (*edge.Identity, error) {
	from := in
	if path != "-" {
		f, err := os.Open(path)
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

// authTest is what was found out about the credential of a backend.
type authTest struct {
	OK       bool       `json:"ok"`
	Server   string     `json:"server"`
	Backend  string     `json:"backend"`
	Strategy string     `json:"strategy"`
	Steps    []authStep `json:"steps"`
	Attached []authLine `json:"attached"`
	Error    string     `json:"error,omitempty"`
	Mend     string     `json:"mend,omitempty"`

	spec *outgoing.Spec
	mu   sync.Mutex
	seen []edge.Fetched
}

// authStep is one request and its answer, without secrets.
type authStep struct {
	Method   string     `json:"method"`
	URL      string     `json:"url"`
	Sent     []authLine `json:"sent"`
	Status   int        `json:"status"`
	Answered []authLine `json:"answered"`
	Error    string     `json:"error,omitempty"`
	Took     string     `json:"took"`
}

// authLine is a name with a value, as far as that may be shown.
type authLine struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// run gets the credential.
func (t *authTest) run(ctx context.Context, b *compile.Backend, secrets edge.Secrets, reach edge.Reach, who *edge.Identity) {
	t.Steps, t.Attached = []authStep{}, []authLine{}
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
	env := edge.Env{Log: slog.New(slog.DiscardHandler), Secrets: secrets, Reach: reach, Shared: &edge.Shared{}, Defer: func(f func()) { after = append(after, f) }}
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
		t.Attached = append(t.Attached, authLine{name, shownValue(name, string(value))})
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
		t.Attached = []authLine{}
		t.fail(err)
		t.Error, t.Mend = hide.text(t.Error), t.mend(err)
		return
	}
	t.OK = true
}

// fail notes why there is no credential. The reason is that of the log.
func (t *authTest) fail(err error) {
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
func (t *authTest) at(name string) string {
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
func (t *authTest) mend(err error) string {
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

// write tells it to a person.
func (t *authTest) write(w io.Writer) error {
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
