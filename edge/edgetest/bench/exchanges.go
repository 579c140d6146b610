package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/issuer"
	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// strategy is a way to make a credential of the user's token, and how the service of
// the benchmark is asked for it.
type strategy struct {
	name   string                                             // as an MCPExternalAuthConfig has it
	path   string                                             // of the service
	asks   [2]string                                          // a parameter of the question, and what it has to be
	token  string                                             // the parameter with the user's token
	config func(endpoint string) *v1beta1.OutgoingStrategy    // of the edge
	answer func(credential string) (kind string, text string) // of the service
}

// exchanging are the strategies that work without an authorization server of the edge's
// own.
var exchanging = []strategy{
	{"tokenExchange", "/exchange", [2]string{"grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"}, "subject_token", exchangeConfig, tokenAnswer},
	{"obo", "/directory", [2]string{"requested_token_use", "on_behalf_of"}, "assertion", oboConfig, tokenAnswer},
	{"cloudSts", stsPath, [2]string{"Action", "AssumeRoleWithWebIdentity"}, "WebIdentityToken", cloudConfig, sessionAnswer},
}

// stsPath is where the security token service is, which is a setting of the process.
const stsPath = "/sts"

// The client that the edge is to the service.
const serviceClient, serviceSecret = "bench", "not-a-real-secret"

func exchangeConfig(endpoint string) *v1beta1.OutgoingStrategy {
	return &v1beta1.OutgoingStrategy{Type: v1beta1.StrategyTokenExchange, TokenExchange: &v1beta1.ConfigTokenExchange{
		TokenURL: endpoint, Audience: kit.NameOf(0), ClientID: serviceClient, ClientSecret: serviceSecret,
	}}
}

func oboConfig(endpoint string) *v1beta1.OutgoingStrategy {
	return &v1beta1.OutgoingStrategy{Type: v1beta1.StrategyOBO, OBO: &v1beta1.ConfigOBO{
		TokenURL: endpoint, Audience: kit.NameOf(0), ClientID: serviceClient, ClientSecret: serviceSecret,
	}}
}

func cloudConfig(string) *v1beta1.OutgoingStrategy {
	return &v1beta1.OutgoingStrategy{Type: v1beta1.StrategyCloudSTS, CloudSTS: &v1beta1.ConfigCloudSTS{
		Region: "eu-west-1", FallbackRoleARN: "arn:aws:iam::123456789012:role/bench",
	}}
}

// credentialLife is how long a credential is good: longer than a run, so that none is
// made anew.
const credentialLife = 2 * time.Hour

func tokenAnswer(credential string) (kind, text string) {
	return "application/json", fmt.Sprintf(`{"access_token":%q,"issued_token_type":"urn:ietf:params:oauth:token-type:access_token","token_type":"Bearer","expires_in":%d}`,
		credential, int(credentialLife.Seconds()))
}

func sessionAnswer(credential string) (kind, text string) {
	return "text/xml", fmt.Sprintf(`<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials>`+
		`<AccessKeyId>ASIABENCH</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>%s</SessionToken><Expiration>%s</Expiration>`+
		`</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`,
		serviceSecret, credential, time.Now().Add(credentialLife).UTC().Format(time.RFC3339))
}

// in is the strategy as an edge has it that asks a service.
func (s strategy) in(t *tokenService) *v1beta1.OutgoingStrategy { return s.config(t.url + s.path) }

// outgoingAuth is a line of spec.config that has an edge show every backend the same kind
// of credential.
func outgoingAuth(of *v1beta1.OutgoingStrategy) string {
	return "    outgoingAuth: {source: inline, default: " + string(kit.Must(json.Marshal(of))) + "}\n"
}

// tokenService gives credentials for tokens of users, in this process: it is a token
// endpoint, that of a directory, and a security token service. It is there to be counted,
// and judges no token.
type tokenService struct {
	url   string
	given atomic.Int64 // credentials

	server *http.Server
	ended  chan struct{} // closed when the server has ended
}

// credentialSize is how long a credential is that it gives, in bytes.
const credentialSize = tokenSize

// maxQuestion bounds what the service reads of a request, in bytes.
const maxQuestion = 64 << 10

func startTokenService() (*tokenService, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("token service: %w", err)
	}
	s := &tokenService{url: "http://" + ln.Addr().String(), ended: make(chan struct{})}
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: 20 * time.Second}
	go func() { // ends with the listener
		defer close(s.ended)
		_ = s.server.Serve(ln)
	}()
	return s, nil
}

func (s *tokenService) close() {
	s.server.Close()
	<-s.ended
}

// flags are those of an edge that asks it.
func (s *tokenService) flags() []string { return []string{"--sts-endpoint", s.url + stsPath} }

// ServeHTTP gives a credential that no other is equal to.
func (s *tokenService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxQuestion)
	for _, of := range exchanging {
		if r.URL.Path != of.path || r.Method != http.MethodPost || r.ParseForm() != nil || r.PostForm.Get(of.asks[0]) != of.asks[1] || r.PostForm.Get(of.token) == "" {
			continue
		}
		text := fmt.Sprintf("credential-%d-", s.given.Add(1))
		kind, text := of.answer(text + strings.Repeat("x", credentialSize-len(text)))
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write([]byte(text)) // who does not take it has gone
		return
	}
	w.WriteHeader(http.StatusBadRequest)
}

// question is what a strategy asks the service for the token of a user, as far as the
// service looks at it.
func (s strategy) question(token string) url.Values {
	return url.Values{s.asks[0]: {s.asks[1]}, s.token: {token}}
}

// exchangeCalls is how many calls of one user P4 makes with each strategy, unless --calls
// says another number.
const exchangeCalls = 20_000

// runExchanges is P4 with each strategy that exchanges the user's token.
func (b *bench) runExchanges(ctx context.Context) {
	for _, s := range exchanging {
		for _, e := range []kit.Era{kit.Modern, kit.Legacy} {
			b.tryEdge(ctx, fmt.Sprintf("P4, %s, %s", s.name, e), func(ctx context.Context) { b.countExchanges(ctx, s, e) })
		}
	}
}

// countExchanges is count with calls of one user, whose token an edge exchanges.
func (b *bench) countExchanges(ctx context.Context, s strategy, e kit.Era) {
	users := kit.Must(issuer.New(issuer.ES256, kit.ServerName, nil))
	defer users.Leave()
	service := kit.Must(startTokenService())
	defer service.close()
	c := cell{e, e, "json", 8, false}
	backend := b.startBackend(ctx, c.backend, c.answer, "--slow", "100ms")
	p := guarded(users, backend.Addr, "")
	p.Config = outgoingAuth(s.in(service))
	at := b.startPlan(ctx, p, service.flags()...)

	f := kit.Must(openFleetAs(ctx, kit.Must(mint(users)), at.Addr, c.client, c.conns))
	defer f.hangUp()
	warm(ctx, f)
	row := countRow{cell: c, backends: 1, target: weir, calls: b.counted, strategy: s.name, first: service.given.Load()}
	seen, elapsed := counted(ctx, f, backend.Addr, row.calls)
	row.seen, row.exchanges = seen, service.given.Load()-row.first
	row.wrong = errors.Join(checkCounts(seen, row.calls, 1, elapsed), checkExchanges(row.first, row.exchanges, row.calls))
	b.report.counts = append(b.report.counts, row)
	b.say("P4, %s, %s: %s: %d requests, %d new connections and %d exchanges for %d calls, after %d", s.name, c, weir, seen.Requests(), seen.Connections, row.exchanges, row.calls, row.first)
	kit.Check(errors.Join(row.wrong, f.close()))
}

// checkExchanges holds the exchanges that the calls of one user took against P4: one
// before the counting, however many connections the first calls came over, and none
// during it.
func checkExchanges(first, during int64, calls int) error {
	if first != 1 || during != 0 {
		return fmt.Errorf("exchanges: %d for the first calls of one user and %d for %d calls after them, not 1 and 0", first, during, calls)
	}
	return nil
}
