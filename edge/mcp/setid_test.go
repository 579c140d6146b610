package mcp

import (
	"fmt"
	"strings"
	"testing"
)

// A message with another id is what Decode makes of the spliced text, wherever the id
// stands and however long the two are.
func TestSetID(t *testing.T) {
	many := strings.Builder{}
	for i := range 20 { // more members than have a place of their own
		fmt.Fprintf(&many, `,"m%d":%d`, i, i)
	}
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":12345678901234,"result":{"_meta":{"x":1},"content":[]` + many.String() + `}}`,
		` {"result":{"content":[{"type":"text","text":"id"}]},"jsonrpc":"2.0","id": 12345678901234 } `,
		`{"id":12345678901234,"jsonrpc":"2.0","error":{"code":-32602,"message":"no","data":{"a":[1]}}}`,
		`{"jsonrpc":"2.0","method":"ping","id":12345678901234,"params":{"_meta":{"progressToken":7}}}`,
	} {
		for _, id := range []string{`1`, `"an id"`, `12345678901235`, `"` + strings.Repeat("x", 40) + `"`} {
			m, err := Decode([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			want, err := Decode(Splice(nil, m.Raw, m.WithID([]byte(id))))
			if err != nil {
				t.Fatal(err)
			}
			m.SetID([]byte(id))
			if string(m.Raw) != string(want.Raw) || string(m.IDText()) != id {
				t.Fatalf("%s\nwant %s", m.Raw, want.Raw)
			}
			for name, pair := range map[string][2]Span{"params": {m.Params, want.Params}, "result": {m.Result, want.Result}, "error": {m.Error, want.Error},
				"content": {m.Get("content"), want.Get("content")}, "m19": {m.Get("m19"), want.Get("m19")}, "code": {m.Get("code"), want.Get("code")},
				"x": {m.Meta("x"), want.Meta("x")}, "token": {m.Meta("progressToken"), want.Meta("progressToken")}} {
				if pair[0] != pair[1] {
					t.Errorf("%s of %s is at %v, want %v", name, m.Raw, pair[0], pair[1])
				}
			}
		}
	}
}
