package main

import (
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

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
			a := kit.Answer{Status: x.status}
			a.Kind, a.Body = kit.JSONContent, []byte(x.text)
			err := c.check(&a)
			if x.wrong == "" && err != nil || x.wrong != "" && (err == nil || !strings.Contains(err.Error(), x.wrong)) {
				t.Errorf("%v, want an error about %q", err, x.wrong)
			}
		})
	}
}
