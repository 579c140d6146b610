package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// room is a sandbox with a server that says its name, the port, and what it is told.
type room struct {
	name  string
	ended atomic.Bool
}

func (r *room) HasEnded() bool { return r.ended.Load() }

func (r *room) Dial(_ context.Context, port int) (net.Conn, error) {
	if port == 1 {
		return nil, errors.New("connection refused")
	}
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		line, err := bufio.NewReader(theirs).ReadString('\n')
		if err == nil {
			fmt.Fprintf(theirs, "%s %d %s", r.name, port, line)
		}
	}()
	return ours, nil
}

// ask is what a published port says; "" for a connection that is closed.
func ask(t *testing.T, address string) string {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		return "refused"
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(c, "hello\n")
	text, _ := io.ReadAll(c)
	return strings.TrimSpace(string(text))
}

// free is a port of this machine that nobody has.
func free(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// What is published at all addresses of IPv4 is at none of IPv6.
func TestPublishAtIPv4(t *testing.T) {
	var p ports
	at := v1beta1.Published{IP: netip.MustParseAddr("0.0.0.0"), Host: free(t), Container: 80}
	one, err := p.open(&compile.Workload{Name: "a", Publish: []v1beta1.Published{at}}, slog.New(slog.DiscardHandler), func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	defer one.close()
	one.has(&room{name: "there"})
	if said := ask(t, fmt.Sprintf("127.0.0.1:%d", at.Host)); said != "there 80 hello" {
		t.Errorf("%q", said)
	}
	if said := ask(t, fmt.Sprintf("[::1]:%d", at.Host)); said != "refused" {
		t.Errorf("at ::1: %q", said)
	}
}

// A published port leads to the newest sandbox of its workload, passes to the next start of the
// same one, is nobody else's meanwhile, and ends with it.
func TestPublish(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	publishes := func(name string, at ...v1beta1.Published) *compile.Workload {
		return &compile.Workload{Name: name, Publish: at}
	}
	one := v1beta1.Published{IP: netip.MustParseAddr("127.0.0.1"), Host: free(t), Container: 80}
	shut := v1beta1.Published{IP: netip.MustParseAddr("127.0.0.1"), Host: free(t), Container: 1}
	nobody := func(string) string { return "" }
	var p ports
	a, err := p.open(publishes("a", one, shut), log, nobody)
	if err != nil {
		t.Fatal(err)
	}
	if said := ask(t, one.Address()); said != "" {
		t.Errorf("without a server: %q", said)
	}
	first, second := &room{name: "first"}, &room{name: "second"}
	a.has(first)
	if said := ask(t, one.Address()); said != "first 80 hello" {
		t.Errorf("%q", said)
	}
	a.has(second)
	if said := ask(t, one.Address()); said != "second 80 hello" {
		t.Errorf("%q", said)
	}
	second.ended.Store(true)
	if said := ask(t, one.Address()); said != "first 80 hello" {
		t.Errorf("%q", said)
	}
	if said := ask(t, shut.Address()); said != "" {
		t.Errorf("a port that nobody listens on: %q", said)
	}
	// Somebody else's.
	var taken *TakenError
	if _, err := p.open(publishes("b", one), log, nobody); !errors.As(err, &taken) || !strings.Contains(err.Error(), "the workload a") {
		t.Errorf("%v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	theirs := v1beta1.Published{IP: netip.MustParseAddr("127.0.0.1"), Host: uint16(l.Addr().(*net.TCPAddr).Port), Container: 80}
	other := v1beta1.Published{IP: netip.MustParseAddr("127.0.0.1"), Host: free(t), Container: 80}
	if _, err := p.open(publishes("b", other, theirs), log, nobody); !errors.As(err, &taken) || !strings.Contains(err.Error(), "another program") {
		t.Errorf("%v", err)
	}
	if _, err := p.open(publishes("b", theirs), log, func(string) string { return "the workload c" }); err == nil || !strings.Contains(err.Error(), "is that of the workload c") {
		t.Errorf("%v", err)
	}
	if said := ask(t, other.Address()); said != "refused" {
		t.Errorf("after a failure %s is listened on: %q", other.Address(), said)
	}
	if said := ask(t, one.Address()); said != "first 80 hello" {
		t.Errorf("after a failure: %q", said)
	}
	// The next start takes over what it publishes, too, and the rest ends.
	again, err := p.open(publishes("a", one), log, nobody)
	if err != nil {
		t.Fatal(err)
	}
	again.has(&room{name: "third"})
	a.close()
	if said := ask(t, one.Address()) + ", " + ask(t, shut.Address()); said != "third 80 hello, refused" {
		t.Errorf("%q", said)
	}
	// A start that comes to nothing gives back what it has taken over.
	vain, err := p.open(publishes("a", one), log, nobody)
	if err != nil {
		t.Fatal(err)
	}
	vain.close()
	if said := ask(t, one.Address()); said != "third 80 hello" {
		t.Errorf("after a start in vain: %q", said)
	}
	// No more connections than may be, and none is left at the end.
	var held []net.Conn
	for range maxPublished + 6 {
		c, err := net.Dial("tcp", one.Address())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		held = append(held, c)
	}
	closed := 0
	edgetest.Until(t, "connections that are too many are closed", func() bool {
		closed = 0
		for _, c := range held {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, err := c.Read(make([]byte, 1)); err != nil && !isTimeout(err) {
				closed++
			}
		}
		return closed == 6
	})
	again.close()
	if said := ask(t, one.Address()); said != "refused" {
		t.Errorf("after its end: %q", said)
	}
	for _, c := range held {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Read(make([]byte, 1)); isTimeout(err) {
			t.Error("a connection is left")
		}
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
