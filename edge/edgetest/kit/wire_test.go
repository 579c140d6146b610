package kit

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadAnswer(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for _, c := range []struct {
		name, text string
		status     int
		body       string
		wrong      string // part of the error; empty for none
	}{
		{"length", ok + "Content-Length: 5\r\n\r\nhello", 200, "hello", ""},
		{"any case, bare line feeds", "HTTP/1.1 404 Not Found\ncontent-LENGTH:2\n\nno", 404, "no", ""},
		{"no reason", "HTTP/1.1 202\r\nContent-Length: 0\r\n\r\n", 202, "", ""},
		{"no content", "HTTP/1.1 204 No Content\r\n\r\n", 204, "", ""},
		{"chunks", ok + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n", 200, "hello!", ""},
		{"trailer", ok + "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: y\r\n\r\n", 200, "a", ""},

		{"nothing", "", 0, "", "EOF"},
		{"half a line", "HTTP/1.1 20", 0, "", "unexpected EOF"},
		{"not HTTP", "SSH-2.0-x\r\n\r\n", 0, "", "status line"},
		{"bad status", "HTTP/1.1 2x0 OK\r\n\r\n", 0, "", "status line"},
		{"long status", "HTTP/1.1 2000\r\n\r\n", 0, "", "status line"},
		{"no colon", ok + "nonsense\r\n\r\n", 0, "", "no colon"},
		{"negative length", ok + "Content-Length: -1\r\n\r\n", 0, "", "Content-Length"},
		{"too long", ok + "Content-Length: 99999999\r\n\r\n", 0, "", "Content-Length"},
		{"short body", ok + "Content-Length: 5\r\n\r\nhell", 0, "", "unexpected EOF"},
		{"no length", ok + "\r\nhello", 0, "", "neither Content-Length nor"},
		{"until the end", ok + "Connection: close\r\n\r\nhello", 0, "", "ends with the connection"},
		{"both", ok + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, "", "both"},
		{"bad chunk", ok + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 0, "", "chunk: size"},
		{"huge chunk", ok + "Transfer-Encoding: chunked\r\n\r\n7fffffff\r\n", 0, "", "chunk: size"},
		{"chunk without end", ok + "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", 0, "", "chunk"},
		{"cut short", ok + "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n", 0, "", "EOF"},
		{"other coding", ok + "Transfer-Encoding: gzip\r\n\r\n", 0, "", "Transfer-Encoding"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var a Answer
			err := a.Read(bufio.NewReader(iotest.OneByteReader(strings.NewReader(c.text))))
			switch {
			case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
				t.Errorf("error %v, want one about %q", err, c.wrong)
			case c.wrong == "" && (err != nil || a.Status != c.status || string(a.Body) != c.body):
				t.Errorf("%d %q, %v; want %d %q", a.Status, a.Body, err, c.status, c.body)
			}
		})
	}
}

// One answer is read after another into the same memory, and nothing of the
// first is left in the second.
func TestReadAnswersInTurn(t *testing.T) {
	r := bufio.NewReader(strings.NewReader(
		"HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=utf-8\r\nMCP-Session-ID: abc\r\nContent-Length: 5\r\nConnection: close\r\n\r\nfirst" +
			"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ntwo\r\n0\r\n\r\n" +
			"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"))
	var a Answer
	if err := a.Read(r); err != nil || a.Kind != JSONContent || string(a.Session) != "abc" || string(a.Body) != "first" || !a.Closes {
		t.Errorf("first: %+v, %v", a, err)
	}
	if err := a.Read(r); err != nil || a.Kind != EventContent || len(a.Session) != 0 || string(a.Body) != "two" || a.Closes {
		t.Errorf("second: %+v, %v", a, err)
	}
	if err := a.Read(r); err != nil || a.Kind != OtherContent || a.Status != 202 || len(a.Body) != 0 {
		t.Errorf("third: %+v, %v", a, err)
	}
	if err := a.Read(r); !errors.Is(err, io.EOF) {
		t.Errorf("after the last: %v", err)
	}
}

func TestMessageOfStream(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"one event", "event: message\ndata: {\"id\":1}\n\n", `{"id":1}`},
		{"no space, carriage returns", "data:{}\r\n\r\n", `{}`},
		{"after a comment and a priming event", ": hi\n\nid: 1\ndata:\n\nretry: 5\n\ndata: {\"id\":2}\n\n", `{"id":2}`},
		{"the last of two", "data: {\"method\":\"x\"}\n\ndata: {\"id\":3}\n\n", `{"id":3}`},
		{"several lines", "data: {\ndata: \"id\":4\ndata: }\n\n", "{\n\"id\":4\n}"},
		{"a comment after it", "data: {}\n\n: bye\n\n", `{}`},
		{"not ended", "data: {\"id\":5}\n", ""},
		{"nothing", ": hi\n\n", ""},
		{"empty", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := Answer{Status: 200, header: header{Kind: EventContent, Body: []byte(c.text)}}
			got, err := a.Message()
			if string(got) != c.want || (err == nil) != (c.want != "") {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
	if _, err := (&Answer{Status: 200, header: header{Body: []byte("{}")}}).Message(); err == nil {
		t.Error("an answer of no known content has a message")
	}
}

func TestEvents(t *testing.T) {
	long := strings.Repeat("y", 10_000)
	body := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" +
		chunk(": a comment\n\nid: 1\nretry: 5\ndata: \n\n") + chunk("data: one\n") + chunk("\ndata: "+long+"\n\n")
	read := func(text string) (data []string, err error) {
		r := bufio.NewReader(strings.NewReader(text))
		var a Answer
		if err := a.ReadHead(r); err != nil || !a.Streams() {
			t.Fatalf("%+v, %v", a, err)
		}
		in := NewEvents(r, 512)
		for {
			one, err := in.Next()
			if err != nil {
				return data, err
			}
			data = append(data, string(one))
		}
	}
	data, err := read(body + "0\r\n\r\n")
	if err != io.EOF || len(data) != 2 || data[0] != "one" || data[1] != long {
		t.Errorf("in order: %d events, %v", len(data), err)
	}
	for name, end := range map[string]string{"at a chunk's end": "", "in a chunk": "40\r\nda", "before the last line": "0\r\n"} {
		if data, err := read(body + end); err == nil || err == io.EOF || len(data) != 2 {
			t.Errorf("broken %s: %d events, %v", name, len(data), err)
		}
	}
}

func TestVerify(t *testing.T) {
	right := Answer{Status: 200, header: header{Kind: JSONContent, Body: []byte(`{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"seven"}]}}`)}}
	if err := right.Verify("7", "seven"); err != nil {
		t.Error(err)
	}
	for name, a := range map[string]struct {
		answer   Answer
		id, text string
		want     error
	}{
		"another id":   {right, "8", "seven", ErrWrong},
		"another text": {right, "7", "eight", ErrWrong},
		"busy":         {Answer{Status: 503}, "7", "seven", ErrBusy},
		"no session":   {Answer{Status: 404, header: header{Body: []byte(`{"error":{"code":-32001}}`)}}, "7", "seven", ErrNoSession},
	} {
		if err := a.answer.Verify(a.id, a.text); !errors.Is(err, a.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
