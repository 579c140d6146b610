package mcp

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
)

// aCall is a modern call of a tool of about 300 bytes, as a client sends it.
var aCall = []byte(`{"jsonrpc":"2.0","id":4711,"method":"tools/call","params":{"name":"search_issues","arguments":{"query":"memory leak in the pool","limit":20,"open":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":"4711"}}}`)

// aResult returns the answer to a call with one text of n bytes, in which
// every 64th byte or so has to be escaped.
func aResult(n int) []byte {
	line := `the quick brown fox jumps over the lazy dog, again and again\n`
	text := strings.Repeat(line, n/len(line)+1)[:n/len(line)*len(line)]
	return []byte(`{"jsonrpc":"2.0","id":4711,"result":{"content":[{"type":"text","text":"` + text + `"}],"isError":false}}`)
}

// aStructure returns the answer to a call with about n bytes of small values.
func aStructure(n int) []byte {
	b := []byte(`{"jsonrpc":"2.0","id":4711,"result":{"content":[],"structuredContent":{"rows":[`)
	for i := 0; len(b) < n; i++ {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"id":%d,"name":"row %d","score":%d.5,"open":true,"owner":null,"tags":["a","b"]}`, i, i, i)
	}
	return append(b, `]}}}`...)
}

func BenchmarkDecode(b *testing.B) {
	for _, c := range []struct {
		name string
		text []byte
	}{
		{"call 300 B", aCall},
		{"result 1 MiB text", aResult(1 << 20)},
		{"result 1 MiB Cyrillic", []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + strings.Repeat("съешь ещё этих мягких булок ", 21000) + `"}]}}`)},
		{"result 1 MiB structure", aStructure(1 << 20)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.text)))
			b.ReportAllocs()
			var m Message
			for b.Loop() {
				if err := m.Decode(c.text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkValid(b *testing.B) {
	for _, c := range []struct {
		name string
		text []byte
	}{
		{"call 300 B", aCall},
		{"structure 1 MiB", aStructure(1 << 20)},
		{"objects of 16 escaped names 1 MiB", escapedNames(1 << 20)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.text)))
			b.ReportAllocs()
			for b.Loop() {
				if err := Valid(c.text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// escapedNames returns an array of about n bytes of objects whose names are all
// escaped and alike up to their last character.
func escapedNames(n int) []byte {
	b := []byte{'['}
	for len(b) < n {
		b = append(b, '{')
		for i := range wide {
			b = fmt.Appendf(b, `"\u0061a%x":0,`, i)
		}
		b = append(b[:len(b)-1], "},"...)
	}
	b[len(b)-1] = ']'
	return b
}

func BenchmarkTranslate(b *testing.B) {
	legacy, err := Decode([]byte(`{"jsonrpc":"2.0","id":4711,"method":"tools/call","params":{"name":"search_issues","arguments":{"query":"memory leak"},"_meta":{"progressToken":1}}}`))
	if err != nil {
		b.Fatal(err)
	}
	answer, err := Decode(aResult(1 << 10))
	if err != nil {
		b.Fatal(err)
	}
	caller := Caller{Info: []byte(`{"name":"c","version":"1"}`)}
	var dst []byte
	b.Run("ToModern", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			dst = ToModern(dst[:0], legacy, caller)
		}
	})
	b.Run("ResultToModern", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			dst = ResultToModern(dst[:0], answer, "tools/call", []byte("7"))
		}
	})
}

func BenchmarkEvents(b *testing.B) {
	for _, n := range []int{300, 1 << 20} {
		stream := AppendEvent(nil, "message", "", aResult(max(n, 128)))
		b.Run(fmt.Sprintf("read %d B", n), func(b *testing.B) {
			b.SetBytes(int64(len(stream)))
			b.ReportAllocs()
			in := bytes.NewReader(nil)
			for b.Loop() {
				in.Reset(stream)
				r := NewEventReader(in, 4<<20)
				if _, err := r.Next(); err != nil {
					b.Fatal(err)
				}
				if _, err := r.Next(); err != io.EOF {
					b.Fatal(err)
				}
			}
		})
		data := aResult(max(n, 128))
		b.Run(fmt.Sprintf("append %d B", n), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			var dst []byte
			for b.Loop() {
				dst = AppendEvent(dst[:0], "message", "", data)
			}
		})
	}
}
