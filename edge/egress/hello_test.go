package egress

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// helloOf is the ClientHello that crypto/tls sends for a configuration.
func helloOf(t testing.TB, c *tls.Config) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	done := make(chan []byte, 1)
	go func() {
		var head [5]byte
		if _, err := io.ReadFull(theirs, head[:]); err != nil {
			done <- nil
			return
		}
		body := make([]byte, int(head[3])<<8|int(head[4]))
		_, _ = io.ReadFull(theirs, body)
		_ = theirs.Close()
		done <- append(head[:], body...)
	}()
	c.InsecureSkipVerify = c.ServerName == "" // nothing is sent to anybody
	_ = tls.Client(ours, c).Handshake()
	_ = ours.Close()
	b := <-done
	if len(b) < 50 {
		t.Fatalf("a ClientHello of %d bytes", len(b))
	}
	return b
}

// extended adds an extension to a ClientHello of one record.
func extended(raw []byte, kind int, data []byte) []byte {
	b := bytes.Clone(raw)
	at := 5 + 4 + 2 + 32
	at += 1 + int(b[at])
	at += 2 + int(b[at])<<8 + int(b[at+1])
	at += 1 + int(b[at])
	grow := func(i, size int) {
		n := 4 + len(data)
		for j := range size {
			n += int(b[i+j]) << (8 * (size - 1 - j))
		}
		for j := range size {
			b[i+j] = byte(n >> (8 * (size - 1 - j)))
		}
	}
	grow(at, 2)
	grow(6, 3)
	grow(3, 2)
	return append(append(b, byte(kind>>8), byte(kind), byte(len(data)>>8), byte(len(data))), data...)
}

// sni is the body of the extension that names servers.
func sni(names ...string) []byte {
	var list []byte
	for _, name := range names {
		list = append(list, 0, byte(len(name)>>8), byte(len(name)))
		list = append(list, name...)
	}
	return append([]byte{byte(len(list) >> 8), byte(len(list))}, list...)
}

// inRecords cuts the message of a ClientHello into records of at most so many bytes.
func inRecords(raw []byte, size int) (out []byte) {
	for rest := raw[5:]; len(rest) > 0; {
		n := min(size, len(rest))
		out = append(append(out, 22, 3, 1, byte(n>>8), byte(n)), rest[:n]...)
		rest = rest[n:]
	}
	return out
}

// TestReadHello reads what real clients send, and refuses what has another reading (V15).
func TestReadHello(t *testing.T) {
	plain := helloOf(t, &tls.Config{ServerName: "allowed.test"})
	none := helloOf(t, &tls.Config{})
	old := helloOf(t, &tls.Config{ServerName: "allowed.test", MaxVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}})
	change := func(at int, to byte) []byte {
		b := bytes.Clone(plain)
		b[at] = to
		return b
	}
	for name, c := range map[string]struct {
		raw  []byte
		want string // the name, or "error"
	}{
		"of TLS 1.3":                    {plain, "allowed.test"},
		"of TLS 1.2":                    {old, "allowed.test"},
		"without a name":                {none, ""},
		"in records of a byte":          {inRecords(plain, 1), "allowed.test"},
		"in records of 100":             {inRecords(plain, 100), "allowed.test"},
		"two extensions with a name":    {extended(plain, 0, sni("evil.test")), "error"},
		"the same name twice":           {extended(plain, 0, sni("allowed.test")), "error"},
		"two names in an extension":     {extended(none, 0, sni("allowed.test", "evil.test")), "error"},
		"one added":                     {extended(none, 0, sni("evil.test")), "evil.test"},
		"an empty name":                 {extended(none, 0, sni("")), "error"},
		"an empty list":                 {extended(none, 0, []byte{0, 0}), "error"},
		"an empty extension":            {extended(none, 0, nil), "error"},
		"a list that is longer":         {extended(none, 0, append(sni("allowed.test"), 0)), "error"},
		"a name of another kind":        {extended(none, 0, append([]byte{0, 7, 1, 0, 4}, "evil"...)), "error"},
		"what nobody knows":             {extended(plain, 0xfafa, make([]byte, 2000)), "allowed.test"},
		"14 KiB":                        {extended(plain, 0xfafa, make([]byte, 14<<10)), "allowed.test"},
		"16 KiB":                        {extended(plain, 0xfafa, make([]byte, 16<<10-200)), "error"},
		"bytes behind":                  {append(bytes.Clone(plain), 0), "allowed.test"}, // which are not read
		"another message":               {change(5, 2), "error"},
		"another record":                {change(0, 23), "error"},
		"another version of records":    {change(1, 2), "error"},
		"an empty record":               {append([]byte{22, 3, 1, 0, 0}, plain...), "error"},
		"half":                          {plain[:len(plain)/2], "error"},
		"a message that is longer":      {change(8, plain[8]+1), "error"},
		"a message that is shorter":     {change(8, plain[8]-1), "error"},
		"a session that is longer":      {change(5+4+2+32, 255), "error"},
		"nothing":                       {nil, "error"},
		"a request":                     {[]byte("GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n"), "error"},
		"a ClientHello of SSL 2":        {append([]byte{0x80, 0x2e, 1, 3, 1}, make([]byte, 41)...), "error"},
		"a size that nobody would send": {[]byte{22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff}, "error"},
	} {
		for how, r := range map[string]io.Reader{"at once": bytes.NewReader(c.raw), "byte by byte": iotest.OneByteReader(bytes.NewReader(c.raw))} {
			h, err := readHello(r, nil)
			switch {
			case (err != nil) != (c.want == "error"):
				t.Errorf("%s, %s: %q %v; want %s", name, how, h.name, err, c.want)
			case err == nil && h.name != c.want:
				t.Errorf("%s, %s: %q; want %q", name, how, h.name, c.want)
			case err == nil && !bytes.HasPrefix(c.raw, h.raw):
				t.Errorf("%s, %s: other bytes are passed on than came", name, how)
			case name == "bytes behind" && len(h.raw) != len(plain):
				t.Errorf("%s: %d bytes were read of %d", how, len(h.raw), len(plain))
			}
		}
	}
	if _, err := readHello(bytes.NewReader(inRecords(extended(plain, 0xfafa, make([]byte, 13<<10)), 1)), nil); !errors.Is(err, errHelloSize) {
		t.Errorf("small records of a large message: %v", err)
	}
	// What was read before counts.
	if h, err := readHello(bytes.NewReader(plain[2:]), plain[:2]); err != nil || h.name != "allowed.test" || !bytes.Equal(h.raw, plain) {
		t.Errorf("%q %v", h.name, err)
	}
}

// TestAsksFor holds the name of a ClientHello against the host.
func TestAsksFor(t *testing.T) {
	host := func(text string) Host {
		h, err := Canonical(text)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	for _, c := range []struct {
		name, host string
		want       bool
	}{
		{"allowed.test", "allowed.test", true},
		{"ALLOWED.test", "allowed.test", true},
		{"", "allowed.test", false},
		{"evil.test", "allowed.test", false},
		{"allowed.test.evil", "allowed.test", false},
		{"allowed.test\x00.evil", "allowed.test", false},
		{"93.184.216.34", "allowed.test", false},
		{"", "93.184.216.34", true},
		{"", "2606:2800::1", true},
		{"93.184.216.34", "93.184.216.34", false},
		{"allowed.test", "93.184.216.34", false},
	} {
		if got := (hello{name: c.name}).asksFor(host(c.host)); got != c.want {
			t.Errorf("%q for %s: %v", c.name, c.host, got)
		}
	}
}

// FuzzHello reads what strangers send. What is read is what came, and says the same again
// however it is cut into records.
func FuzzHello(f *testing.F) {
	plain := helloOf(f, &tls.Config{ServerName: "allowed.test"})
	for _, b := range [][]byte{plain, inRecords(plain, 7), helloOf(f, &tls.Config{}), extended(plain, 0, sni("evil.test")), plain[:40], {22, 3, 1, 0, 4, 1, 0, 0, 0}, append([]byte{21, 2, 1, 0, 2, 1, 90}, plain...), append([]byte{22, 15}, plain[2:]...)} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		// Where a server of Go's finds a name, it begins TLS.
		if _, ok := nameFor(b); ok {
			if is, _ := beginsTLS(b[:6]); !is {
				t.Fatalf("%x begins no TLS here, and does for crypto/tls", b[:6])
			}
		}
		h, err := readHello(bytes.NewReader(b), nil)
		if err != nil {
			return
		}
		if !bytes.HasPrefix(b, h.raw) || len(h.raw) >= maxHello || strings.Contains(h.name, "\xff\xff\xff\xff\xff\xff\xff\xff\xff") && !bytes.Contains(b, []byte(h.name)) {
			t.Fatalf("%d of %d bytes, %q", len(h.raw), len(b), h.name)
		}
		again, err := readHello(iotest.OneByteReader(bytes.NewReader(h.raw)), nil)
		if err != nil || again.name != h.name {
			t.Fatalf("%q and %q: %v", h.name, again.name, err)
		}
		// A server of Go's takes it for the same name.
		if got, ok := nameFor(h.raw); ok && got != h.name && !strings.HasSuffix(h.name, ".") {
			t.Fatalf("%q here, and %q for crypto/tls", h.name, got)
		}
	})
}

// nameFor is the name that crypto/tls reads in a ClientHello; false where it reads none.
func nameFor(raw []byte) (name string, ok bool) {
	stop := errors.New("stop")
	s := tls.Server(&replay{bytes.NewReader(raw)}, &tls.Config{GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
		name, ok = i.ServerName, true
		return nil, stop
	}})
	_ = s.Handshake()
	return name, ok
}

// replay is a connection from which a text comes.
type replay struct{ io.Reader }

func (*replay) Write(b []byte) (int, error)        { return len(b), nil }
func (*replay) Close() error                       { return nil }
func (*replay) LocalAddr() net.Addr                { return &net.TCPAddr{} }
func (*replay) RemoteAddr() net.Addr               { return &net.TCPAddr{} }
func (*replay) SetDeadline(time.Time) error        { return nil }
func (*replay) SetReadDeadline(t time.Time) error  { return nil }
func (*replay) SetWriteDeadline(t time.Time) error { return nil }
