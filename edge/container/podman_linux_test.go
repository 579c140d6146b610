package container

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/engine"
	"github.com/weir-edge/weir/edge/sandbox"
)

// Podman is an engine as another: what a server is and may, its streams, its way out, its port,
// its end, by a socket and attached.
func TestPodman(t *testing.T) {
	if shared.probe == "" {
		running(t)
	}
	e := engine.StartPodman(t)
	image(t, e, "probe:1", engine.Config{})
	for _, form := range []Link{LinkSocket, LinkAttach} {
		t.Run(string(form), func(t *testing.T) {
			m := machine(t, e)
			m.Link = form
			c := config(t, "status:", "write:/x", "write:/tmp/x", "write:/home/weir/x", "env:", "list:/.weir/link", "signals:1", "read:/proc/1/environ", "tcp:1.1.1.1:443", "tcp:10.88.0.1:80", "udp:1.1.1.1:53", "resolve:example.com", "resolve:host.containers.internal", "socket:17,3,0", "socket:2,3,1")
			c.Environment = func(context.Context) ([]string, error) { return []string{"SECRET=very-secret"}, nil }
			b := opened(t, m, c)
			if b.attached != (form == LinkAttach) {
				t.Errorf("attached %v", b.attached)
			}
			said := tried(t, b)
			for try, want := range map[string]string{
				"status:":  "Uid=65532,65532,65532,65532 CapInh=0000000000000000 CapPrm=0000000000000000 CapEff=0000000000000000 CapBnd=0000000000000000 CapAmb=0000000000000000 NoNewPrivs=1 Seccomp=2",
				"write:/x": "refused: ", "write:/tmp/x": "wrote", "write:/home/weir/x": "wrote", "signals:1": "refused: ", "read:/proc/1/environ": "refused: ",
				"tcp:1.1.1.1:443": "refused: ", "tcp:10.88.0.1:80": "refused: ", "udp:1.1.1.1:53": "refused: ", "resolve:example.com": "refused: ", "resolve:host.containers.internal": "refused: ", "socket:17,3,0": "refused: ", "socket:2,3,1": "refused: ",
			} {
				if !strings.HasPrefix(said[try], want) {
					t.Errorf("%s: %s, want %s", try, said[try], want)
				}
			}
			if !strings.Contains(said["env:"], "SECRET=very-secret") {
				t.Errorf("environment: %s", said["env:"])
			}
			var is inspected
			e.Get(t, "/containers/"+b.ID()+"/json", &is)
			h := is.HostConfig
			if !h.ReadonlyRootfs || h.Privileged || len(h.CapAdd) > 0 || h.Memory != 1<<30 || h.NetworkMode != "none" || len(h.PortBindings) > 0 || strings.Contains(strings.Join(is.Config.Env, " "), "very-secret") {
				t.Errorf("%+v", is)
			}
			// Streams, and ends.
			b.command = []string{"/probe", "echo:"}
			p, err := b.Start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(p.Stdin(), "hello\n"); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 6)
			if _, err := io.ReadFull(p.Stdout(), got); err != nil || string(got) != "hello\n" {
				t.Errorf("%q, %v", got, err)
			}
			if exit := p.Stop(5 * time.Second); exit != (sandbox.Exit{}) {
				t.Errorf("%+v", exit)
			}
			b.Close()
			until(t, "end of the container", func() bool { return !slices.Contains(e.Containers(t), b.ID()) })
			// Its way out.
			out := &outlet{}
			c = config(t, "resolve:allowed.test", "tcp:127.77.0.1:443", "tcp:127.77.0.1:8080", "tcp:1.1.1.1:443", `proxy:CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n`)
			c.Outlet = out
			b = opened(t, m, c)
			said = tried(t, b)
			for try, want := range map[string]string{"resolve:allowed.test": "127.77.0.1", "tcp:127.77.0.1:443": "reached", "tcp:127.77.0.1:8080": "refused: ", "tcp:1.1.1.1:443": "refused: ", c.Args[4]: "200"} {
				if !strings.HasPrefix(said[try], want) {
					t.Errorf("%s: %s, want %s", try, said[try], want)
				}
			}
			b.Close()
			// A server that speaks HTTP, and the end of its container by somebody else.
			c = config(t, "listen:127.0.0.1:9000")
			c.Port, c.Transport = 9000, "streamable-http"
			b = opened(t, m, c)
			if p, err = b.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			var conn net.Conn
			until(t, "connection", func() bool {
				conn, err = b.Dial(t.Context(), b.Port())
				return err == nil
			})
			_ = conn.Close()
			e.Do(t, "DELETE", "/containers/"+b.ID()+"?force=1")
			if exit := p.Wait(); exit.Signal != "killed" {
				t.Errorf("%+v", exit)
			}
			<-b.Ended()
			if left := e.Containers(t); len(left) > 0 {
				t.Errorf("containers: %v", left)
			}
		})
	}
}
