//go:build unix

package stdio_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/stdio"
)

// parrots starts modern servers of this process that answer each line with the same
// result.
type parrots struct{ answer string }

func (p parrots) Start(context.Context, string) (stdio.Process, error) {
	in, stdin, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	stdout, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	one := &parrot{stdin: stdin, stdout: stdout, over: make(chan struct{})}
	go func() {
		defer close(one.over)
		defer out.Close()
		lines := bufio.NewReaderSize(in, 64<<10)
		var b []byte
		before, discover := []byte(`"id":`), []byte("server/discover")
		for {
			text, err := lines.ReadSlice('\n')
			if err != nil {
				return
			}
			from := bytes.Index(text, before) + len(before)
			to := from
			for text[to] >= '0' && text[to] <= '9' {
				to++
			}
			b = append(append(append(b[:0], `{"jsonrpc":"2.0","id":`...), text[from:to]...), `,"result":`...)
			if bytes.Contains(text, discover) {
				b = append(b, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{}}`...)
			} else {
				b = append(b, p.answer...)
			}
			if _, err := out.Write(append(b, "}\n"...)); err != nil {
				return
			}
		}
	}()
	return one, nil
}

type parrot struct {
	stdin, stdout *os.File
	over          chan struct{}
}

func (p *parrot) Stdin() io.WriteCloser { return p.stdin }
func (p *parrot) Stdout() io.ReadCloser { return p.stdout }
func (p *parrot) Stderr() io.ReadCloser { return nil }
func (p *parrot) Wait() stdio.Exit      { <-p.over; return stdio.Exit{} }
func (p *parrot) Terminate()            {}
func (p *parrot) Kill()                 {}

// BenchmarkCall is a call through the bridge to a server that costs next to nothing
// itself, by the size of its answer; that of edge/backend of the same name is over HTTP.
func BenchmarkCall(b *testing.B) {
	for _, size := range []int{100, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			bridge, err := stdio.New(stdio.Config{Name: "back", Starter: parrots{`{"a":"` + strings.Repeat("x", size) + `"}`}})
			if err != nil {
				b.Fatal(err)
			}
			back, err := backend.Open(backend.Config{Name: "back", Local: bridge, Silence: time.Minute, Cap: time.Minute, Info: []byte("{}"), Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			defer back.Close()
			m, err := mcp.Decode([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":{}}}`))
			if err != nil {
				b.Fatal(err)
			}
			x := &edge.Exchange{}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				x.Reset()
				x.Era, x.Request, x.Name, x.Client = mcp.Modern, m, "echo", edge.NoClient{}
				if r, err := back.Handle(b.Context(), x); err != nil || r.Kind != mcp.Result {
					b.Fatal(err)
				}
			}
		})
	}
}
