package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/edgetest/port"
)

// runAudit is G28: every request leaves one record, whatever becomes of it and
// whenever the process is told to end; and where the log cannot be written, the
// records that are missing are counted to the last.
func runAudit(ctx context.Context, s *storm) {
	s.auditAll(ctx)
	s.auditFull(ctx)
	s.auditSlow(ctx)
}

// ends are the ways in which a request of the load ends, with the status that
// its client sees and the outcome that its record has. The last is left by its
// client in the middle.
func ends() []end {
	return []end{
		{"answered", 200, "success"}, {"denied", 403, "denied"}, {"another method", 404, "failure"}, {"malformed", 400, "failure"},
		{"not JSON", 415, "failure"}, {"without a token", 401, "denied"}, {"backend down", 502, "error"}, {"answered", 200, "success"}, {"left", 0, "failure"},
	}
}

type end struct {
	name    string
	status  int
	outcome string
}

// endOf is how the request of a number is to end. Few are left: each of those
// costs a connection.
func endOf(n int64) int {
	all := len(ends())
	if n%40 == 0 {
		return all - 1
	}
	return int(n % int64(all-1))
}

// audited is an edge with an audit log in a file for each of its two servers:
// one with policies before a backend that works and one that is not there, and
// one that wants tokens.
func (s *storm) audited(ctx context.Context, back string, file func(server string) string) *kit.Edge {
	dead := kit.Must(port.Free())
	text := fmt.Sprintf(`apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: storm}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: storm}
spec:
  groupRef: {name: storm}
  incomingAuth:
    type: anonymous
    authzConfig:
      type: inline
      inline:
        policies: ['permit(principal, action, resource == Tool::"backend-1_work");', 'permit(principal, action, resource == Tool::"backend-2_work");']
  config:
    audit: {enabled: true, logFile: %q}
    operational: {failureHandling: {partialFailureMode: best_effort}}
    backends:
    - {name: backend-1, url: "http://%s/mcp", transport: streamable-http}
    - {name: backend-2, url: "http://%s/mcp", transport: streamable-http}
---
apiVersion: weir.dev/v1beta1
kind: MCPOIDCConfig
metadata: {name: nobody}
spec:
  type: inline
  inline: {issuer: "http://%s", clientId: weir, insecureAllowHTTP: true}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: guarded}
spec:
  groupRef: {name: storm}
  incomingAuth: {type: oidc, oidcConfigRef: {name: nobody, audience: weir}}
  config:
    audit: {enabled: true, logFile: %q}
    backends:
    - {name: backend-1, url: "http://%s/mcp", transport: streamable-http}
`, file("storm"), back, dead, dead, file("guarded"), back)
	return s.startOn(ctx, kit.Must(kit.WriteManifest(s.dir, text)), "--default-server", "storm")
}

// seen is what became of the requests of a load, by their numbers.
type seen struct {
	mu       sync.Mutex
	answered map[int64]bool
	wrong    []string
	arrived  map[int64]bool // at the backend, of those that are left
}

func newSeen() *seen { return &seen{answered: map[int64]bool{}, arrived: map[int64]bool{}} }

// arrive takes down that the backend has a request which is to be left.
func (s *seen) arrive(t *kit.Task) {
	if n, err := strconv.ParseInt(t.Text, 10, 64); err == nil && t.Hang {
		s.mu.Lock()
		s.arrived[n] = true
		s.mu.Unlock()
	}
}

// load sends requests of every end until enough have been answered or left, and
// on from there until told says so or nobody answers any longer.
func (out *seen) load(ctx context.Context, addr string, enough int64, told func() (on bool)) {
	var n, done atomic.Int64
	var stop atomic.Bool
	var once sync.Once
	var work sync.WaitGroup
	for range 16 {
		work.Go(func() {
			var c *kit.Client
			defer func() { c.Close() }()
			for refused := 0; ctx.Err() == nil && refused < 20 && !stop.Load(); {
				if c == nil {
					var err error
					if c, err = dialAudit(ctx, addr); err != nil {
						c = nil
						refused++
						continue
					}
					refused = 0
				}
				number := n.Add(1)
				status, closes, err := out.send(c, number)
				if err != nil {
					c.Close()
					c = nil
					continue
				}
				if want := ends()[endOf(number)]; want.status != status && status != 0 {
					out.mu.Lock()
					out.wrong = append(out.wrong, fmt.Sprintf("%s: status %d", want.name, status))
					out.mu.Unlock()
				}
				if status != 0 {
					out.mu.Lock()
					out.answered[number] = true
					out.mu.Unlock()
				}
				if closes {
					c.Close()
					c = nil
				}
				if done.Add(1) == enough {
					once.Do(func() { stop.Store(!told()) })
				}
			}
		})
	}
	work.Wait()
}

// requests is how many requests have certainly been taken by the edge.
func (s *seen) requests() int { return len(s.answered) + len(s.arrived) }

func dialAudit(ctx context.Context, addr string) (*kit.Client, error) {
	c, err := kit.Dial(ctx, addr, kit.Modern, kit.DialOptions{})
	if err == nil {
		c.Wait(2 * kit.Patience) // the load does not last longer
	}
	return c, err
}

// send sends the request of a number and returns the status of its answer; 0
// for one that it left.
func (out *seen) send(c *kit.Client, n int64) (status int, closes bool, err error) {
	method, params, path, kind, more := "tools/call", "", "/mcp", "application/json", ""
	name := "backend-1_work"
	e := endOf(n)
	switch ends()[e].name {
	case "denied":
		name = "backend-1_other"
	case "backend down":
		name = "backend-2_work"
	case "another method":
		method = "logging/setLevel"
	case "not JSON":
		kind = "text/plain"
	case "without a token":
		path = "/servers/guarded/mcp"
	case "left":
		more = `,"hang":true`
	}
	params = fmt.Sprintf(`{"name":%q,"arguments":{"text":"%d"%s},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}`, name, n, more)
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, n, method, params)
	if ends()[e].name == "malformed" {
		body = body[:len(body)-1]
	}
	_, err = fmt.Fprintf(c.Conn, "POST %s HTTP/1.1\r\nHost: %s\r\nX-Request-Id: n-%d\r\nContent-Type: %s\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: %s\r\nMcp-Name: %s\r\nContent-Length: %d\r\n\r\n%s",
		path, c.Addr, n, kind, method, name, len(body), body)
	if err != nil {
		return 0, true, err
	}
	if ends()[e].status == 0 {
		until := time.Now().Add(2 * time.Second)
		for time.Now().Before(until) { // one that has arrived is left in the middle
			out.mu.Lock()
			there := out.arrived[n]
			out.mu.Unlock()
			if there {
				break
			}
			time.Sleep(time.Millisecond)
		}
		return 0, true, nil
	}
	err = c.Answer.Read(c.In)
	return c.Answer.Status, c.Answer.Closes, err
}

// entry is a line of an audit log, as far as the row reads it.
type entry struct {
	Msg, Outcome string
	Lost         int
	Source       struct {
		Extra struct {
			RequestID string `json:"request_id"`
		}
	}
}

// readAudit counts the records of each request, and those that a log says are
// missing.
func readAudit(in io.Reader, of map[int64][]string) (lost int, err error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return lost, fmt.Errorf("a line of the audit log: %w: %.200q", err, lines.Text())
		}
		if e.Msg == "audit_lost" {
			lost += e.Lost
			continue
		}
		n, err := strconv.ParseInt(strings.TrimPrefix(e.Source.Extra.RequestID, "n-"), 10, 64)
		if err != nil {
			return lost, fmt.Errorf("a record of nobody's request: %.200q", lines.Text())
		}
		of[n] = append(of[n], e.Outcome)
	}
	return lost, lines.Err()
}

// auditAll puts requests of every end on an edge, ends it under that load, and
// holds the log against what the clients saw.
func (s *storm) auditAll(ctx context.Context) {
	count := s.size(s.count, 100_000, 10_000, "requests")
	out := newSeen()
	b := s.newBackend(kit.Modern, func(b *kit.Backend) { b.Arrived = out.arrive })
	dir := s.folder("log-")
	file := func(server string) string { return filepath.Join(dir, server+".log") }
	e := s.audited(ctx, b.Addr, file)
	s.awaitTools(ctx, e)
	out.load(ctx, e.Addr, int64(count), func() bool {
		e.Signal(reopens) // which changes nothing where nothing was moved
		e.Signal(syscall.SIGTERM)
		return true
	})
	if !e.AwaitEnd(drainTimeout + 5*time.Second) {
		kit.Fail("the edge does not end")
	}
	records, lost := map[int64][]string{}, 0
	for _, server := range []string{"storm", "guarded"} {
		f := kit.Must(os.Open(file(server)))
		n, err := readAudit(f, records)
		f.Close()
		kit.Check(err)
		lost += n
	}
	delete(records, first)
	missing, double, other := 0, 0, 0
	for _, taken := range []map[int64]bool{out.answered, out.arrived} {
		for n := range taken {
			switch all := records[n]; {
			case len(all) == 0:
				missing++
			case all[0] != ends()[endOf(n)].outcome:
				other++
			}
		}
	}
	for _, all := range records {
		double += len(all) - 1
	}
	s.bar(missing == 0 && lost == 0, "0", "%d requests answered or left, then SIGTERM: %d records missing", out.requests(), missing+lost)
	s.bar(double == 0, "0", "%d records, %d of them a second one", len(records)+double, double)
	s.bar(other == 0, "0", "%d records with another outcome than the client saw", other)
	s.bar(len(out.wrong) == 0, "0", "%d answers that are not as they should be", len(out.wrong))
	if len(out.wrong) > 0 {
		s.note("%s", out.wrong[0])
	}
}

// first is the number of the calls before a load, which are to be answered.
const first = 1 << 40

// awaitTools waits until a call is answered.
func (s *storm) awaitTools(ctx context.Context, e *kit.Edge) {
	out := newSeen()
	for by := time.Now().Add(kit.Patience); time.Now().Before(by) && ctx.Err() == nil; {
		if c, err := dialAudit(ctx, e.Addr); err == nil {
			status, _, err := out.send(c, first)
			c.Close()
			if err == nil && status == 200 {
				return
			}
		}
	}
	kit.Fail("the tools of the backend do not come")
}

// auditFull has the log on a disk that is full.
func (s *storm) auditFull(ctx context.Context) {
	s.auditLost(ctx, "a full disk", "/dev/full", func(map[int64][]string) (int, error) { return 0, nil })
}

// auditSlow has the log in a pipe that nobody reads until the end.
func (s *storm) auditSlow(ctx context.Context) {
	name := filepath.Join(s.folder("log-"), "pipe")
	kit.Check(makePipe(name))
	pipe := kit.Must(os.OpenFile(name, os.O_RDONLY|notBlocking, 0)) // reads end when the edge has
	defer pipe.Close()
	s.auditLost(ctx, "a log that nobody reads until the end", name, func(of map[int64][]string) (int, error) { return readAudit(pipe, of) })
}

// lostCount is what the process says at its end of what is missing in a log.
var lostCount = regexp.MustCompile(`closed with records lost.*?"lost":(\d+)`)

// auditLost puts requests on an edge whose log cannot be written, and holds
// what is there and what is said to be lost against what was answered.
func (s *storm) auditLost(ctx context.Context, what, name string, read func(of map[int64][]string) (lost int, err error)) {
	count := s.size(s.count, 20_000, 10_000, "requests on "+what)
	out := newSeen()
	b := s.newBackend(kit.Modern, func(b *kit.Backend) { b.Arrived = out.arrive })
	dir := s.folder("log-")
	e := s.audited(ctx, b.Addr, func(server string) string {
		if server == "storm" {
			return name
		}
		return filepath.Join(dir, "other.log")
	})
	out.load(ctx, e.Addr, int64(count), func() bool { return false })
	records, lost := map[int64][]string{}, 0
	done := make(chan error, 1)
	go func() { // ends with the edge
		var err error
		lost, err = read(records)
		done <- err
	}()
	e.Signal(syscall.SIGTERM)
	if !e.AwaitEnd(drainTimeout + 10*time.Second) {
		kit.Fail("the edge does not end")
	}
	kit.Check(<-done)
	if said := lostCount.FindStringSubmatch(e.Said.String()); said != nil {
		lost = kit.Must(strconv.Atoi(said[1]))
	}
	wrote, want := 0, 0
	for _, all := range records {
		wrote += len(all)
	}
	for _, taken := range []map[int64]bool{out.answered, out.arrived} {
		for n := range taken {
			if ends()[endOf(n)].name != "without a token" { // which are in the other log
				want++
			}
		}
	}
	s.bar(wrote+lost == want, "exact", "%s: %d requests, %d records there and %d said to be lost", what, want, wrote, lost)
}
