package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func calculator() *Server {
	return &Server{Name: "calc", Version: "1", Instructions: "adds", Tools: []Tool{{
		Name: "say", Schema: `{"type":"object","properties":{"text":{"type":"string"}}}`,
		Call: func(arguments json.RawMessage) (string, error) {
			var in struct{ Text string }
			if err := json.Unmarshal(arguments, &in); err != nil {
				return "", err
			}
			if in.Text == "" {
				return "", errors.New("text is missing")
			}
			return in.Text, nil
		},
	}}}
}

// Each line is answered with the id that it has; what is no message and what is unknown is
// answered with the error of JSON-RPC.
func TestServe(t *testing.T) {
	for in, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`:                       `{"jsonrpc":"2.0","id":1,"result":{"capabilities":{"tools":{}},"instructions":"adds","protocolVersion":"2025-06-18","serverInfo":{"name":"calc","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":"a","method":"initialize","params":{"protocolVersion":"1999-01-01"}}`:                     `{"jsonrpc":"2.0","id":"a","result":{"capabilities":{"tools":{}},"instructions":"adds","protocolVersion":"2025-11-25","serverInfo":{"name":"calc","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"ping"}`:                                                                       `{"jsonrpc":"2.0","id":2,"result":{}}`,
		`{"jsonrpc":"2.0","id":3,"method":"tools/list"}`:                                                                 `{"jsonrpc":"2.0","id":3,"result":{"tools":[{"name":"say","inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}}]}}`,
		`{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/call","params":{"name":"say","arguments":{"text":"x"}}}`: `{"jsonrpc":"2.0","id":9007199254740993,"result":{"content":[{"type":"text","text":"x"}]}}`,
		`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"say"}}`:                                         `{"jsonrpc":"2.0","id":5,"result":{"content":[{"type":"text","text":"text is missing"}],"isError":true}}`,
		`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"other"}}`:                                       `{"jsonrpc":"2.0","id":6,"error":{"code":-32602,"message":"there is no tool other"}}`,
		`{"jsonrpc":"2.0","id":7,"method":"server/discover"}`:                                                            `{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"there is no method server/discover"}}`,
		`{"jsonrpc":"2.0","id":8,"method":"tools/call"}`:                                                                 `{"jsonrpc":"2.0","id":8,"error":{"code":-32602,"message":"tools/call without parameters"}}`,
		`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":null}`:                                                   `{"jsonrpc":"2.0","id":9,"error":{"code":-32602,"message":"tools/call without parameters"}}`,
		`{"params":{"name":1,"arguments":{}},"jsonrpc":"2.0","id":10,"method":"tools/call"}`:                             `{"jsonrpc":"2.0","id":10,"error":{"code":-32602,"message":"tools/call without parameters"}}`,
		`{"jsonrpc":"2.0","id":11,"method":"initialize","params":5}`:                                                     `{"jsonrpc":"2.0","id":11,"error":{"code":-32602,"message":"initialize without parameters"}}`,
		`{"jsonrpc":"2.0","id":12,"method":"ping","params":[]}`:                                                          `{"jsonrpc":"2.0","id":12,"result":{}}`,
		`{"jsonrpc":"2.0","id":13,"method":5}`:                                                                           `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"that is no JSON of a message"}}`,
		`[]`:                                                                                                             `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"that is no JSON of a message"}}`,
		`{"jsonrpc":"2.0","id":"<é>","method":"tools/call","params":{"name":"say","arguments":{"text":"<\n\u2028é"}}}`:   `{"jsonrpc":"2.0","id":"<é>","result":{"content":[{"type":"text","text":"\u003c\n\u2028é"}]}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`:                                                         ``,
		`nonsense`: `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"that is no JSON of a message"}}`,
	} {
		var out bytes.Buffer
		if err := calculator().Serve(strings.NewReader(in+"\n\n"), &out); err != nil {
			t.Errorf("%s: %v", in, err)
		}
		if got := strings.TrimSuffix(out.String(), "\n"); got != want {
			t.Errorf("%s:\n%s\nand should\n%s", in, got, want)
		}
	}
}

// A tool that is described wrongly is told at once.
func TestWrongTools(t *testing.T) {
	call := func(json.RawMessage) (string, error) { return "", nil }
	for _, tools := range [][]Tool{{{Call: call}}, {{Name: "a"}}, {{Name: "a", Call: call}, {Name: "a", Call: call}}, {{Name: "a", Call: call, Schema: "{"}}} {
		if err := (&Server{Tools: tools}).Serve(strings.NewReader(""), nil); err == nil {
			t.Errorf("%+v is taken", tools)
		}
	}
}
