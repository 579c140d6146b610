package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/sandbox"
	"github.com/weir-edge/weir/edge/stdio"
	"github.com/weir-edge/weir/edge/workload"
)

// What an installer says of its failure is told in one line, and not where its log is.
func TestComplaint(t *testing.T) {
	for want, said := range map[string][]string{
		"npm ERR! code SELF_SIGNED_CERT_IN_CHAIN; npm ERR! request to https://registry.npmjs.org/a failed, reason: self-signed certificate in certificate chain": { // npm 9
			"npm ERR! code SELF_SIGNED_CERT_IN_CHAIN",
			"npm ERR! request to https://registry.npmjs.org/a failed, reason: self-signed certificate in certificate chain",
			"npm ERR! A complete log of this run can be found in:",
			"npm ERR!     /home/a/.npm/_logs/2026-11-28T03_49_10_001Z-debug-0.log",
		},
		"npm error code E404; npm error 404 Not Found": { // npm 10
			"npm error code E404", "npm error 404 Not Found", "npm error A complete log of this run can be found in: /home/a/.npm/_logs/x-debug-0.log",
		},
		"error: no such package": {"resolving", "error: no such package"},
		"the last line":          {"the first line", "the last line"},
		"":                       nil,
	} {
		if got := complaint(said); got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
}

// Of a server that ended above its memory the flag is told that gives it more.
func TestMemoryIsAdvised(t *testing.T) {
	for ended, want := range map[string]string{"memory": "--memory", "memory: unreachable": "--memory", "exit 1": "", "memory's": "", "": ""} {
		o := &opened{local: ending{how: ended}, plan: &compile.Plan{Servers: []compile.Server{{Backends: []compile.Backend{{Workload: &compile.Workload{}}}}}}}
		var e *workload.Error
		if !errors.As(o.why(errors.New("it has ended")), &e) || (want == "") != (e.Next == "") || !strings.Contains(e.Next, want) {
			t.Errorf("%q: %+v", ended, e)
		}
		var line workload.Line
		o.Lines = func(l workload.Line) { line = l }
		o.printed(stdio.Line{Source: "weir", Text: "process ended: " + ended})
		if !strings.HasPrefix(line.Text, "process ended: "+ended) || (want == "") == strings.Contains(line.Text, "--memory") {
			t.Errorf("%q: %q", ended, line.Text)
		}
	}
}

// What a server that speaks no MCP yet says of itself is told in words that hold.
func TestComplaintOfAServer(t *testing.T) {
	plan := &compile.Plan{Servers: []compile.Server{{Backends: []compile.Backend{{Workload: &compile.Workload{}}}}}}
	away := &edge.Error{Kind: edge.Unavailable, Op: "start", Err: &stdio.RestError{Err: errors.New("it has to wait")}}
	refused := edge.Errorf(edge.Unavailable, "call", "refuses initialize (error -32603), and says %q", "no")
	_, taken := sandbox.FreePort("a", listening(t))
	for _, c := range []struct {
		o    *opened
		err  error
		code workload.Code
		want string
	}{
		{&opened{local: ending{how: "exit 1", why: "restarting, ended: exit 1"}}, away, workload.CodeStart, "a rests: restarting, ended: exit 1"},
		{&opened{local: ending{how: "exit 3", why: "call: ended: exit 3\n  complaint"}}, away, workload.CodeStart, "a ended before it had introduced itself: exit 3"},
		{&opened{local: ending{how: "exit 1"}}, errors.New("x"), workload.CodeStart, "a ended before it had introduced itself: exit 1"},
		{&opened{local: ending{why: refused.Error()}}, errors.New("x"), workload.CodeStart, `a refuses initialize (error -32603), and says "no"`},
		{&opened{local: ending{why: errors.Unwrap(refused).Error()}}, errors.New("x"), workload.CodeStart, `a refuses initialize (error -32603), and says "no"`},
		{&opened{}, refused, workload.CodeStart, `a refuses initialize (error -32603), and says "no"`},
		{&opened{local: ending{how: "exit 1"}, stray: "listening"}, errors.New("x"), workload.CodeStart, "a ended before it had introduced itself: exit 1"},
		{&opened{local: lined{ending{how: "exit 1"}}, stray: "hello"}, errors.New("x"), workload.CodeStart, `a ended before it had introduced itself: exit 1; what it writes to standard output is no message of MCP: "hello"`},
		{&opened{local: ending{}, failed: taken}, errors.New("x"), workload.CodeTaken, fmt.Sprintf("a cannot be started: somebody else listens on port %d of this machine, which it shares", taken.(*sandbox.PortError).Port)},
	} {
		c.o.plan, c.o.Opening = plan, workload.Opening{Name: "a"}
		var e *workload.Error
		if !errors.As(c.o.why(c.err), &e) || e.Code != c.code || e.Message != c.want {
			t.Errorf("%+v, want %s", e, c.want)
		}
	}
}

// listening is a port of this machine on which somebody listens.
func listening(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

// lined is such a server on standard streams.
type lined struct{ ending }

func (lined) Open(context.Context, *edge.Owner) (edge.Stream, error) { return nil, nil }
func (lined) Introduction() time.Duration                            { return 0 }
func (lined) Remembered() (era mcp.Era, ok bool)                     { return era, false }
func (lined) Pool() int                                              { return 1 }
func (lined) Shared() bool                                           { return false }

// ending is a server that has ended in a way.
type ending struct {
	backend.Local
	how, why string
}

func (e ending) Status() stdio.Status {
	return stdio.Status{State: stdio.Failed, Ended: e.how, Reason: e.why}
}

// What to do about a server that cannot be started is said once.
func TestNextOnce(t *testing.T) {
	for _, failed := range []error{
		fmt.Errorf("sandbox of a: %w", &sandbox.MountError{Path: "/etc", Why: "it has secrets", Next: "name another"}),
		&sandbox.GradeError{Name: "a", Want: "--sandbox bwrap", Cause: "it is not there", Next: "name another"},
	} {
		o := &opened{local: &hosted{}, failed: failed}
		var e *workload.Error
		if !errors.As(o.why(errors.New("it has ended")), &e) || e.Next != "name another" || strings.Contains(e.Message, e.Next) || !strings.Contains(e.Message, "it ") {
			t.Errorf("%v: %+v", failed, e)
		}
	}
}

// Who may not write to a path of a container is told what lets it, and that is never what it has.
func TestUnwritableNamesWhatIsNotThere(t *testing.T) {
	said := []string{"Error: EACCES: permission denied, open '/data/db/x'"}
	for want, writable := range map[string][]string{"--writable /data/db;": {"/data"}, "-v HOST:/data/db;": {"/tmp", "/data/db"}} {
		if got := unwritable("files", said, writable); !strings.Contains(got, want) || strings.Contains(got, "--writable") != strings.Contains(want, "--writable") {
			t.Errorf("with %v: %s", writable, got)
		}
	}
}
