//go:build unix

package stdio

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// all reads a stream to its end: the lines, those above the limit as "!" and their beginning.
func all(t testing.TB, r io.Reader, limit int) []string {
	t.Helper()
	l := newLines(r, limit, 8)
	var out []string
	for {
		line, _, err := l.next()
		if head, _, long := isLong(err); long {
			out = append(out, "!"+string(head))
			continue
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			return out
		}
		out = append(out, string(line))
	}
}

// plainLines is what all should return, by a reader that has no bounds.
func plainLines(text string, limit int) []string {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		out = append(out, line)
	}
	if out[len(out)-1] == "" {
		out = out[:len(out)-1]
	}
	for i, line := range out {
		if line = strings.TrimSuffix(line, "\r"); len(line) > limit {
			line = "!" + line[:8]
		}
		out[i] = line
	}
	return out
}

func TestLines(t *testing.T) {
	const limit = 3 * large
	long := strings.Repeat("0123456789", limit/10+1)
	for name, text := range map[string]string{
		"nothing":                "",
		"no newline":             "abc",
		"ends":                   "a\r\nb\nc\r\n\n\r\n",
		"as long as may be":      long[:limit] + "\r\n" + long[:limit] + "\nx\n",
		"one more":               long[:limit+1] + "\nx\n" + long[:limit+1] + "\r\ny",
		"much more":              strings.Repeat(long, 5) + "\nx\n",
		"as long as the buffers": long[:small-1] + "\n" + long[:small] + "\n" + long[:large-1] + "\n" + long[:large] + "\n" + long[:large+1] + "\nx\n",
		"long without an end":    long + long,
	} {
		want := plainLines(text, limit)
		for how, r := range map[string]io.Reader{"whole": strings.NewReader(text), "bytewise": iotest.OneByteReader(strings.NewReader(text)), "halves": iotest.HalfReader(strings.NewReader(text)), "with its end": iotest.DataErrReader(strings.NewReader(text))} {
			got := all(t, r, limit)
			if len(got) != len(want) {
				t.Errorf("%s, %s: %d lines, want %d", name, how, len(got), len(want))
				continue
			}
			for i := range got {
				if got[i] != want[i] {
					t.Errorf("%s, %s: line %d is %.40q, want %.40q", name, how, i, got[i], want[i])
				}
			}
		}
	}
}

// FuzzLines: what is read does not depend on how it comes, and a line above the limit costs
// no memory but a buffer.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\r\nb\n\n{\"id\":1}"), uint16(10), uint8(3))
	f.Add([]byte(strings.Repeat("x", 9000)+"\n"), uint16(8999), uint8(0))
	f.Fuzz(func(t *testing.T, text []byte, limit uint16, piece uint8) {
		limit = max(limit, 8)
		want := plainLines(string(text), int(limit))
		l := newLines(&pieces{bytes.NewReader(text), int(piece) + 1}, int(limit), 8)
		for i := 0; ; i++ {
			line, _, err := l.next()
			head, _, long := isLong(err)
			if err != nil && !long {
				if i != len(want) || !errors.Is(err, io.EOF) {
					t.Fatalf("%d lines, want %d: %v", i, len(want), err)
				}
				return
			}
			if long {
				line = append([]byte("!"), head...)
			}
			if i >= len(want) || string(line) != want[i] {
				t.Fatalf("line %d is %.60q", i, line)
			}
			if cap(l.long) > 2*large+2*int(limit)+4*large {
				t.Fatalf("%d bytes held", cap(l.long))
			}
			idIn(line)
		}
	})
}

type pieces struct {
	r io.Reader
	n int
}

func (p *pieces) Read(b []byte) (int, error) { return p.r.Read(b[:min(len(b), p.n)]) }

func TestIDIn(t *testing.T) {
	for head, want := range map[string]string{
		`{"jsonrpc":"2.0","id":12,"result":{"x":"`:            "12",
		`{"result":{"id":7,"a":["id",8]},"id":"a\"b","x`:      `"a\"b"`,
		` {"id" : -3 , "result`:                               "-3",
		`{"jsonrpc":"2.0","method":"notifications/x","id":1,`: "",
		`{"result":{"id":7`:                                   "",
		`{"id":1`:                                             "",
		`{"x":"id","id":5}`:                                   "5",
		`["id",5,{"id":5}]`:                                   "",
		`{"id":12.0,"result":{}}`:                             "12",
		`{"id":12.5,"result":{}}`:                             "12.5",
		`{"id":10000000000001e0,"result":{}}`:                 "10000000000001",
		``:                                                    "",
	} {
		if got := string(idIn([]byte(head))); got != want {
			t.Errorf("%s: %q, want %q", head, got, want)
		}
	}
}

// An answer above the limit is found by its id wherever that stands.
func TestIDOf(t *testing.T) {
	long := strings.Repeat("a", 3*large)
	for line, want := range map[string]string{
		`{"jsonrpc":"2.0","id":12,"result":"` + long + `"}`:                           "12",
		`{"result":{"id":7,"a":"` + long + `"},"jsonrpc":"2.0","id":12}`:              "12",
		`{"result":{"id":7,"a":"` + long + `"}, "id" : "12", "jsonrpc":"2.0"}` + "\r": `"12"`,
		`{"result":{"a":"` + long + `","id":7}}`:                                      "",
		`{"result":["` + long + `",{"id":7}]}`:                                        "",
		`{"result":"` + long + `\"id\":7}`:                                            "",
		`{"method":"x","params":"` + long + `","id":7}`:                               "",
	} {
		for how, r := range map[string]io.Reader{"whole": strings.NewReader(line), "halves": iotest.HalfReader(strings.NewReader(line)), "in pieces": &pieces{strings.NewReader(line + "\n"), 100}} {
			_, _, err := newLines(r, len(long), idWithin).next()
			head, tail, is := isLong(err)
			if got := string(idOf(head, tail)); !is || got != want || len(tail) > atEnd {
				t.Errorf("%s…%s, %s: %q, want %q", line[:20], line[len(line)-20:], how, got, want)
			}
		}
	}
}
