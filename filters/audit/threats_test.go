package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/edgetest/need"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// K17: what is under the name of a secret is masked, nested too, and what is
// longer than maxDataSize is cut, with a marker.
func TestK17(t *testing.T) {
	both := func(c *v1beta1.Audit) { c.IncludeRequestData, c.IncludeResponseData = true, true }
	file := logFileName(t)
	x := call(t, "login", `{"user":"u","password":"PLANTED","deep":[{"api_key":"PLANTED","n":{"Authorization":["PLANTED"]}}],"json":"{\"token\":\"PLANTED\"}"}`)
	one(t, parse(t, config(file, both)), x, answers(t, 200, `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"{\"access_token\":\"PLANTED\",\"ok\":1}"}],"structuredContent":{"refreshToken":"PLANTED"}}}`))
	text, err := os.ReadFile(file)
	if err != nil || bytes.Contains(text, []byte("PLANTED")) || bytes.Count(text, []byte("[REDACTED]")) != 6 {
		t.Errorf("%s %v", text, err)
	}

	file = logFileName(t)
	x = call(t, "login", `{"a":"`+strings.Repeat("é", 3000)+`","password":"PLANTED"}`)
	r := one(t, parse(t, config(file, both)), x, answers(t, 200, good))
	var cut string
	if err := json.Unmarshal(r.Data["request"], &cut); err != nil {
		t.Fatal(err)
	}
	marker := fmt.Sprintf("…[truncated: %d bytes]", len(x.Request.Raw))
	if body, ok := strings.CutSuffix(cut, marker); !ok || len(body) > 1024 || len(body) < 1000 || !strings.HasPrefix(body, `{"jsonrpc":"2.0","id":7,"method":"tools/call"`) {
		t.Errorf("%d bytes: %s", len(cut), cut)
	}
	if string(r.Data["response"]) != good {
		t.Errorf("%s", r.Data["response"])
	}
}

// K18, G28: every exchange of every outcome leaves exactly one record, also
// those that are under way when the log closes and those inside others. G28
// wants 100,000, which is what this runs (a tenth with the race detector).
func TestK18AndG28(t *testing.T) {
	total := 100_000
	if raceEnabled {
		total /= 10
	}
	file := logFileName(t)
	l, _ := start(t, parse(t, config(file)))
	var l2 edge.Handler
	kinds := []string{"allow", "deny", "401", "429", "5xx", "cancelled", "panic", "inner"}
	h := l.Filter(edge.HandlerFunc(func(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
		switch x.Target.Name {
		case "deny":
			return nil, edge.Errorf(edge.Denied, "authz", "denied by authorization policy")
		case "401":
			return nil, edge.Errorf(edge.Unauthenticated, "incoming", "a token is needed")
		case "429":
			return nil, edge.Errorf(edge.Limited, "ratelimit", "Rate limit exceeded")
		case "5xx":
			return nil, edge.Errorf(edge.Unavailable, "backend", "down")
		case "cancelled":
			return nil, ctx.Err()
		case "panic":
			panic("boom")
		case "inner":
			in := *x
			in.Parent, in.Target = x, &edge.Target{Backend: "b", Thing: edge.Tool, Name: "allow"}
			in.Head.RequestID = x.Head.RequestID + "/inner"
			return l2.Handle(ctx, &in)
		}
		r := x.Answer()
		r.Status = 200
		return r, r.Decode([]byte(good))
	}))
	l2 = h
	gone, cancel := context.WithCancel(t.Context())
	cancel()

	// Records that come faster than a disk takes them are lost by rule, and
	// counted; here all have room, so the clients wait for the log now and then.
	var next, records atomic.Int64
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for {
				i := int(next.Add(1))
				if i > total {
					return
				}
				for c := l.Counters(); c.Recorded-c.Written > 4000; c = l.Counters() {
					runtime.Gosched()
				}
				x := call(t, kinds[i%len(kinds)], `{}`)
				x.Head.RequestID = fmt.Sprint(i)
				records.Add(1)
				if kinds[i%len(kinds)] == "inner" {
					records.Add(1)
				}
				func() {
					defer func() { _ = recover() }() // of the kind that panics
					_, _ = h.Handle(gone, x)         // what it answers is not looked at here
				}()
			}
		})
	}
	clients.Wait()
	shut(t, l)

	seen, ids := map[string]string{}, map[string]bool{}
	outcomes := map[string]int{}
	for _, r := range read(t, file) {
		id := r.Source.Extra["request_id"]
		if seen[id] != "" || ids[r.AuditID] {
			t.Fatalf("%s twice", id)
		}
		seen[id], ids[r.AuditID] = r.Target["name"], true
		outcomes[r.Target["name"]+" "+r.Outcome]++
	}
	if c := l.Counters(); len(seen) != int(records.Load()) || c != (Counters{Recorded: uint64(len(seen)), Written: uint64(len(seen))}) {
		t.Errorf("%d records of %d, %+v", len(seen), records.Load(), c)
	}
	eighth := total / len(kinds)
	for name, want := range map[string]int{"allow success": 2 * eighth, "deny denied": eighth, "401 denied": eighth, "429 failure": eighth,
		"5xx error": eighth, "cancelled failure": eighth, "panic error": eighth, "inner success": eighth} {
		if outcomes[name] != want {
			t.Errorf("%s: %d, want %d", name, outcomes[name], want)
		}
	}
}

// sum adds up what a log says: its records, and what it says of those that are
// not there.
func sum(all []record) (records int, lost uint64) {
	for _, r := range all {
		if r.Msg == "audit_lost" {
			lost += r.Lost
		} else {
			records++
		}
	}
	return records, lost
}

// flood records n exchanges.
func flood(t testing.TB, l *Log, n int) {
	t.Helper()
	h := l.Filter(answers(t, 200, good))
	x := call(t, "echo", `{}`)
	for range n {
		x.Reset()
		*x = *call(t, "echo", `{}`)
		if _, err := h.Handle(t.Context(), x); err != nil {
			t.Fatal(err)
		}
	}
}

// K19: a sink that is full. What has room waits, what has none is counted
// exactly, the log says so once it is written again, and the path goes on.
func TestK19Full(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		need.Of(t, false, "there is no /dev/full")
	}
	dir := t.TempDir()
	name, real := filepath.Join(dir, "log"), filepath.Join(dir, "real.log")
	if err := os.Symlink("/dev/full", name); err != nil {
		t.Fatal(err)
	}
	l, log := start(t, parse(t, config(name)))
	const n = 20_000
	flood(t, l, n)
	c := l.Counters()
	if c.Recorded != n || c.Lost == 0 || c.Written != 0 {
		t.Fatalf("%+v", c)
	}
	fake.Until(t, "a failure", func() bool { return l.Counters().Failures > 0 })
	if !strings.Contains(log.String(), "no space left on device") {
		t.Errorf("the process log says %q", log)
	}

	// There is room again, under the same name.
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, name); err != nil {
		t.Fatal(err)
	}
	l.Reopen()
	fake.Until(t, "the records that waited", func() bool { c := l.Counters(); return c.Written+c.Lost == n })
	flood(t, l, 10)
	shut(t, l)
	c = l.Counters()
	all := read(t, real)
	records, lost := sum(all)
	if missing := all[len(all)-11]; missing.Msg != "audit_lost" || missing.Lost != c.Lost {
		t.Errorf("before the last ten records stands %+v", missing)
	}
	if c.Recorded != n+10 || uint64(records) != c.Written || lost != c.Lost || c.Written+c.Lost != n+10 {
		t.Errorf("%d records and %d lost, %+v", records, lost, c)
	}
	if !strings.Contains(log.String(), "written again") {
		t.Errorf("the process log says %q", log)
	}
}

// K19: a sink that is full to the end. The end comes in time, and says what is lost.
func TestK19FullToTheEnd(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		need.Of(t, false, "there is no /dev/full")
	}
	l, log := start(t, parse(t, config("/dev/full")))
	flood(t, l, 100)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.Close(ctx)
	if c := l.Counters(); c.Lost != 100 || c.Written != 0 || c.Recorded != 100 {
		t.Errorf("%+v", c)
	}
	if !strings.Contains(log.String(), "closed with records lost") || !strings.Contains(log.String(), "lost=100") {
		t.Errorf("the process log says %q", log)
	}
	flood(t, l, 1)
	if c := l.Counters(); c.Lost != 101 {
		t.Errorf("after the end: %+v", c)
	}
}

// K19: a slow reader. The path does not wait for it, and an end does not wait
// for ever.
func TestK19Slow(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := parse(t, config(""))
	p.open = func(string) (file, error) { return pipe{w}, nil }
	l, _ := start(t, p)
	const n = 20_000
	began := time.Now()
	flood(t, l, n) // nobody reads
	t.Logf("%d exchanges took %s", n, time.Since(began))
	if c := l.Counters(); c.Lost == 0 || c.Recorded != n {
		t.Errorf("%+v", c)
	}
	read := make(chan []byte)
	go func() {
		all, _ := io.ReadAll(r) // ends when the log closes the pipe
		read <- all
	}()
	shut(t, l)
	text := fake.Receive(t, read, "the end of the pipe")
	records, lost := 0, uint64(0)
	for line := range bytes.Lines(text) {
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		if lost += r.Lost; r.Msg == "audit_event" {
			records++
		}
	}
	if c := l.Counters(); uint64(records) != c.Written || lost != c.Lost || c.Written+c.Lost != n {
		t.Errorf("%d records, %d lost, %+v", records, lost, c)
	}
}

// K19: a reader that never comes back. What is lost is counted.
func TestK19Stuck(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := parse(t, config(""))
	p.open = func(string) (file, error) { return pipe{w}, nil }
	l, _ := start(t, p)
	flood(t, l, 1000) // more than a pipe holds
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.Close(ctx)
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	whole := uint64(bytes.Count(text, []byte("\n")))
	if c := l.Counters(); c.Lost == 0 || c.Written+c.Lost != 1000 || c.Written != whole {
		t.Errorf("%d whole lines, %+v", whole, c)
	}
}

type pipe struct{ *os.File }

func (pipe) place() place { return here }

// K19: a log that is rotated loses nothing, whether the edge is told or not.
func TestK19Rotated(t *testing.T) {
	for _, told := range []bool{true, false} {
		dir := t.TempDir()
		name := filepath.Join(dir, "audit.log")
		l, _ := start(t, parse(t, config(name)))
		const rounds, each = 5, 200
		for i := range rounds {
			flood(t, l, each)
			fake.Until(t, "the records", func() bool { return l.Counters().Written == uint64((i+1)*each) })
			if err := os.Rename(name, fmt.Sprintf("%s.%d", name, i)); err != nil {
				t.Fatal(err)
			}
			if told {
				l.Reopen()
				fake.Until(t, "the new file", func() bool { _, err := os.Stat(name); return err == nil })
			}
		}
		flood(t, l, 1)
		shut(t, l)
		for i := range rounds {
			if n, lost := sum(read(t, fmt.Sprintf("%s.%d", name, i))); n != each || lost != 0 {
				t.Errorf("told %v: file %d has %d records, %d lost", told, i, n, lost)
			}
		}
		if n, _ := sum(read(t, name)); n != 1 {
			t.Errorf("told %v: the last file has %d records", told, n)
		}
	}
}

// K19: a log that is deleted is made anew, and what went into the deleted file
// while it was is written once more.
func TestK19Deleted(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit.log")
	p := parse(t, config(name))
	taken := make(chan struct{}, 1)
	goOn := make(chan struct{})
	real := p.open
	var first atomic.Bool
	p.open = func(name string) (file, error) {
		f, err := real(name)
		if err == nil && first.CompareAndSwap(false, true) {
			return &late{f, taken, goOn}, nil
		}
		return f, err
	}
	l, _ := start(t, p)
	flood(t, l, 50)
	fake.Receive(t, taken, "the first write")
	if err := os.Remove(name); err != nil { // between the look at the file and the write to it
		t.Fatal(err)
	}
	close(goOn)
	flood(t, l, 50)
	shut(t, l)
	if n, lost := sum(read(t, name)); n != 100 || lost != 0 {
		t.Errorf("%d records, %d lost", n, lost)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

// late is a file whose first write waits.
type late struct {
	file
	taken, goOn chan struct{}
}

func (f *late) Write(p []byte) (int, error) {
	select {
	case f.taken <- struct{}{}:
	default:
	}
	<-f.goOn
	return f.file.Write(p)
}

// A write that fails in the middle of a line goes on where it stopped, and in
// another file begins with the whole line.
func TestTorn(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(name, []byte("half a li"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := parse(t, config(name))
	real := p.open
	p.open = func(name string) (file, error) {
		f, err := real(name)
		return &halting{file: f}, err
	}
	l, _ := start(t, p)
	flood(t, l, 20)
	shut(t, l)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	rest, found := strings.CutPrefix(string(text), "half a li\n")
	if !found || strings.Count(rest, "\n") != 20 {
		t.Errorf("%s", text)
	}
	for line := range strings.Lines(rest) {
		if !json.Valid([]byte(line)) {
			t.Errorf("%q", line)
		}
	}
}

// halting is a file that every other write fails for, after some bytes.
type halting struct {
	file
	n int
}

func (f *halting) Write(p []byte) (int, error) {
	if f.n++; f.n%2 == 1 && len(p) > 700 {
		n, err := f.file.Write(p[:700])
		return n, errors.Join(err, syscall.ENOSPC)
	}
	return f.file.Write(p)
}

// K20: nothing that a client sends makes a line of its own, or moves a cursor.
func TestK20(t *testing.T) {
	evil := "x\n{\"level\":\"AUDIT\",\"msg\":\"audit_event\"}\r\n\x1b[2J\u009b31m\u202e\u2028\x00\xff"
	quoted := string(appendJSON(evil))
	x := exchange(t, "tools/call", `{"name":`+quoted+`,"arguments":{`+quoted+`:`+quoted+"},\n\t\"_meta\":{}}")
	x.Identity = &edge.Identity{Issuer: evil, Subject: evil, Name: evil}
	x.Head = edge.Head{Remote: evil, RequestID: evil, Agent: evil}
	x.Session = &edge.Session{Info: []byte(`{"name":` + quoted + `,"version":` + quoted + `}`)}
	x.Target = &edge.Target{Backend: evil}
	file := logFileName(t)
	p := parse(t, config(file, func(c *v1beta1.Audit) { c.IncludeRequestData, c.IncludeResponseData, c.Component = true, true, evil }))
	p.Decision = func(*edge.Exchange) (Decision, bool) {
		return Decision{Reason: evil, Policies: []string{evil}, Version: evil}, true
	}
	p.Transport = func(*edge.Exchange) string { return evil }
	one(t, p, x, answers(t, 200, `{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":`+quoted+"\n}}"))
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Count(text, []byte("\n")) != 1 || !json.Valid(text) {
		t.Errorf("%q", text)
	}
	for _, r := range strings.TrimSuffix(string(text), "\n") {
		if r < 0x20 || r >= 0x7f && r < 0xa0 || r == 0x202e || r == 0x2028 {
			t.Errorf("%q in %q", r, text)
		}
	}
}

// appendJSON is s as another encoder writes it, with its raw bytes where JSON has them.
func appendJSON(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(strings.ToValidUTF8(s, "?")) // a string can be encoded
	text := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	return bytes.ReplaceAll(text, []byte(`\u2028`), []byte("\u2028"))
}
