package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// config is an audit configuration with its defaults, changed.
func config(file string, change ...func(*v1beta1.Audit)) v1beta1.Audit {
	size, detect := 1024, true
	c := v1beta1.Audit{Enabled: true, LogFile: file, MaxDataSize: &size, DetectApplicationErrors: &detect}
	for _, f := range change {
		f(&c)
	}
	return c
}

func parse(t testing.TB, c v1beta1.Audit) *Part {
	t.Helper()
	p, errs := Parse(Spec{Server: "s", Config: c})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return p
}

// start opens a log, which ends with the test.
func start(t testing.TB, p *Part) (*Log, *fake.Log) {
	t.Helper()
	return startAt(t, p, nil)
}

// startAt opens a log that dates its records by a clock, which ends with the test.
func startAt(t testing.TB, p *Part, now func() time.Time) (*Log, *fake.Log) {
	t.Helper()
	b := &fake.Log{}
	l, err := p.Start(edge.Env{Log: slog.New(slog.NewTextHandler(b, nil)), Defer: t.Cleanup, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return l, b
}

// shut closes a log that can be written.
func shut(t testing.TB, l *Log) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l.Close(ctx)
}

// exchange is a message of a client.
func exchange(t testing.TB, method, params string) *edge.Exchange {
	t.Helper()
	text := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":%s}`, method, params)
	m, err := mcp.Decode([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return &edge.Exchange{Server: "s", Request: m, Head: edge.Head{Remote: "192.0.2.1", Agent: "test/1", RequestID: "r-1"}}
}

// call is a call of a tool that the catalog knows.
func call(t testing.TB, name, arguments string) *edge.Exchange {
	t.Helper()
	x := exchange(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, arguments))
	x.Target = &edge.Target{Backend: "b", Thing: edge.Tool, Name: name, Original: name}
	x.Identity = &edge.Identity{Issuer: "https://idp", Subject: "u1", Name: "Ada"}
	return x
}

// answers is a handler that answers with a message.
func answers(t testing.TB, status int, text string) edge.Handler {
	t.Helper()
	return edge.HandlerFunc(func(_ context.Context, x *edge.Exchange) (*edge.Response, error) {
		r := x.Answer()
		r.Status = status
		if err := r.Decode([]byte(text)); err != nil {
			t.Error(err)
		}
		return r, nil
	})
}

// fails is a handler that fails.
func fails(err error) edge.Handler {
	return edge.HandlerFunc(func(context.Context, *edge.Exchange) (*edge.Response, error) { return nil, err })
}

const good = `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"ok"}]}}`

// record is a line of a log.
type record struct {
	Level, Msg, Type, Outcome, Component string
	AuditID                              string `json:"audit_id"`
	Time, LoggedAt                       time.Time
	Lost                                 uint64
	Source                               struct {
		Type, Value string
		Extra       map[string]string
	}
	Subjects map[string]string
	Target   map[string]string
	Metadata struct{ Extra map[string]any }
	Data     map[string]json.RawMessage
}

// read reads a log.
func read(t testing.TB, file string) []record {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []record
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		var r record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		all = append(all, r)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func logFileName(t testing.TB) string { return filepath.Join(t.TempDir(), "audit.log") }

// one has an exchange answered and returns its record.
func one(t testing.TB, p *Part, x *edge.Exchange, h edge.Handler) record {
	t.Helper()
	return oneAt(t, p, nil, x, h)
}

// oneAt is one, with the clock by which the record is dated.
func oneAt(t testing.TB, p *Part, now func() time.Time, x *edge.Exchange, h edge.Handler) record {
	t.Helper()
	l, _ := startAt(t, p, now)
	_, _ = l.Filter(h).Handle(t.Context(), x) // what it answers is the handler's
	shut(t, l)
	all := read(t, p.file)
	if len(all) != 1 {
		t.Fatalf("%d records", len(all))
	}
	return all[0]
}
