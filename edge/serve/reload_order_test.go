//go:build unix

package serve_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/idp"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/source"
)

// TestReloadsInOrder: of two reloads at once what was read last is served, however long the other one
// took to read.
func TestReloadsInOrder(t *testing.T) {
	t.Parallel()
	first, last := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Legacy)
	plans := []*compile.Plan{edgetest.Plan(t, edgetest.Object("one", first)), edgetest.Plan(t, edgetest.Object("one", last))}
	var at atomic.Int32 // what the file holds
	read, goOn := make(chan struct{}), make(chan struct{})
	var e *edgetest.Edge
	e = edgetest.StartPlan(t, plans[0], edgetest.With(serve.WithReload(func() error {
		is := at.Load()
		if is == 0 {
			close(read)
			<-goOn
		}
		return e.Serve.Reload(plans[is])
	})))
	var work sync.WaitGroup
	work.Go(func() { _ = e.Serve.ReloadNow() })
	<-read
	at.Store(1)
	work.Go(func() { _ = e.Serve.ReloadNow() })
	time.Sleep(200 * time.Millisecond) // in which the second one could overtake
	close(goOn)
	work.Wait()
	e.NewClient().Initialize("").Call("1", "echo", "{}").Result()
	if last.Count("tools/call") != 1 {
		t.Error("an older configuration is served")
	}
}

// TestReloadBesideASlowRequest: a request that was given a server before a reload changed it is served
// by that one, however slowly it comes.
func TestReloadBesideASlowRequest(t *testing.T) {
	t.Parallel()
	old, fresh := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Legacy)
	e := edgetest.Start(t, edgetest.Object("one", old))
	e.NewClient().Modern("1", "tools/call", edgetest.CallParams("echo", "{}")).Result()
	body, header := edgetest.ModernRequest("2", "tools/call", edgetest.CallParams("echo", "{}"), edgetest.Meta())
	lines := ""
	for i := 0; i < len(header); i += 2 {
		lines += header[i] + ": " + header[i+1] + "\r\n"
	}
	c := e.Dial()
	c.Write("POST /mcp HTTP/1.1\r\nHost: " + e.Addr() + "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nExpect: 100-continue\r\n" +
		lines + length(body) + "\r\n")
	c.Line() // 100 Continue: the server is chosen, the body is awaited
	c.Line()
	c.Write(body[:10])
	if err := e.Serve.Reload(edgetest.Plan(t, edgetest.Object("one", fresh))); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	c.Write(body[10:])
	if r, text := c.Read(); r.StatusCode != 200 {
		t.Errorf("status %d: %s", r.StatusCode, text)
	}
}

// TestReloadKeepsParkedCalls: a call that waits for its client's answer outlasts a reload that changes
// its backend.
func TestReloadKeepsParkedCalls(t *testing.T) {
	t.Parallel()
	f, c := asking(t, func(c *edgetest.Call) {
		m := c.Ask("1", "roots/list", "")
		c.Result(`{"content":[],"said":` + string(m.Result) + `}`)
	})
	first := f.begin(t, c, `{}`)
	if err := f.Serve.Reload(edgetest.Plan(t, edgetest.Manifest(f.back, edgetest.Timeout(time.Minute)))); err != nil {
		t.Fatal(err)
	}
	time.Sleep(4 * time.Second)
	if r := retry(c, "2", `{}`, `{"`+first.key(t)+`":{"roots":[]}}`, first.RequestState); edgetest.Member(r.Result(), "said") != `{"roots":[]}` {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
}

// TestFullDoorWithTLS: a connection that is one too many, and says nothing, keeps nobody from coming in
// once there is room again.
func TestFullDoorWithTLS(t *testing.T) {
	t.Parallel()
	files := idp.NewTLS(t)
	e := edgetest.Start(t, edgetest.Manifest(edgetest.NewServer(t, edgetest.Modern)),
		edgetest.Settings(func(s *serve.Settings) { s.TLSCert, s.TLSKey, s.MaxConnections = files.Cert, files.Key, 1 }))
	silent := func() net.Conn {
		c, err := net.Dial("tcp", e.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	first := silent()
	silent() // it stays open
	time.Sleep(100 * time.Millisecond)
	first.Close()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(files.Authority)
	edgetest.Until(t, "another client to be let in", func() bool {
		c, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Second}, "tcp", e.Addr(), &tls.Config{RootCAs: roots})
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// TestStatusBehindAProxy: what a door on this host shows of servers without authentication it shows to
// clients of this host alone, also where a proxy here speaks for them.
func TestStatusBehindAProxy(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.TrustedProxies = []string{"127.0.0.1"} }))
	if r := f.client.Do("GET", "/status", "", "X-Forwarded-For", "203.0.113.9"); r.Status != 404 {
		t.Errorf("status %d", r.Status)
	}
	if r := f.client.Do("GET", "/status", ""); r.Status != 200 {
		t.Errorf("of this host: status %d", r.Status)
	}
}

// TestConnectionOfAMovedStream: the connection that a stream began on has its end when the client reads
// on elsewhere, so that nothing is sent there that nobody would read.
func TestConnectionOfAMovedStream(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	c := f.callerOf(t, edgetest.Legacy, `{"roots":{}}`)
	next := make(chan struct{})
	f.back.Always("tools/call", func(c *edgetest.Call) {
		c.Progress(1)
		c.Wait(next)
		c.Ask("1", "roots/list", "")
		c.Result(`{"content":[]}`)
	})
	r := c.call(t, `"a"`, "{}", `"progressToken":"p"`)
	again := resumed(c, r.Next().ID)
	next <- struct{}{}
	q := again.NextMessage()
	r.Rest() // its connection is the one that the client would use next
	done := make(chan error, 1)
	go func() {
		_, err := c.session.TrySend(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":{"roots":[]}}`)
		done <- err
	}()
	if err := edgetest.Receive(t, done, "the answer to be taken"); err != nil {
		t.Error(err)
	}
	if m := again.NextMessage(); m.Error != nil {
		t.Errorf("%+v", m.Error)
	}
}

// TestRetryOfAStampedCallAtTheOtherReplica: a program that changed the arguments keeps no client from
// answering at another replica than the one where the call waits.
func TestRetryOfAStampedCallAtTheOtherReplica(t *testing.T) {
	t.Parallel()
	p := newPair(t, edgetest.Legacy, engine())
	yaml := "apiVersion: weir.dev/v1beta1\nkind: EdgeFilter\nmetadata: {name: stamps}\nspec:\n  type: starlark\n  source:\n    inline: |\n" +
		"      def on_call_request(c):\n          return set_arg(\"/at\", c.request_id)\n" +
		strings.Replace(edgetest.Object("edgetest", p.back), "  config:\n", "  filterRefs: [{name: stamps}]\n  config:\n    "+in(p.redis)+"\n", 1)
	opened := source.OpenWith(write(t, filepath.Join(t.TempDir(), "weir.yaml"), yaml))
	if opened.Err() != nil {
		t.Fatal(opened.Findings)
	}
	for _, f := range []*front{p.a, p.b} {
		if err := f.Serve.Reload(opened.Plan); err != nil {
			t.Fatal(err)
		}
	}
	p.back.Always("tools/call", func(c *edgetest.Call) {
		c.Ask("1", "roots/list", "")
		c.Result(`{"content":[]}`)
	})
	here := p.a.callerOf(t, edgetest.Modern, "")
	first := p.a.begin(t, here, `{}`)
	if r := retry(here.at(p.b), "2", `{}`, `{"`+first.key(t)+`":{"roots":[]}}`, first.RequestState); r.Status != 200 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
}

// TestListenersOpenNoCircuit: streams of news that a backend cuts are no reason to send it no calls.
func TestListenersOpenNoCircuit(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	back.Always("subscriptions/listen", func(c *edgetest.Call) {
		c.Event(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`)
		c.Abort()
	})
	e := edgetest.Start(t, edgetest.Manifest(back, "operational: {failureHandling: {circuitBreaker: {enabled: true, failureThreshold: 2, timeout: 60s}}}"))
	f := &front{Edge: e, back: back, client: e.NewClient()}
	for range 3 {
		f.client.Modern("1", "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`).Rest()
	}
	if r := f.callerOf(t, edgetest.Modern, "").call(t, "2", "{}"); r.Status != 200 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
}

// TestRefusalUnderTheIDOfACall: a backend that does not take the edge's credential is unavailable, also
// where it says so under the id of the call: no client is to sign in for that.
func TestRefusalUnderTheIDOfACall(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern)
	f.back.Always("tools/call", func(c *edgetest.Call) { c.Error(401, -32001, "token expired") })
	if r := f.callerOf(t, edgetest.Modern, "").call(t, "1", "{}"); r.Status != 502 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
}

// TestHeadersOfAToolAreLearnedForWhoCalls: the look at what headers a tool wants goes with those that the
// call forwards.
func TestHeadersOfAToolAreLearnedForWhoCalls(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	back.Always("tools/list", func(c *edgetest.Call) {
		if c.Request.Header.Get("X-Tenant") == "" {
			c.Error(400, -32602, "no tenant")
			return
		}
		c.Result(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"echo","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"R"}}}}]}`)
	})
	back.Always("tools/call", func(c *edgetest.Call) {
		if c.Request.Header.Get("Mcp-Param-R") == "" {
			c.Error(400, -32020, "missing")
			return
		}
		c.Result(`{"resultType":"complete","content":[]}`)
	})
	c := edgetest.Start(t, edgetest.Manifest(back, "passthroughHeaders: [X-Tenant]")).NewClient()
	c.Header.Set("X-Tenant", "blue")
	if r := c.Initialize("").Call("1", "echo", `{"r":"x"}`); r.Message().Error != nil {
		t.Errorf("%s", r.Body)
	}
}

// TestReloadBesideACallThatCameLate: a call whose request came whole after the drain timeout of a reload
// has that time all the same.
func TestReloadBesideACallThatCameLate(t *testing.T) {
	t.Parallel()
	old, fresh := edgetest.NewServer(t, edgetest.SSE), edgetest.NewServer(t, edgetest.SSE)
	old.Always("tools/call", func(c *edgetest.Call) {
		time.Sleep(500 * time.Millisecond)
		c.Result(`{"content":[]}`)
	})
	e := edgetest.Start(t, edgetest.Manifest(old), edgetest.Settings(func(s *serve.Settings) { s.DrainTimeout = time.Second }))
	e.NewClient().Modern("1", "tools/call", edgetest.CallParams("echo", "{}")).Result()
	body, header := edgetest.ModernRequest("2", "tools/call", edgetest.CallParams("echo", "{}"), edgetest.Meta())
	lines := ""
	for i := 0; i < len(header); i += 2 {
		lines += header[i] + ": " + header[i+1] + "\r\n"
	}
	c := e.Dial()
	c.Write("POST /mcp HTTP/1.1\r\nHost: " + e.Addr() + "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nExpect: 100-continue\r\n" + lines + length(body) + "\r\n")
	c.Line()
	c.Line()
	c.Write(body[:10])
	if err := e.Serve.Reload(edgetest.Plan(t, edgetest.Manifest(fresh))); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second) // longer than the drain timeout
	c.Write(body[10:])
	if r, text := c.Read(); r.StatusCode != 200 || !strings.Contains(text, `"content"`) {
		t.Errorf("status %d: %s", r.StatusCode, text)
	}
}
