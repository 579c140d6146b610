package egress

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weir-edge/weir/edge/v1beta1"
)

// query is one of DNS, as a resolver sends it: with recursion wanted, and EDNS.
func query(t testing.TB, name string, kind dnsmessage.Type) []byte {
	t.Helper()
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: 4711, RecursionDesired: true})
	b.EnableCompression()
	n, err := dnsmessage.NewName(name)
	if err == nil {
		err = b.StartQuestions()
	}
	if err == nil {
		err = b.Question(dnsmessage.Question{Name: n, Type: kind, Class: dnsmessage.ClassINET})
	}
	if err == nil {
		err = b.StartAdditionals()
	}
	var h dnsmessage.ResourceHeader
	if err == nil {
		err = h.SetEDNS0(1232, dnsmessage.RCodeSuccess, false)
	}
	if err == nil {
		err = b.OPTResource(h, dnsmessage.OPTResource{})
	}
	out, err2 := b.Finish()
	if err != nil || err2 != nil {
		t.Fatal(name, err, err2)
	}
	return out
}

// answered reads an answer: the address, "no data", or what the code is.
func answered(t testing.TB, q, b []byte) string {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(b); err != nil {
		t.Fatalf("%x: %v", b, err)
	}
	if m.ID != binary.BigEndian.Uint16(q) || !m.Response || !m.RecursionAvailable || len(m.Questions) != 1 {
		t.Errorf("%+v", m)
	}
	switch {
	case m.RCode != dnsmessage.RCodeSuccess:
		return strings.TrimPrefix(m.RCode.String(), "RCode")
	case len(m.Answers) == 0:
		return "no data"
	}
	a, ok := m.Answers[0].Body.(*dnsmessage.AResource)
	if !ok || len(m.Answers) != 1 || m.Answers[0].Header.TTL != answersFor || m.Answers[0].Header.Name != m.Questions[0].Name {
		t.Errorf("%+v", m.Answers)
	}
	return netip.AddrFrom4(a.A).String()
}

func (w *outside) ask(name string, kind dnsmessage.Type) string {
	w.t.Helper()
	q := query(w.t, name, kind)
	return answered(w.t, q, w.g.Answer(q))
}

// TestDNS answers for what the rules allow, and asks nobody (V04).
func TestDNS(t *testing.T) {
	w := open(t, v1beta1.ProfileOutbound{AllowHost: []string{"allowed.test", ".below.test"}}, Options{})
	for _, c := range []struct {
		name string
		kind dnsmessage.Type
		want string
	}{
		{"allowed.test.", dnsmessage.TypeA, "127.84.0.1"},
		{"ALLOWED.test.", dnsmessage.TypeA, "127.84.0.1"},
		{"allowed.test.", dnsmessage.TypeAAAA, "no data"},
		{"allowed.test.", dnsmessage.TypeTXT, "no data"},
		{"allowed.test.", 65, "no data"},
		{"below.test.", dnsmessage.TypeA, "127.84.0.2"},
		{"x.below.test.", dnsmessage.TypeA, "127.84.0.3"},
		{"allowed.test.", dnsmessage.TypeA, "127.84.0.1"},
		{"evil.test.", dnsmessage.TypeA, "NameError"},
		{"evil.test.", dnsmessage.TypeAAAA, "NameError"},
		{"evil.test.", dnsmessage.TypeTXT, "NameError"},
		{"evil.test.", 10, "NameError"}, // NULL
		{"evil.test.", dnsmessage.TypeALL, "NameError"},
		{"allowed.test.evil.", dnsmessage.TypeA, "NameError"},
		{"evilallowed.test.", dnsmessage.TypeA, "NameError"},
		{"host.docker.internal.", dnsmessage.TypeA, "NameError"},
		{"1.0.0.127.in-addr.arpa.", dnsmessage.TypePTR, "NameError"},
		{"127.0.0.1.", dnsmessage.TypeA, "NameError"},
		{".", dnsmessage.TypeNS, "NameError"},
	} {
		if got := w.ask(c.name, c.kind); got != c.want {
			t.Errorf("%s %s: %s; want %s", c.name, c.kind, got, c.want)
		}
	}
	for i := range 1000 {
		if got := w.ask(fmt.Sprintf("secret%d.allowed.test.", i), dnsmessage.TypeA); got != "NameError" {
			t.Fatalf("a label under a listed name: %s", got)
		}
	}
	if n := w.lookups.Load(); n != 0 {
		t.Errorf("%d look-ups", n)
	}
	// The same over TCP, as many as may be on a connection.
	c, served := w.connect("127.0.0.1:53")
	q := query(t, "allowed.test.", dnsmessage.TypeA)
	for i := range maxQuestions {
		if _, err := c.Write(append([]byte{0, byte(len(q))}, q...)); err != nil {
			t.Fatal(i, err)
		}
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			t.Fatal(i, err)
		}
		b := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, b); err != nil || answered(t, q, b) != "127.84.0.1" {
			t.Fatal(i, err)
		}
	}
	<-served
	for _, text := range [][]byte{{0xff, 0xff}, {0, 3, 1, 2, 3}, {0, 0}} {
		c, served := w.connect("127.0.0.1:53")
		_, _ = c.Write(text)
		if b, _ := io.ReadAll(c); len(b) > 0 {
			t.Errorf("%x: %x", text, b)
		}
		<-served
	}
}

// TestDNSTold: a name that is not let out is counted, logged and told to audit logs although no
// connection to it is ever made; one that is let out is told by its connection alone.
func TestDNSTold(t *testing.T) {
	w := open(t, v1beta1.ProfileOutbound{AllowHost: []string{"allowed.test"}}, Options{})
	for _, name := range []string{"allowed.test.", "EVIL.test.", "host.docker.internal.", "10.1.2.3.", "a_b.test.", "\x1b[2J.test."} {
		w.ask(name, dnsmessage.TypeA)
	}
	w.ask("allowed.test.", dnsmessage.TypeAAAA)
	w.ask("evil.test.", dnsmessage.TypeAAAA) // which is counted, and told a minute later
	for i := range 2 * maxTold {
		w.ask(fmt.Sprintf("n%d.test.", i), dnsmessage.TypeA)
	}
	if n := len(w.told); n != maxTold {
		t.Errorf("%d records in a minute", n)
	}
	var got []string
	for _, r := range w.told[:min(5, len(w.told))] {
		got = append(got, fmt.Sprintf("%q:%d %s %s", r.Host, r.Port, r.Reason, r.More))
	}
	want := []string{
		`"evil.test":0 host asked of DNS`, `"host.docker.internal":0 gateway asked of DNS`, `"10.1.2.3.":0 bad_target asked of DNS: ` + errNumber.Error(),
		`"a_b.test.":0 bad_target asked of DNS: ` + errBytes.Error(), `"[2J.test.":0 bad_target asked of DNS: ` + errBytes.Error(),
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := w.p.denied[UnlistedHost].Load(); n != 2+2*maxTold {
		t.Errorf("counted %d times", n)
	}
	if text := w.log(); strings.Count(text, "host=evil.test") != 1 || strings.Contains(text, "\x1b") {
		t.Error(text)
	}
}

// TestDNSMalformed answers what is wrong with an error, or with nothing.
func TestDNSMalformed(t *testing.T) {
	n, r := newNames(time.Now), rules(t, Options{}, public)
	q := query(t, "allowed.test.", dnsmessage.TypeA)
	change := func(at int, to ...byte) []byte {
		b := append([]byte{}, q...)
		copy(b[at:], to)
		return b
	}
	for name, c := range map[string]struct {
		q    []byte
		code int // -1 for no answer
	}{
		"right":                         {q, 0},
		"nothing":                       {nil, -1},
		"half a header":                 {q[:11], -1},
		"too large":                     {append(append([]byte{}, q...), make([]byte, maxQuery)...), -1},
		"an answer":                     {change(2, 0x80), -1},
		"another operation":             {change(2, 0x28), codeNotImpl},
		"no question":                   {change(5, 0), codeFormat},
		"two questions":                 {change(5, 2), codeFormat},
		"an answer in it":               {change(7, 1), codeFormat},
		"half a question":               {q[:20], codeFormat},
		"no type":                       {q[:26], codeFormat},
		"a pointer":                     {change(12, 0xc0, 12), codeFormat},
		"a label that is longer":        {change(12, 64), codeFormat},
		"a dot in a label":              {change(15, '.'), codeFormat},
		"another class":                 {change(12+14+3, 3), codeNotImpl},
		"a name that is longer":         {append(append(change(0)[:12], strings.Repeat("\x3f"+strings.Repeat("a", 63), 4)...), 0, 0, 1, 0, 1), codeFormat},
		"NUL in a label":                {change(15, 0), codeNoName},
		"a label of one of two":         {change(12, 11), codeFormat},
		"without the additional record": {change(11, 0)[:12+14+4], 0},
	} {
		b := n.answer(r, c.q, func() {})
		switch {
		case c.code < 0 && b != nil:
			t.Errorf("%s: %x", name, b)
		case c.code >= 0 && (len(b) < 12 || int(b[3]&15) != c.code || b[2]&0x80 == 0):
			t.Errorf("%s: %x; want %d", name, b, c.code)
		}
	}
}

// TestNamesKept never gives an address to another name while it may be in use: for an hour
// after its last answer, and while a connection uses it (V18).
func TestNamesKept(t *testing.T) {
	now := time.Unix(1e9, 0)
	n := newNames(func() time.Time { return now })
	r := rules(t, Options{}, v1beta1.ProfileOutbound{AllowHost: []string{".below.test"}})
	full := 0
	ask := func(i int) string {
		q := query(t, fmt.Sprintf("n%d.below.test.", i), dnsmessage.TypeA)
		return answered(t, q, n.answer(r, q, func() { full++ }))
	}
	first := ask(0)
	seen := map[string]int{first: 0}
	for i := 1; i < maxNames; i++ {
		at := ask(i)
		if other, ok := seen[at]; ok {
			t.Fatalf("%s is of %d and %d", at, other, i)
		}
		seen[at] = i
		if a := netip.MustParseAddr(at); !netip.MustParsePrefix("127.84.0.0/16").Contains(a) {
			t.Fatalf("%s", at)
		}
	}
	for i := maxNames; i < maxNames+50; i++ {
		if got := ask(i); got != "ServerFailure" {
			t.Fatalf("name %d: %s", i, got)
		}
	}
	if full != 50 {
		t.Errorf("%d were told", full)
	}
	if got := ask(0); got != first {
		t.Errorf("the first has moved to %s", got)
	}
	// One is in use; another was asked for lately.
	h, done, ok := n.use(netip.MustParseAddr(first))
	if !ok || h.String() != "n0.below.test" {
		t.Fatalf("%s is of %s", first, h)
	}
	now = now.Add(keptFor - time.Second)
	if got := ask(7); seen[got] != 7 {
		t.Errorf("name 7 is at %s", got)
	}
	if got := ask(9000); got != "ServerFailure" {
		t.Errorf("before an hour has passed: %s", got)
	}
	now = now.Add(2 * time.Second)
	for i := range maxNames - 2 { // all but the one in use, and the one of lately
		got := ask(10000 + i)
		if who, ok := seen[got]; !ok || who == 0 || who == 7 {
			t.Fatalf("name %d is at %s, of %d", i, got, who)
		}
	}
	if got := ask(99999); got != "ServerFailure" {
		t.Errorf("one more: %s", got)
	}
	if h, d2, ok := n.use(netip.MustParseAddr(first)); !ok || h.String() != "n0.below.test" {
		t.Errorf("%s is of %s", first, h)
	} else {
		d2()
	}
	done()
	done() // once
	if got := ask(99999); got != first {
		t.Errorf("when it was given back: %s", got)
	}
	if n.all[0].used != 0 || len(n.by) != maxNames {
		t.Errorf("%d uses, %d names", n.all[0].used, len(n.by))
	}
}

// FuzzDNS answers what strangers send. An answer repeats the question, and gives an address
// to what the rules allow alone.
func FuzzDNS(f *testing.F) {
	f.Add(query(f, "allowed.test.", dnsmessage.TypeA))
	f.Add(query(f, "evil.test.", dnsmessage.TypeTXT))
	f.Add(query(f, "x.below.test.", dnsmessage.TypeAAAA))
	f.Add([]byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1})
	r := rules(f, Options{}, v1beta1.ProfileOutbound{AllowHost: []string{"allowed.test", ".below.test"}})
	f.Fuzz(func(t *testing.T, q []byte) {
		n := newNames(time.Now)
		b := n.answer(r, q, func() {})
		if b == nil {
			return
		}
		if len(b) < 12 || len(b) > len(q)+16 || b[0] != q[0] || b[1] != q[1] || b[2]&0x80 == 0 {
			t.Fatalf("%x: %x", q, b)
		}
		var m dnsmessage.Message
		if err := m.Unpack(b); err != nil {
			t.Fatalf("%x: %x: %v", q, b, err)
		}
		if len(m.Answers) == 0 {
			return
		}
		name := strings.ToLower(m.Questions[0].Name.String())
		if name != "allowed.test." && name != "below.test." && !strings.HasSuffix(name, ".below.test.") {
			t.Fatalf("%s has an address", name)
		}
	})
}
