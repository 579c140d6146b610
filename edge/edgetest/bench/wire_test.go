package main

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
			var a answer
			err := a.read(bufio.NewReader(iotest.OneByteReader(strings.NewReader(c.text))))
			switch {
			case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
				t.Errorf("error %v, want one about %q", err, c.wrong)
			case c.wrong == "" && (err != nil || a.status != c.status || string(a.body) != c.body):
				t.Errorf("%d %q, %v; want %d %q", a.status, a.body, err, c.status, c.body)
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
	var a answer
	if err := a.read(r); err != nil || a.kind != jsonContent || string(a.session) != "abc" || string(a.body) != "first" || !a.closes {
		t.Errorf("first: %+v, %v", a, err)
	}
	if err := a.read(r); err != nil || a.kind != eventContent || len(a.session) != 0 || string(a.body) != "two" || a.closes {
		t.Errorf("second: %+v, %v", a, err)
	}
	if err := a.read(r); err != nil || a.kind != otherContent || a.status != 202 || len(a.body) != 0 {
		t.Errorf("third: %+v, %v", a, err)
	}
	if err := a.read(r); !errors.Is(err, io.EOF) {
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
			a := answer{status: 200, kind: eventContent, body: []byte(c.text)}
			got, err := a.message()
			if string(got) != c.want || (err == nil) != (c.want != "") {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
	if _, err := (&answer{status: 200, body: []byte("{}")}).message(); err == nil {
		t.Error("an answer of no known content has a message")
	}
}

func TestCheckCall(t *testing.T) {
	c := newCall([]byte(`{"id":` + mark + `,"text":"call ` + mark + `"}`))
	c.number(1234567890)
	if got, want := string(c.text), `{"id":1234567890,"text":"call 1234567890"}`; got != want {
		t.Fatalf("the call is %s, want %s", got, want)
	}
	const good = `{"jsonrpc":"2.0","id":1234567890,"result":{"content":[{"type":"text","text":"call 1234567890 ..."}],"isError":false}}`
	for _, x := range []struct {
		name   string
		status int
		text   string
		wrong  string
	}{
		{"good", 200, good, ""},
		{"id last", 200, `{"result":{"content":[{"text":"call 1234567890 ."}],"isError":false},"id":1234567890}`, ""},
		{"spelt otherwise", 200, `{ "id" : 1234567890, "result": {"content": [{"text": "call 12345\u003678\u00390 ."}]}}`, ""},
		{"status", 502, good, "status 502"},
		{"other id", 200, strings.Replace(good, `"id":1234567890`, `"id":1234567891`, 1), "id 1234567891"},
		{"longer id", 200, strings.Replace(good, `"id":1234567890`, `"id":12345678901`, 1), "id 12345678901"},
		{"id as text", 200, strings.Replace(good, `"id":1234567890`, `"id":"x"`, 1), "answer"},
		{"other echo", 200, strings.Replace(good, "call 1234567890", "call 1234567891", 1), "no echo"},
		{"no content", 200, `{"id":1234567890,"result":{}}`, "no echo"},
		{"failed tool", 200, strings.Replace(good, "false", "true", 1), "no echo"},
		{"error", 200, `{"id":1234567890,"error":{"code":-32603,"message":"no"}}`, "error"},
		{"not JSON", 200, "<html>", "answer"},
	} {
		t.Run(x.name, func(t *testing.T) {
			err := c.check(&answer{status: x.status, kind: jsonContent, body: []byte(x.text)})
			if x.wrong == "" && err != nil || x.wrong != "" && (err == nil || !strings.Contains(err.Error(), x.wrong)) {
				t.Errorf("%v, want an error about %q", err, x.wrong)
			}
		})
	}
}
