package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/port"
)

// runAudit is G28: every request leaves one record, whatever becomes of it and
// whenever the process is told to end; and where the log cannot be written, the
// records that are missing are counted to the last.
func runAudit(ctx context.Context, s *storm) error {
	return errors.Join(s.auditAll(ctx), s.auditFull(ctx), s.auditSlow(ctx))
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
func (s *storm) audited(ctx context.Context, back string, file func(server string) string) (*edge, error) {
	dead, err := port.Free()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(s.dir, "audit-")
	if err != nil {
		return nil, err
	}
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
	path := filepath.Join(dir, "edge.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return s.startOn(ctx, path, "--default-server", "storm")
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
func (s *seen) arrive(t *task) {
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
			var c *auditClient
			defer func() { c.close() }()
			for refused := 0; ctx.Err() == nil && refused < 20 && !stop.Load(); {
				if c == nil {
					var err error
					if c, err = dialAudit(addr); err != nil {
						refused++
						continue
					}
					refused = 0
				}
				number := n.Add(1)
				status, err := c.send(number, out)
				if err != nil {
					c.close()
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
				if c.closes {
					c.close()
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

// auditClient is a connection.
type auditClient struct {
	conn   net.Conn
	in     *bufio.Reader
	addr   string
	closes bool
}

func dialAudit(addr string) (*auditClient, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(2 * patience)) // the load does not last longer
	return &auditClient{conn: conn, in: bufio.NewReader(conn), addr: addr}, nil
}

func (c *auditClient) close() {
	if c != nil {
		_ = c.conn.Close()
	}
}

// send sends the request of a number and returns the status of its answer; 0
// for one that it left.
func (c *auditClient) send(n int64, out *seen) (status int, err error) {
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
	_, err = fmt.Fprintf(c.conn, "POST %s HTTP/1.1\r\nHost: %s\r\nX-Request-Id: n-%d\r\nContent-Type: %s\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: %s\r\nMcp-Name: %s\r\nContent-Length: %d\r\n\r\n%s",
		path, c.addr, n, kind, method, name, len(body), body)
	if err != nil {
		return 0, err
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
		c.closes = true
		return 0, nil
	}
	h, err := readAnswerHead(c.in)
	if err == nil {
		_, err = h.readBody(c.in)
	}
	c.closes = h.closes
	return h.status, err
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
func (s *storm) auditAll(ctx context.Context) error {
	count := s.size(s.count, 100_000, 10_000, "requests")
	out := newSeen()
	b, err := s.newBackend(modern, func(b *backend) { b.arrived = out.arrive })
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(s.dir, "log-")
	if err != nil {
		return err
	}
	file := func(server string) string { return filepath.Join(dir, server+".log") }
	e, err := s.audited(ctx, b.addr, file)
	if err != nil {
		return err
	}
	if err := s.awaitTools(ctx, e); err != nil {
		return e.fault(err)
	}
	out.load(ctx, e.addr, int64(count), func() bool {
		e.signal(reopens) // which changes nothing where nothing was moved
		e.signal(syscall.SIGTERM)
		return true
	})
	if !e.awaitEnd(drainTimeout + 5*time.Second) {
		return e.fault(errors.New("the edge does not end"))
	}
	records, lost := map[int64][]string{}, 0
	for _, server := range []string{"storm", "guarded"} {
		f, err := os.Open(file(server))
		if err != nil {
			return err
		}
		n, err := readAudit(f, records)
		f.Close()
		if err != nil {
			return err
		}
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
	return nil
}

// first is the number of the calls before a load, which are to be answered.
const first = 1 << 40

// awaitTools waits until a call is answered.
func (s *storm) awaitTools(ctx context.Context, e *edge) error {
	out := newSeen()
	for by := time.Now().Add(patience); time.Now().Before(by) && ctx.Err() == nil; {
		c, err := dialAudit(e.addr)
		if err == nil {
			status, err := c.send(first, out)
			c.close()
			if err == nil && status == 200 {
				return nil
			}
		}
	}
	return errors.New("the tools of the backend do not come")
}

// auditFull has the log on a disk that is full.
func (s *storm) auditFull(ctx context.Context) error {
	return s.auditLost(ctx, "a full disk", func(string) (string, func() (map[int64][]string, int, error), error) {
		return "/dev/full", func() (map[int64][]string, int, error) { return nil, 0, nil }, nil
	})
}

// auditSlow has the log in a pipe that nobody reads until the end.
func (s *storm) auditSlow(ctx context.Context) error {
	return s.auditLost(ctx, "a log that nobody reads until the end", func(dir string) (string, func() (map[int64][]string, int, error), error) {
		name := filepath.Join(dir, "pipe")
		if err := makePipe(name); err != nil {
			return "", nil, err
		}
		pipe, err := os.OpenFile(name, os.O_RDONLY|notBlocking, 0) // reads end when the edge has
		return name, func() (map[int64][]string, int, error) {
			defer pipe.Close()
			records := map[int64][]string{}
			lost, err := readAudit(pipe, records)
			return records, lost, err
		}, err
	})
}

// lostCount is what the process says at its end of what is missing in a log.
var lostCount = regexp.MustCompile(`closed with records lost.*?"lost":(\d+)`)

// auditLost puts requests on an edge whose log cannot be written, and holds
// what is there and what is said to be lost against what was answered.
func (s *storm) auditLost(ctx context.Context, what string, sink func(dir string) (name string, read func() (map[int64][]string, int, error), err error)) error {
	count := s.size(s.count, 20_000, 10_000, "requests on "+what)
	out := newSeen()
	b, err := s.newBackend(modern, func(b *backend) { b.arrived = out.arrive })
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(s.dir, "log-")
	if err != nil {
		return err
	}
	name, read, err := sink(dir)
	if err != nil {
		return err
	}
	e, err := s.audited(ctx, b.addr, func(server string) string {
		if server == "storm" {
			return name
		}
		return filepath.Join(dir, "other.log")
	})
	if err != nil {
		return err
	}
	out.load(ctx, e.addr, int64(count), func() bool { return false })
	type end struct {
		records map[int64][]string
		lost    int
		err     error
	}
	read1 := make(chan end, 1)
	go func() { // ends with the edge
		records, lost, err := read()
		read1 <- end{records, lost, err}
	}()
	e.signal(syscall.SIGTERM)
	if !e.awaitEnd(drainTimeout + 10*time.Second) {
		return e.fault(errors.New("the edge does not end"))
	}
	got := <-read1
	if got.err != nil {
		return got.err
	}
	lost := got.lost
	if said := lostCount.FindStringSubmatch(e.said.String()); said != nil {
		if lost, err = strconv.Atoi(said[1]); err != nil {
			return err
		}
	}
	wrote, want := 0, 0
	for _, all := range got.records {
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
	return nil
}
