package serve_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/embedder"
	"github.com/weir-edge/weir/edge/optimizer"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/source"
)

// embedding starts an embedding service, which ends with the test.
func embedding(t testing.TB, size int) *embedder.Service {
	t.Helper()
	s, err := embedder.Start("small", size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// means is YAML that turns the optimizer on with an embedding service; more are further
// fields of it.
func means(s *embedder.Service, more ...string) string {
	return "optimizer: {" + strings.Join(append([]string{fmt.Sprintf("embeddingService: %q", s.URL)}, more...), ", ") + "}\n" + counted
}

// counted is YAML that has metrics beside the clients' path.
const counted = "telemetry: {enablePrometheusMetricsPath: true}"

// asCompat is further fields for a service that is spoken to as that of OpenAI is.
const asCompat = "embeddingProvider: compat, embeddingModel: small"

// resting has an embedding service that fails left alone for so long first, and asked which
// model it has so often; 0 for the product's own.
func resting(rest, again time.Duration) edgetest.Option {
	return edgetest.With(serve.WithEmbeddings(func(o *optimizer.ServiceOptions) { o.Rest, o.Again = rest, again }))
}

// hybrid waits until questions and tools have vectors.
func (c caller) hybrid(t *testing.T) {
	t.Helper()
	edgetest.Until(t, "an answer by vectors", func() bool { return c.find(t, "read a file").Search == "hybrid" })
}

// embeds waits until a service has been asked for so many texts, questions among them.
func embeds(t *testing.T, s *embedder.Service, texts int) {
	t.Helper()
	edgetest.Until(t, fmt.Sprintf("%d texts at the embedding service", texts), func() bool { return s.Counts().Texts >= texts })
}

func (f *front) status() string { return string(f.client.Do("GET", "/status", "").Body) }

func (f *front) metrics() string { return string(f.client.Do("GET", "/metrics", "").Body) }

const plantedKey = "planted-key-of-embeddings-7f3a"

// TestQ07EmbeddingServiceFails has the embedding service of an edge fail in every way, by both
// interfaces: each question is answered by words, the cause is told in /status, the service is
// left alone, no redirect is followed, and vectors are there again once the service is well.
// Nowhere is a word of the service's own or its key (rows Q07, Q12).
func TestQ07EmbeddingServiceFails(t *testing.T) {
	for i, harm := range embedder.Harms() {
		t.Run(string(harm), func(t *testing.T) {
			t.Parallel()
			s := embedding(t, 48)
			yaml := means(s)
			if i%2 == 1 {
				yaml = means(s, asCompat)
			}
			f := scripted(t, edgetest.Modern, []string{yaml}, library, nil, resting(400*time.Millisecond, 0), edgetest.With(serve.WithEmbeddingKey(plantedKey)))
			c := f.callerOf(t, []edgetest.Era{edgetest.Legacy, edgetest.Modern}[i%2], "")
			c.hybrid(t)
			if text := f.status(); strings.Contains(text, "EmbeddingsUnavailable") || strings.Contains(text, `"phase": "Degraded"`) {
				t.Errorf("with a service that is well, the status is %s", text)
			}
			if err := s.Do(harm); err != nil {
				t.Fatal(err)
			}
			asked := 0
			ask := func() {
				asked++
				began := time.Now()
				a := c.find(t, fmt.Sprintf("send a message, number %d", asked))
				if took := time.Since(began); took > 3*time.Second { // 1.1 s on a machine with nothing else to do, to which the row of storm holds it
					t.Errorf("an answer took %s", took)
				}
				if a.Search != "keyword" || !slices.Contains(a.Names, "send_mail") {
					t.Fatalf("answer %d: %v by %s", asked, a.Names, a.Search)
				}
			}
			edgetest.Until(t, "the cause in the status", func() bool {
				ask()
				text := f.status()
				return strings.Contains(text, "EmbeddingsUnavailable") && strings.Contains(text, harm.Cause())
			})
			text := f.status()
			if !strings.Contains(text, `"phase": "Degraded"`) {
				t.Errorf("the phase is not Degraded: %s", text)
			}
			if n := figure(t, f.metrics(), "weir_optimizer_embedding_breaker_state"); n == 0 {
				t.Error("the metric says that the service is asked")
			}
			for range 20 {
				ask()
			}
			if n := figure(t, f.metrics(), "weir_optimizer_embedding_requests_total", `outcome="ok"`); n == 0 {
				t.Error("no request is counted that succeeded")
			}
			if n := figure(t, f.metrics(), "weir_optimizer_embedding_requests_total") - figure(t, f.metrics(), "weir_optimizer_embedding_requests_total", `outcome="ok"`); n == 0 {
				t.Error("no request is counted that failed")
			}
			if err := s.Do(embedder.None); err != nil {
				t.Fatal(err)
			}
			edgetest.Until(t, "vectors again", func() bool {
				asked++
				return c.find(t, fmt.Sprintf("send a message, number %d", asked)).Search == "hybrid"
			})
			if after := f.status(); strings.Contains(after, "EmbeddingsUnavailable") {
				t.Errorf("a service that is well again is told of: %s", after)
			}
			if n := s.Counts().Strayed; n != 0 {
				t.Errorf("%d requests followed a redirect", n)
			}
			for what, told := range map[string]string{"log": f.Log(), "status": text, "metrics": f.metrics()} {
				for _, secret := range []string{plantedKey, "words of the service", "It works!"} {
					if strings.Contains(told, secret) {
						t.Errorf("%q is in the %s", secret, what)
					}
				}
			}
		})
	}
}

// TestQ07ServiceIsLeftAlone: while an embedding service fails it is asked five times, and then not
// before its rest is over.
func TestQ07ServiceIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := embedding(t, 16)
	f := scripted(t, edgetest.Modern, []string{means(s)}, library, nil, resting(time.Hour, 0))
	c := f.callerOf(t, edgetest.Modern, "")
	c.hybrid(t)
	if err := s.Do(embedder.Fails); err != nil {
		t.Fatal(err)
	}
	before := s.Counts().Requests
	for i := range 50 {
		if a := c.find(t, fmt.Sprint("question ", i)); a.Search != "keyword" {
			t.Fatalf("question %d is answered by %s", i, a.Search)
		}
	}
	if n := s.Counts().Requests - before; n != 5 {
		t.Errorf("a service that fails had %d requests, want 5", n)
	}
	if n := figure(t, f.metrics(), "weir_optimizer_embedding_breaker_state"); n != 1 {
		t.Errorf("the metric says %v, want 1: %s", n, f.metrics())
	}
}

// TestQ07DeadFromTheStart: an edge whose embedding service was never there starts, answers by
// words, says so, and compares vectors once the service is there.
func TestQ07DeadFromTheStart(t *testing.T) {
	t.Parallel()
	s := embedding(t, 16)
	if err := s.Do(embedder.Refuses); err != nil {
		t.Fatal(err)
	}
	f := scripted(t, edgetest.Modern, []string{means(s)}, library, nil, resting(300*time.Millisecond, 0))
	c := f.callerOf(t, edgetest.Modern, "")
	if a := c.find(t, "read a file"); a.Search != "keyword" || a.Names[0] != "read_file" {
		t.Errorf("%v by %s", a.Names, a.Search)
	}
	edgetest.Until(t, "the cause in the status", func() bool { return strings.Contains(f.status(), "connection refused") })
	if err := s.Do(embedder.None); err != nil {
		t.Fatal(err)
	}
	c.hybrid(t)
}

// TestQ08OneRequestForTwoUsers: two users with different policies ask the same while the
// service is slow: it has one request, and each gets what is theirs.
func TestQ08OneRequestForTwoUsers(t *testing.T) {
	t.Parallel()
	s := embedding(t, 32)
	back := edgetest.NewServer(t, edgetest.Modern)
	offersTools(back, library...)
	mint := edgetest.NewMint(t, "weir")
	users := []struct{ group, sees string }{{"readers", "read_file"}, {"writers", "write_file"}}
	var rules []string
	for _, u := range users {
		rules = append(rules, fmt.Sprintf(`'permit(principal in THVGroup::%q, action == Action::"call_tool", resource == Tool::%q);'`, u.group, u.sees))
	}
	e := edgetest.Start(t, guardedBy(mint, back, strings.Join(rules, ", "), means(s)))
	f := &front{Edge: e, back: back, client: e.NewClient()}
	as := func(group string) caller {
		c := f.callerOf(t, edgetest.Modern, "")
		head := mint.Bearer("of-"+group, group)
		for i := 0; i+1 < len(head); i += 2 {
			c.Header.Set(head[i], head[i+1])
		}
		return c
	}
	as("readers").hybrid(t)
	embeds(t, s, len(library)+1)
	s.Take(400 * time.Millisecond)
	before := s.Counts()
	var work sync.WaitGroup
	answers := make([]answerOf, 10)
	for i := range answers {
		c := as(users[i%2].group)
		work.Go(func() {
			body, head := c.message("1", "tools/call", edgetest.CallParams("find_tool", `{"tool_description":"a file on the disk"}`))
			r, err := c.Try("POST", "/mcp", body, head...)
			if err != nil || r.Status != 200 {
				t.Errorf("%v %v", err, r)
				return
			}
			if answers[i], err = foundIn(c, edgetest.Member(string(r.Body), "result")); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	for i, a := range answers {
		if a.Search != "hybrid" || !slices.Equal(a.Names, []string{users[i%2].sees}) {
			t.Errorf("%s get %v by %s", users[i%2].group, a.Names, a.Search)
		}
	}
	if n := s.Counts().Requests - before.Requests; n != 1 {
		t.Errorf("%d requests for one question", n)
	}
}

// guardedBy is YAML of a server before a fake one, whose clients have tokens and are judged by
// policies.
func guardedBy(mint *edgetest.Mint, back *edgetest.Server, policies string, config ...string) string {
	return fmt.Sprintf(`---
apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: g}
---
apiVersion: weir.dev/v1beta1
kind: MCPOIDCConfig
metadata: {name: idp}
spec: {type: inline, inline: %s}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: g}
spec:
  groupRef: {name: g}
  incomingAuth:
    type: oidc
    oidcConfigRef: {name: idp, audience: weir}
    authzConfig: {type: inline, inline: {policies: [%s]}}
  outgoingAuth: {source: inline}
  config:
    %s
    aggregation: {conflictResolution: priority, conflictResolutionConfig: {priorityOrder: [back]}}
    backends: [{name: back, url: %q, transport: streamable-http}]
`, mint.Inline(), policies, strings.ReplaceAll(strings.Join(config, "\n"), "\n", "\n    "), back.URL)
}

// TestQ09ModelSwapped puts another model behind the address, of the same dimension and of
// another: all vectors are made anew, no search fails, and none compares vectors of two
// dimensions.
func TestQ09ModelSwapped(t *testing.T) {
	for _, size := range []int{48, 64} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			s := embedding(t, 48)
			f := scripted(t, edgetest.Modern, []string{means(s)}, library, nil, resting(100*time.Millisecond, 200*time.Millisecond))
			c := f.callerOf(t, edgetest.Modern, "")
			c.hybrid(t)
			embeds(t, s, len(library)+1)
			before := s.Counts().Texts
			s.Load("other", size)
			asked := 0
			sentences := func() int { // of tools, asked for again
				n := 0
				for _, text := range s.Texts()[before:] {
					if !strings.Contains(text, "question") {
						n++
					}
				}
				return n
			}
			edgetest.Until(t, "vectors of the other model", func() bool {
				asked++
				a := c.find(t, fmt.Sprintf("question %d about a file", asked))
				if len(a.Names) == 0 {
					t.Fatalf("nothing is found, by %s", a.Search)
				}
				return a.Search == "hybrid" && sentences() >= len(library)
			})
			if n := sentences(); n != len(library) {
				t.Errorf("%d texts of tools were embedded anew, want %d", n, len(library))
			}
		})
	}
}

// TestQ12KeyOfTheService: the key is sent to a compat service and to no other, a header that
// holds it or would carry it is refused without saying it, and it is told nowhere.
func TestQ12KeyOfTheService(t *testing.T) {
	t.Parallel()
	for _, more := range []string{"", asCompat + `, embeddingHeaders: {X-Org: blue}`} {
		s := embedding(t, 16)
		f := scripted(t, edgetest.Modern, []string{means(s, slices.DeleteFunc([]string{more}, func(x string) bool { return x == "" })...)}, library, nil, edgetest.With(serve.WithEmbeddingKey(plantedKey)))
		c := f.callerOf(t, edgetest.Modern, "")
		c.hybrid(t)
		want, org := "", ""
		if more != "" {
			want, org = "Bearer "+plantedKey, "blue"
		}
		for _, head := range s.Headers() {
			if head.Get("Authorization") != want || head.Get("X-Org") != org || head.Get("Accept-Encoding") != "" {
				t.Errorf("the service is sent %v", head)
			}
		}
		if text := f.Log() + f.status() + f.metrics(); strings.Contains(text, plantedKey) {
			t.Errorf("the key is told in %s", text)
		}
		// A reload with the key in a header is refused, and the server stays as it is.
		held := edgetest.Manifest(f.back, means(s, asCompat+`, embeddingHeaders: {X-Held: "k `+plantedKey+`"}`))
		err := f.Serve.Reload(edgetest.Plan(t, held))
		if err == nil || !strings.Contains(err.Error(), "embeddingHeaders: X-Held holds the key") || strings.Contains(err.Error(), plantedKey) {
			t.Errorf("a header that holds the key: %v", err)
		}
		c.hybrid(t)
	}
	back := edgetest.NewServer(t, edgetest.Modern)
	plan := edgetest.Plan(t, edgetest.Manifest(back, "optimizer: {embeddingService: http://127.0.0.1:1, "+asCompat+"}"))
	settings := serve.Defaults()
	settings.Listen, settings.AdminListen = "127.0.0.1:0", ""
	if _, err := serve.New(settings, plan, slog.New(slog.DiscardHandler), serve.WithEmbeddingKey(plantedKey+"\nX-Y: z")); err == nil || !strings.Contains(err.Error(), "set WEIR_EMBEDDING_API_KEY to one line") || strings.Contains(err.Error(), plantedKey) {
		t.Errorf("a key of two lines: %v", err)
	}
	for _, name := range []string{"Authorization", "authorization", "X-Api-Key", "api-key", "Cookie", "Content-Type"} {
		err := refused(t, fmt.Sprintf("optimizer: {embeddingService: http://127.0.0.1:1, %s, embeddingHeaders: {%s: %q}}", asCompat, name, plantedKey))
		if !strings.Contains(err, "optimizer.embeddingHeaders["+name+"]") || strings.Contains(err, plantedKey) {
			t.Errorf("the header %s: %s", name, err)
		}
	}
}

// refused is what is said of a manifest that must not be taken, with file, line and field.
func refused(t *testing.T, more string) string {
	t.Helper()
	set, _ := source.Read("work.yaml", []byte(edgetest.ManifestFor("http://127.0.0.1:1/mcp", compile.StreamableHTTP, more)))
	r := set.Compile()
	var text strings.Builder
	if err := r.Render(&text); err != nil {
		t.Fatal(err)
	}
	if r.Err() == nil {
		t.Errorf("taken: %s", more)
	}
	return text.String()
}
