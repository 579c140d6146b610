package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// said is a connection on which a store says something, cut into pieces.
type said struct {
	net.Conn // for what is not called
	rest     []byte
	piece    int
}

func (s *said) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), s.piece)], s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (*said) Write(p []byte) (int, error)      { return len(p), nil }
func (*said) Close() error                     { return nil }
func (*said) SetDeadline(time.Time) error      { return nil }
func (*said) SetReadDeadline(time.Time) error  { return nil }
func (*said) SetWriteDeadline(time.Time) error { return nil }
func (*said) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*said) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

// heard is what the client library makes of it.
func heard(c net.Conn) (v any, err error) {
	client := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1, PipelinePoolSize: -1, PoolSize: 1,
		ReadBufferSize: 512, WriteBufferSize: 512,
		Dialer: func(context.Context, string, string) (net.Conn, error) { return c, nil },
	})
	defer client.Close()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return client.Do(context.Background(), "GET", "k").Result()
}

// noHello is how a store answers that knows no HELLO, which the library asks
// first.
const noHello = "-ERR unknown command\r\n"

var few = allowed{bulk: 64 << 10, bytes: 1 << 20, elements: 2000}

// FuzzReplies: however replies are cut, what the library reads is what it reads
// without the checks, or an error; and what is announced is passed on only when
// it has come, but for so much as costs nothing.
func FuzzReplies(f *testing.F) {
	for _, text := range []string{
		"+OK\r\n", "-ERR no\r\n", ":1\r\n", "$-1\r\n", "*-1\r\n", "$0\r\n\r\n", "$5\r\nhello\r\n", "*0\r\n", "*2\r\n:1\r\n*1\r\n$1\r\na\r\n",
		"$99999999999999\r\n", "*550000000\r\n", "%1\r\n:1\r\n:2\r\n", "*3\r\n-ERR a\r\n$-1\r\n*-1\r\n", "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n",
		"$20000\r\n" + strings.Repeat("x", 20000) + "\r\n", "$20000\r\n" + strings.Repeat("x", 19999), "*300\r\n" + strings.Repeat(":1\r\n", 300),
		"*300\r\n$20000\r\n" + strings.Repeat("x", 20000) + "\r\n", "+a\rb\r\n", "+\r\n", "\r\n", "$01\r\na\r\n", "$1\r\nab\r\n", "$1\ra\r\n", ":\r\n", "$-2\r\n", "*1\r\n\n",
	} {
		f.Add([]byte(text), uint16(1))
		f.Add([]byte(text), uint16(4096))
	}
	f.Fuzz(func(t *testing.T, text []byte, piece uint16) {
		if len(text) > 1<<20 {
			return
		}
		size := max(int(piece), 1)
		b := &budget{most: 1 << 20}
		// 1. What is passed on announces no more than has come.
		c := newChecked(&said{rest: bytes.Clone(text), piece: size}, &few, b)
		again := newFrames(&few)
		p, passed := make([]byte, 777), 0
		var err error
		for err == nil {
			var n int
			n, err = c.Read(p)
			if !bytes.Equal(p[:n], text[passed:passed+n]) {
				t.Fatalf("%q is passed on as %q", text[passed:passed+n], p[:n])
			}
			passed += n
			if again.see(p[:n]) != nil {
				t.Fatalf("what is wrong is passed on: %q", text[:passed])
			}
			open := 0
			for _, n := range again.open[:again.depth] {
				open += n
			}
			here := len(text) - len(c.Conn.(*said).rest)
			if missing := again.left - (here - passed); missing > heldBulk || open > heldElements && open > here {
				t.Fatalf("%d bytes and %d elements are announced that have not come: %.100q", missing, open, text[:passed])
			}
		}
		_ = c.Close()
		if used := b.used.Load(); used != 0 {
			t.Errorf("%d bytes of the budget are not given back", used)
		}
		if err == io.EOF && passed != len(text) && again.whole() && c.frames.whole() {
			t.Errorf("%d of %d bytes are passed on", passed, len(text))
		}
		// 2. It is read as ever.
		whole := append([]byte(noHello), text...)
		got, err := heard(newChecked(&said{rest: bytes.Clone(whole), piece: size}, &few, b))
		if errors.Is(err, errFrames) || errors.Is(err, io.EOF) {
			return
		}
		want, wantErr := heard(&said{rest: bytes.Clone(whole), piece: size})
		if fmt.Sprint(err) != fmt.Sprint(wantErr) || !reflect.DeepEqual(got, want) {
			t.Errorf("%.100q is read as %v, %v; without the checks as %v, %v", text, got, err, want, wantErr)
		}
	})
}

// TestZ46ValidReplies: what a Redis says passes, however it is cut, whole and
// unchanged, and a reply after another as well.
func TestZ46ValidReplies(t *testing.T) {
	large := strings.Repeat("x", 60<<10)
	text := "+OK\r\n:-5\r\n$-1\r\n*-1\r\n-ERR no\r\n$0\r\n\r\n*0\r\n" +
		"$" + fmt.Sprint(len(large)) + "\r\n" + large + "\r\n" +
		"*2\r\n$1\r\na\r\n*3\r\n:1\r\n$2\r\n\r\n\r\n-ERR in\r\n" +
		"*1000\r\n" + strings.Repeat("$1\r\na\r\n", 1000) + "*2\r\n*0\r\n*1\r\n*0\r\n+end\r\n"
	for _, size := range []int{1, 2, 3, 7, 100, 4096, 1 << 20} {
		b := &budget{most: 1 << 20}
		c := newChecked(&said{rest: []byte(text), piece: size}, &few, b)
		got, err := io.ReadAll(c)
		if err != nil || string(got) != text || b.used.Load() != 0 {
			t.Errorf("in pieces of %d: %d of %d bytes, %v; %d of the budget", size, len(got), len(text), err, b.used.Load())
		}
	}
}

// TestZ46NoAllocations: a reply costs nothing but its reading.
func TestZ46NoAllocations(t *testing.T) {
	text := []byte("*3\r\n:0\r\n:0\r\n:0\r\n")
	s := &said{piece: 4096}
	c := newChecked(s, &few, &budget{most: 1 << 20})
	p := make([]byte, 4096)
	if n := testing.AllocsPerRun(100, func() {
		s.rest = text
		if n, err := c.Read(p); n != len(text) || err != nil {
			t.Fatal(n, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestZ46WhereMembersAre: a cluster has so many members, at addresses that can
// be, and one that names others is not followed for ever.
func TestZ46WhereMembersAre(t *testing.T) {
	d := newDoor(&Options{Mode: Cluster, Addresses: []string{"a:1"}, Value: 1 << 20}, nil, nil)
	for _, a := range []string{"", ":1", "a", "a:0", "a:70000", "a:b", "[::1:1", strings.Repeat("a", 300) + ":1"} {
		if d.redirected(a) == nil {
			t.Errorf("%.20q is taken", a)
		}
	}
	taken := 0
	for i := range 3 * maxMembers {
		f := newFrames(&d.replies)
		if f.see(fmt.Appendf(nil, "-MOVED 1 10.0.%d.%d:6379\r\n", i/250, i%250)) == nil {
			taken++
		}
	}
	if taken != maxMembers-1 || len(d.members) != maxMembers {
		t.Errorf("%d addresses are taken, %d are known", taken, len(d.members))
	}
	for _, text := range []string{"-MOVED\r\n", "-MOVED 1\r\n", "-ASK 1 a:1 b\r\n", "-MOVED 1 " + strings.Repeat("a", 400) + ":1\r\n"} {
		f := newFrames(&d.replies)
		if f.see([]byte(text)) == nil {
			t.Errorf("%.30q is taken", text)
		}
	}
	for _, a := range []string{"169.254.169.254:80", "[fe80::1]:6379", "100.100.100.200:80"} {
		if mayDial(context.Background(), "tcp", a, nil) == nil {
			t.Errorf("%s may be dialled", a)
		}
	}
	if err := mayDial(context.Background(), "tcp", "10.0.0.1:6379", nil); err != nil {
		t.Error(err)
	}
}
