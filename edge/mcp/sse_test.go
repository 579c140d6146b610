package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// kept is an event that outlives the next one.
type kept struct {
	Type, Data, ID string
	HasID          bool
	Retry          int
}

func (k kept) String() string {
	return fmt.Sprintf("{%s %q id %q (%v) retry %d}", k.Type, k.Data, k.ID, k.HasID, k.Retry)
}

// readAll reads events up to the error that ends the stream.
func readAll(r io.Reader, limit int) ([]kept, error) {
	var out []kept
	events := NewEventReader(r, limit)
	for {
		e, err := events.Next()
		if err != nil {
			return out, err
		}
		out = append(out, kept{e.Type, string(e.Data), e.ID, e.HasID, e.Retry})
	}
}

// pieces reads a text in pieces that end at the given places.
type pieces struct {
	text string
	ends []int
	at   int
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.at == len(p.text) {
		return 0, io.EOF
	}
	end := len(p.text)
	for _, e := range p.ends {
		if e > p.at {
			end = min(end, e)
		}
	}
	n := copy(b, p.text[p.at:end])
	p.at += n
	return n, nil
}

// What a stream says does not depend on how it arrives.
func eachSplit(t *testing.T, stream string, limit int, check func(t *testing.T, how string, got []kept, err error)) {
	t.Helper()
	run := func(how string, r io.Reader) {
		got, err := readAll(r, limit)
		check(t, how, got, err)
	}
	run("whole", strings.NewReader(stream))
	run("byte by byte", iotest.OneByteReader(strings.NewReader(stream)))
	run("halves", iotest.HalfReader(strings.NewReader(stream)))
	run("end with the last bytes", iotest.DataErrReader(strings.NewReader(stream)))
	for at := 1; at < len(stream); at++ {
		run(fmt.Sprintf("split at %d", at), &pieces{text: stream, ends: []int{at}})
	}
}

func TestM18Events(t *testing.T) {
	message := func(data string) kept { return kept{Type: "message", Data: data, Retry: -1} }
	for _, c := range []struct {
		name, stream string // each LF of the stream is tried as CR and CRLF too
		want         []kept
	}{
		{"nothing", "", nil},
		{"blank lines", "\n\n\n", nil},
		{"one", "data: x\n\n", []kept{message("x")}},
		{"no space", "data:x\n\n", []kept{message("x")}},
		{"one space goes", "data:  x \n\n", []kept{message(" x ")}},
		{"several lines", "data: a\ndata: b\ndata:\ndata: c\n\n", []kept{message("a\nb\n\nc")}},
		{"several blank lines", "data: a\n\n\n\ndata: b\n\n", []kept{message("a"), message("b")}},
		{"empty data", "data\n\ndata:\n\ndata: \n\n", []kept{message(""), message(""), message("")}},
		{"two empty lines of data", "data\ndata\n\n", []kept{message("\n")}},
		{"colons in data", "data: a: b:c\n\n", []kept{message("a: b:c")}},
		{"type", "event: endpoint\ndata: /messages?x=1\n\n", []kept{{Type: "endpoint", Data: "/messages?x=1", Retry: -1}}},
		{"last type wins", "event: a\nevent: b\ndata\n\n", []kept{{Type: "b", Retry: -1}}},
		{"empty type", "event: a\nevent:\ndata: x\n\n", []kept{message("x")}},
		{"type is of one event", "event: a\ndata: x\n\ndata: y\n\n", []kept{{Type: "a", Data: "x", Retry: -1}, message("y")}},
		{"type without data", "event: a\n\ndata: x\n\n", []kept{message("x")}},
		{"comment", ": hello\n:\n:data: y\ndata: x\n: in between\n\n", []kept{message("x")}},
		{"only comments", ": a\n\n: b\n\n", nil},
		{"id", "id: 7\ndata: x\n\n", []kept{{Type: "message", Data: "x", ID: "7", HasID: true, Retry: -1}}},
		{"id alone primes", "id: 7\ndata:\n\nid: 8\n\n", []kept{{Type: "message", ID: "7", HasID: true, Retry: -1}, {Type: "message", ID: "8", HasID: true, Retry: -1}}},
		{"empty id", "id\ndata: x\n\n", []kept{{Type: "message", Data: "x", HasID: true, Retry: -1}}},
		{"last id wins", "id: 1\nid: 2\ndata: x\n\n", []kept{{Type: "message", Data: "x", ID: "2", HasID: true, Retry: -1}}},
		{"id with NUL", "id: a\x00b\ndata: x\n\n", []kept{message("x")}},
		{"id with NUL after another", "id: 1\nid: a\x00b\ndata: x\n\n", []kept{{Type: "message", Data: "x", ID: "1", HasID: true, Retry: -1}}},
		{"only an id with NUL", "id: \x00\n\n", nil},
		{"id is of one event", "id: 1\ndata: x\n\ndata: y\n\n", []kept{{Type: "message", Data: "x", ID: "1", HasID: true, Retry: -1}, message("y")}},
		{"retry", "retry: 500\ndata: x\n\n", []kept{{Type: "message", Data: "x", Retry: 500}}},
		{"retry alone", "retry: 0\n\n", []kept{{Type: "message", Retry: 0}}},
		{"retry that is no number", "retry: 1s\nretry: -1\nretry: -0\nretry: +5\nretry: 0x10\nretry: 1_0\nretry:  5\nretry:\nretry: ٣\nretry: 99999999999999999999\ndata: x\n\n", []kept{message("x")}},
		{"unknown fields", "data: x\nfoo: bar\nDATA: y\n data: z\ndata : w\n\n", []kept{message("x")}},
		{"JSON over several lines", "data: {\"a\":\ndata: 1}\n\n", []kept{message("{\"a\":\n1}")}},
		{"text of any kind", "data: é😀 \x00\xff\n\n", []kept{message("é😀 \x00\xff")}},
		{"byte order mark", "\ufeffdata: x\n\n", []kept{message("x")}},
		{"byte order mark before nothing", "\ufeff\n\ndata: x\n\n", []kept{message("x")}},
		{"two byte order marks", "\ufeff\ufeffdata: x\n\ndata: y\n\n", []kept{message("y")}},
		{"byte order mark later", "data: x\n\n\ufeffdata: y\n\ndata: z\n\n", []kept{message("x"), message("z")}},
		{"half a byte order mark", "\xef\xbbdata: x\n\ndata: y\n\n", []kept{message("y")}},
		{"end in the middle of a line", "data: x\n\ndata: y", []kept{message("x")}},
		{"end in the middle of an event", "data: x\n\ndata: y\nid: 1\n", []kept{message("x")}},
		{"end after the data", "data: x\n", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, end := range []string{"\n", "\r", "\r\n"} {
				stream := strings.ReplaceAll(c.stream, "\n", end)
				eachSplit(t, stream, 1000, func(t *testing.T, how string, got []kept, err error) {
					if err != io.EOF || !slices.Equal(got, c.want) {
						t.Errorf("%q, %s: got %v, %v; want %v", stream, how, got, err, c.want)
					}
				})
			}
		})
	}
}

func TestM18LineEndsMixed(t *testing.T) {
	// CR LF is one end; LF CR, CR CR and LF LF are two.
	stream := "data: 1\r\n\r\ndata: 2\n\rdata: 3\r\rdata: 4\r\n\ndata: 5\n\r\ndata: 6\r\rdata: 7\n\n\r\n"
	var want []kept
	for i := 1; i <= 7; i++ {
		want = append(want, kept{Type: "message", Data: fmt.Sprint(i), Retry: -1})
	}
	eachSplit(t, stream, 100, func(t *testing.T, how string, got []kept, err error) {
		if err != io.EOF || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v", how, got, err)
		}
	})
	// An event is there as soon as its CR is: nobody waits for an LF.
	in, out := io.Pipe()
	go func() {
		_, _ = io.WriteString(out, "data: x\r\r") // ends when the reader has it
	}()
	if e, err := NewEventReader(in, 100).Next(); err != nil || string(e.Data) != "x" {
		t.Errorf("got %v, %v", e.Data, err)
	}
}

func TestM18Limits(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct {
		name, stream string
		ok           bool
	}{
		{"at the limit", "data: " + x(94) + "\n\n", true},
		{"above", "data: " + x(95) + "\n\n", false},
		{"at the limit after a byte order mark", "\ufeffdata: " + x(94) + "\n\n", true},
		{"above after a byte order mark", "\ufeffdata: " + x(95) + "\n\n", false},
		{"in several lines", "data: " + x(40) + "\ndata: " + x(48) + "\n\n", true},
		{"above in several lines", "data: " + x(40) + "\ndata: " + x(49) + "\n\n", false},
		{"empty lines of data", strings.Repeat("data\n", 25) + "\n", true},
		{"too many empty lines of data", strings.Repeat("data\n", 26) + "\n", false},
		{"many types", strings.Repeat("event: x\n", 20) + "data: x\n\n", false},
		{"unknown fields", strings.Repeat("foo\n", 40) + "data: x\n\n", false},
		{"comments are not counted", strings.Repeat(": keep alive\n", 1000) + "data: x\n\n", true},
		{"a comment of one long line", ":" + x(5000), false},
		{"a comment at the limit", ":" + x(99) + "\ndata: x\n\n", true},
		{"a comment above", ":" + x(100) + "\ndata: x\n\n", false},
		{"each event starts anew", strings.Repeat("data: "+x(90)+"\n\n", 20), true},
		{"each event without data starts anew", strings.Repeat("event: "+x(90)+"\n\n", 20) + "data: x\n\n", true},
		{"a line without an end", "data: " + x(5000), false},
		{"a name without an end", x(5000), false},
		{"a small line without an end", "data: " + x(50), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachSplit(t, c.stream, 100, func(t *testing.T, how string, got []kept, err error) {
				want := error(io.EOF)
				if !c.ok {
					want = ErrEventTooLarge
				}
				if !errors.Is(err, want) {
					t.Errorf("%s: got %v after %d events, want %v", how, err, len(got), want)
				}
			})
		})
	}
}

// endless repeats a text for n bytes and counts what was taken of it.
type endless struct {
	text string
	n    int
	at   int
	took int
}

func (e *endless) Read(b []byte) (int, error) {
	if e.took >= e.n {
		return 0, io.EOF
	}
	n := 0
	for n < len(b) {
		c := copy(b[n:], e.text[e.at:])
		n, e.at = n+c, (e.at+c)%len(e.text)
	}
	e.took += n
	return n, nil
}

// A single event of 100 MiB costs no more than the limit allows.
func TestM18HugeEvents(t *testing.T) {
	const limit = 4 << 20
	for _, c := range []struct{ name, text string }{
		{"one line", "data: 0123456789abcdef"},
		{"short lines", "data: 0123456789abcdef\n"},
		{"empty lines of data", "data\r"},
		{"ids", "id: 0123456789abcdef\n"},
		{"unknown fields", "x\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := &endless{text: c.text, n: 100 << 20}
			var err error
			grown := allocated(func() { _, err = NewEventReader(in, limit).Next() })
			if !errors.Is(err, ErrEventTooLarge) {
				t.Fatalf("got %v", err)
			}
			if in.took > 6*limit {
				t.Errorf("%d bytes were read", in.took)
			}
			// A growing buffer and the data beside it, all that ever was of them;
			// and an id is a string of its own.
			if grown > 9*limit {
				t.Errorf("%d bytes were allocated", grown)
			}
		})
	}
	t.Run("comments for ever", func(t *testing.T) {
		in := &endless{text: ": keep alive\n", n: 20 << 20}
		var err error
		if grown := allocated(func() { _, err = NewEventReader(in, 1000).Next() }); err != io.EOF || grown > 1<<20 {
			t.Errorf("got %v and %d bytes allocated", err, grown)
		}
	})
}

func TestEventReaderErrors(t *testing.T) {
	broken := errors.New("broken")
	in := io.MultiReader(strings.NewReader("data: x\n\ndata: y\n"), iotest.ErrReader(broken))
	if got, err := readAll(in, 100); err != broken || len(got) != 1 {
		t.Errorf("got %v, %v", got, err)
	}
	// A reader that gives bytes together with its error is read to the end.
	if got, err := readAll(iotest.DataErrReader(strings.NewReader("data: x\n\n")), 100); err != io.EOF || len(got) != 1 {
		t.Errorf("got %v, %v", got, err)
	}
	// One that never gives anything is given up.
	if _, err := readAll(nothing{}, 100); err != io.ErrNoProgress {
		t.Errorf("got %v", err)
	}
}

type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, nil }

// A reader that is used again is as good as new, whatever it read before.
func TestEventReaderReset(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	r := NewEventReader(nil, 0)
	for _, before := range []string{"", "data: old", "data: old\r", "data: old\n\ndata: older\n", "event: old\nid: 1\n", "\ufeff", "data: " + x(50_000), "data: " + x(3<<20) + "\n\n", x(5 << 20)} {
		r.Reset(strings.NewReader(before), 4<<20)
		for {
			if _, err := r.Next(); err != nil {
				break
			}
		}
		r.Reset(strings.NewReader("\ufeffdata: a\n\n\ndata: "+x(90)+"\n\n"), 100)
		if e, err := r.Next(); err != nil || e.Type != "message" || string(e.Data) != "a" || e.HasID {
			t.Errorf("after %q: %q, %v", short([]byte(before)), e.Data, err)
		}
		if e, err := r.Next(); err != nil || string(e.Data) != x(90) {
			t.Errorf("after %q: %q, %v", short([]byte(before)), e.Data, err)
		}
		if _, err := r.Next(); err != io.EOF {
			t.Errorf("after %q: %v", short([]byte(before)), err)
		}
		r.Reset(strings.NewReader("\ndata: "+x(95)+"\n\n"), 100)
		if _, err := r.Next(); !errors.Is(err, ErrEventTooLarge) {
			t.Errorf("after %q: %v", short([]byte(before)), err)
		}
		if cap(r.buf) > 64<<10 {
			t.Errorf("after %q a buffer of %d is kept", short([]byte(before)), cap(r.buf))
		}
	}
}

func TestAppendEvent(t *testing.T) {
	for _, c := range []struct{ name, id, data, want string }{
		{"", "", `{"a":1}`, "data: {\"a\":1}\n\n"},
		{"message", "", `{}`, "event: message\ndata: {}\n\n"},
		{"endpoint", "17", "/messages", "event: endpoint\nid: 17\ndata: /messages\n\n"},
		{"", "1", "", "id: 1\ndata: \n\n"},
		{"", "", " two", "data:  two\n\n"},
		{"", "", "a\nb", "data: a\ndata: b\n\n"},
		{"", "", "a\r\nb\rc\n", "data: a\ndata: b\ndata: c\ndata: \n\n"},
		{"", "", "\n\r", "data: \ndata: \ndata: \n\n"},
	} {
		if got := string(AppendEvent([]byte("before"), c.name, c.id, []byte(c.data))); got != "before"+c.want {
			t.Errorf("%q %q %q: got %q", c.name, c.id, c.data, got)
		}
	}
}

// A message written over several lines is the same message at the other end.
func TestEventOfIndentedMessage(t *testing.T) {
	for _, end := range []string{"\n", "\r", "\r\n", "\n\n", "\r\r\n"} {
		text := strings.ReplaceAll("{\n\t\"jsonrpc\": \"2.0\",\n\t\"id\": 1,\n\t\"result\": {}\n}\n", "\n", end)
		got, err := readAll(bytes.NewReader(AppendEvent(nil, "", "", []byte(text))), 1000)
		if err != io.EOF || len(got) != 1 {
			t.Fatalf("got %v, %v", got, err)
		}
		m, err := Decode([]byte(got[0].Data))
		if err != nil || m.Kind != Result {
			t.Errorf("%q: %v", got[0].Data, err)
		}
	}
}

// joined is what a reader makes of data that AppendEvent took apart.
func joined(data string) string {
	return strings.ReplaceAll(strings.ReplaceAll(data, "\r\n", "\n"), "\r", "\n")
}

// plainEvents is the algorithm of the standard written down plainly, over the
// whole stream at once and without a limit.
func plainEvents(stream string) []kept {
	stream = strings.TrimPrefix(stream, byteOrderMark)
	var out []kept
	e, data, hasData := kept{Type: "message", Retry: -1}, "", false
	lines := strings.Split(joined(stream), "\n")
	for _, line := range lines[:len(lines)-1] {
		if line == "" {
			if hasData || e.HasID || e.Retry >= 0 {
				e.Data = strings.TrimSuffix(data, "\n")
				out = append(out, e)
			}
			e, data, hasData = kept{Type: "message", Retry: -1}, "", false
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "data":
			data, hasData = data+value+"\n", true
		case "event":
			e.Type = value
			if value == "" {
				e.Type = "message"
			}
		case "id":
			if !strings.Contains(value, "\x00") {
				e.ID, e.HasID = value, true
			}
		case "retry":
			if value != "" && strings.Trim(value, "0123456789") == "" {
				var n int
				if _, err := fmt.Sscanf(value, "%d", &n); err == nil {
					e.Retry = n
				}
			}
		}
	}
	return out
}

func FuzzEvents(f *testing.F) {
	for _, s := range []string{
		"", "\n", "data: x\n\n", "\ufeffdata: x\r\n\r\n", "id: 1\rretry: 5\revent: e\rdata: a\rdata: b\r\r", ": c\n\ndata\n\n", "id: a\x00\n\n", "data: x\n\nda", "retry: -0\n\n",
		"data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n",
	} {
		f.Add([]byte(s), uint16(3), uint16(100))
	}
	f.Fuzz(func(t *testing.T, stream []byte, split, limit uint16) {
		const roomy = 1 << 20
		want, err := readAll(bytes.NewReader(stream), roomy)
		if err != io.EOF {
			t.Fatalf("%q: %v", stream, err)
		}
		if plain := plainEvents(string(stream)); !reflect.DeepEqual(want, plain) {
			t.Fatalf("%q: got %v, want %v", stream, want, plain)
		}
		for _, r := range []io.Reader{
			iotest.OneByteReader(bytes.NewReader(stream)),
			iotest.DataErrReader(bytes.NewReader(stream)),
			&pieces{text: string(stream), ends: []int{int(split)}},
			&pieces{text: string(stream), ends: []int{int(split), 2 * int(split), 3 * int(split)}},
		} {
			if got, err := readAll(r, roomy); err != io.EOF || !slices.Equal(got, want) {
				t.Fatalf("%q in pieces: got %v, %v; want %v", stream, got, err, want)
			}
		}
		// Under a small limit the events up to the first large one are the same,
		// however they arrive, and none is larger.
		few, err := readAll(bytes.NewReader(stream), int(limit))
		if err != io.EOF && !errors.Is(err, ErrEventTooLarge) {
			t.Fatalf("%q: %v", stream, err)
		}
		if len(few) > len(want) || !slices.Equal(few, want[:len(few)]) {
			t.Fatalf("%q with a limit of %d: got %v, want %v", stream, limit, few, want)
		}
		for _, e := range few {
			if len(e.Data)+len(e.ID) > int(limit) {
				t.Fatalf("%q with a limit of %d: %v", stream, limit, e)
			}
		}
		same, sameErr := readAll(iotest.OneByteReader(bytes.NewReader(stream)), int(limit))
		if !slices.Equal(few, same) || (err == io.EOF) != (sameErr == io.EOF) {
			t.Fatalf("%q with a limit of %d: %v, %v in one, %v, %v byte by byte", stream, limit, few, err, same, sameErr)
		}
		// The input as data goes through an event and comes back.
		event := AppendEvent(nil, "message", "1", stream)
		got, err := readAll(bytes.NewReader(event), roomy)
		if err != io.EOF || len(got) != 1 || got[0] != (kept{"message", joined(string(stream)), "1", true, -1}) {
			t.Fatalf("%q as data: got %v, %v", stream, got, err)
		}
	})
}

// What an event says is its receiver's, and a reader that waits holds next to
// nothing, however large the last event was.
func TestEventReaderBuffers(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	in, out := io.Pipe()
	defer in.Close()
	go func() {
		for _, text := range []string{"data: first\n\n", "data: " + long + "\n\n", "data: a\ndata: b\n\n", "data: " + long[:5000] + "\n\n"} {
			if _, err := io.WriteString(out, text); err != nil {
				return
			}
		}
		out.Close()
	}()
	r := NewEventReader(in, 1<<20)
	var got []string
	var kept [][]byte
	for {
		e, err := r.Next()
		if err != nil {
			break
		}
		if r.buf != nil {
			t.Errorf("a buffer of %d bytes is held between events", len(r.buf))
		}
		got, kept = append(got, string(e.Data)), append(kept, e.Data)
	}
	if len(got) != 4 || got[1] != long || got[2] != "a\nb" {
		t.Fatalf("%d events", len(got))
	}
	for i, data := range kept {
		if string(data) != got[i] {
			t.Errorf("event %d has changed since it was read", i)
		}
	}
	if len(r.buf) > smallBuffer {
		t.Errorf("a reader that waits holds %d bytes", len(r.buf))
	}
}
