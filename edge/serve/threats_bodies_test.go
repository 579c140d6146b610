package serve_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/serve"
)

// call is a call of the tool echo with arguments as they are.
func call(arguments string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":` + arguments + `}}`
}

// malformed sends a body that must be refused with 400 and a code, in a legacy
// session and as a modern request, before the backend sees anything of it.
func (w *wire) malformed(t *testing.T, what, body string, codes ...int) {
	t.Helper()
	for _, lines := range []string{"", "modern"} {
		raw := w.framed("", body)
		if lines != "" {
			raw = strings.Replace(raw, "Mcp-Session-Id: "+w.session.ID, "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: echo", 1)
		}
		got := w.send(t, raw)
		if len(got) != 1 || got[0].status != 400 {
			t.Errorf("%s: %.300s", what, fmt.Sprint(got))
			continue
		}
		m := edgetest.Parse(t, []byte(got[0].body))
		ok := false
		for _, code := range codes {
			ok = ok || m.Error != nil && m.Error.Code == code
		}
		if !ok {
			t.Errorf("%s: %.300s, want a code of %v", what, got[0].body, codes)
		}
	}
	if n := len(w.tap.requests(t)); n != 0 {
		t.Errorf("%s: the backend got %d requests", what, n)
	}
	w.tap.forget()
}

// The files of JSONTestSuite as the bodies of requests: none is a message, and
// the code says whether it is JSON at all.
func TestB06(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../mcp/testdata/json-parsing/*.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 318 {
		t.Fatalf("%d files", len(files))
	}
	w := newWire(t)
	counts := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name, code := filepath.Base(file), -32700
		if mcp.Valid(text) == nil {
			code = -32600
		}
		if name[0] == 'n' && code != -32700 {
			t.Errorf("%s is taken for JSON", name)
		}
		counts[fmt.Sprintf("%c_ %d", name[0], code)]++
		w.malformed(t, name, string(text), code)
		// Inside a call the same text is refused, or reaches the backend as it is.
		if code == -32700 {
			w.malformed(t, name+" in a call", call(string(text)), -32700, -32600)
			continue
		}
		sent := w.passed(t, w.framed("", call(string(text))))
		if got := edgetest.Member(sent.body, "params", "arguments"); got != strings.Trim(string(text), " \t\r\n") {
			t.Errorf("%s: the backend got %q", name, got)
		}
	}
	t.Logf("%d files, refused as whole bodies by kind and code: %v", len(files), counts)
}

func TestBodies(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	t.Run("B01", func(t *testing.T) {
		big := call(`{"a":"` + strings.Repeat("a", 4<<20) + `"}`)
		w.refused(t, w.framed("", big), 413)
		w.refused(t, w.post("Transfer-Encoding: chunked\r\n", chunked(big, "")), 413)
		w.refused(t, w.post("Transfer-Encoding: chunked\r\n", "400001\r\n{"), 413)
	})
	t.Run("B02", func(t *testing.T) {
		var small bytes.Buffer
		z := gzip.NewWriter(&small)
		if _, err := z.Write([]byte(call(strings.Repeat(" ", 1<<20) + "{}"))); err != nil || z.Close() != nil {
			t.Fatal(err)
		}
		for _, one := range []string{"gzip", "br", "zstd", "deflate", "gzip, identity", "GZIP"} {
			got := w.send(t, w.framed("Content-Encoding: "+one+"\r\n", small.String()))
			if len(got) != 1 || got[0].status != 415 || len(w.tap.requests(t)) != 0 {
				t.Errorf("%s: %+v", one, got)
			}
		}
	})
	t.Run("B05", func(t *testing.T) {
		for _, depth := range []int{1_001, 9_999, 10_001, 2_000_000} {
			w.malformed(t, fmt.Sprint("nesting ", depth), call(strings.Repeat("[", depth)+strings.Repeat("]", depth)), -32700)
			w.malformed(t, fmt.Sprint("open nesting ", depth), call(strings.Repeat(`{"a":`, depth/3)), -32700)
		}
	})
	t.Run("B07", func(t *testing.T) {
		for _, body := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"echo","arguments":{}}}`,
			`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call","params":{"name":"echo","arguments":{}}}`,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","param` + "ſ" + `":{"name":"evil"},"params":{"name":"echo","arguments":{}}}`,
			`{"jsonrpc":"2.0","id":1,"method":"ping","me\u0074hod":"tools/call","params":{"name":"echo"}}`,
			`{"jsonrpc":"2.0","id":1,"me\u0074hod":"tools/call","params":{"name":"echo"}}`,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","name":"evil"}}`,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","Name":"evil"}}`,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","n\u0061me":"evil"}}`,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","ARGUMENTS":{}}}`,
			call(`{"a":1,"a":2}`), call(`{"a":1,"\u0061":2}`), call(`{"x":{"a":1,"b":2,"a":3}}`),
		} {
			w.malformed(t, body, body, -32700, -32600)
		}
	})
	t.Run("B08", func(t *testing.T) {
		for _, body := range []string{"\xef\xbb\xbf" + echo, echo + echo, echo + "x", echo + ",", call("NaN"), call("Infinity"), call("-"), call("01"), call("1."), call("\"\xff\""), call(`"\ud800"`), ""} {
			w.malformed(t, body, body, -32700)
		}
		for _, number := range []string{"1e400", "-0", "9007199254740993", "1.0", "123456789012345678901234567890", "0.1e-999"} {
			sent := w.passed(t, w.framed("", call(`{"n":`+number+`}`)))
			if got := edgetest.Member(sent.body, "params", "arguments", "n"); got != number {
				t.Errorf("%s became %s", number, got)
			}
		}
		body := strings.Replace(echo, `"id":1`, `"id":9007199254740993`, 1)
		if got := w.send(t, w.framed("", body)); len(got) != 1 || edgetest.Member(got[0].body, "id") != "9007199254740993" {
			t.Errorf("%+v", got)
		}
		w.tap.forget()
	})
	t.Run("B09", func(t *testing.T) {
		// Names that a hash of few bits would put in one place, as many as fit.
		var b strings.Builder
		b.WriteString(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"x":{`)
		n := 0
		for ; b.Len() < 4<<20-64; n++ {
			if n > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `"%07x":0`, n<<4)
		}
		b.WriteString(`}}}`)
		begun := time.Now()
		got := w.send(t, w.framed("", b.String()))
		took := time.Since(begun)
		if len(got) != 1 || !strings.Contains(got[0].body, "-32601") {
			t.Errorf("%.300s", fmt.Sprint(got))
		}
		t.Logf("%d names in %s", n, took)
		if took > 20*time.Second { // comparing each with each takes minutes
			t.Errorf("%d names took %s", n, took)
		}
	})
}

// What a backend compresses, though it was not asked to, and what it sends
// without end.
func TestBodiesOfTheBackend(t *testing.T) {
	t.Parallel()
	var small bytes.Buffer
	z := gzip.NewWriter(&small)
	if _, err := z.Write(bytes.Repeat([]byte(" "), 4<<20)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	const json = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	for id, answer := range map[string]string{
		"B03":                   json + "Content-Encoding: gzip\r\n" + length(small.String()) + "\r\n" + small.String(),
		"B11/1 GiB":             json + "Content-Length: 1073741824\r\n\r\n{",
		"B11/chunks":            json + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("8000\r\n"+strings.Repeat(" ", 0x8000)+"\r\n", 100),
		"B11/up to the end":     json + "\r\n" + strings.Repeat(" ", 4<<20),
		"B11/one event":         "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: " + strings.Repeat(" ", 4<<20),
		"B11/one endless chunk": json + "Transfer-Encoding: chunked\r\n\r\n7fffffff\r\n" + strings.Repeat(" ", 4<<20),
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			back := newCrude(t, func(int, string, string) (string, bool) { return answer, false })
			e := edgetest.Start(t, edgetest.ManifestFor(back.url(), compile.StreamableHTTP), edgetest.Settings(func(s *serve.Settings) { s.MaxMessage = 64 << 10 }))
			fails(t, e.NewClient().Modern("1", "tools/call", edgetest.CallParams("echo", "{}")), 502, 502, "1")
		})
	}
}

// What a client sends costs the edge memory in proportion (B12, B04). The
// figure is all that is allocated, by this client too, per byte sent; the peak
// is below it.
func TestG24(t *testing.T) {
	// Not parallel: nothing else may allocate.
	w := newWire(t)
	unknown := func(x string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"x":` + x + `}}`
	}
	many := func(one string) string { return "[" + strings.Repeat(one+",", (3<<20)/(len(one)+1)) + one + "]" }
	for name, c := range map[string]struct {
		body string
		most float64
	}{
		"empty objects": {unknown(many("{}")), 25},
		"empty arrays":  {unknown(many("[]")), 25},
		"zeros":         {unknown(many("0")), 25},
		"strings":       {unknown(many(`""`)), 25},
		"members":       {unknown(many(`{"a":{"b":0}}`)), 25},
		"escapes":       {unknown(many(`"\u0000\n"`)), 25},
		"no JSON":       {strings.Repeat("[", 3<<20), 25},
		"a batch":       {many("{}"), 25},
		"one string":    {unknown(`"` + strings.Repeat("a", 3<<20) + `"`), 25},
	} {
		raw := w.framed("", c.body)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		got := w.send(t, raw)
		runtime.ReadMemStats(&after)
		if sent := w.tap.requests(t); len(got) != 1 || len(sent) != 0 {
			t.Errorf("%s: %d answers and %d requests of the backend: %.300s", name, len(got), len(sent), fmt.Sprint(got, sent))
		}
		each := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(raw))
		t.Logf("%-14s %.1f bytes for each of %d", name, each, len(raw))
		if each > c.most {
			t.Errorf("%s: %.1f bytes were allocated for each one sent", name, each)
		}
	}
	// Small requests have a price of their own: the connection's.
	const n = 300
	raw := w.framed("", "{")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		w.send(t, raw)
	}
	runtime.ReadMemStats(&after)
	each := (after.TotalAlloc - before.TotalAlloc) / n
	t.Logf("%d bytes for a connection with one small request of %d", each, len(raw))
	if each > 64<<10 {
		t.Errorf("%d bytes for a small request", each)
	}
}
