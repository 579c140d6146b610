// Command echo is the server in WebAssembly that is measured, by the SDK: it answers as the
// backend over HTTP does.
package main

import (
	"encoding/json"
	"strings"

	"github.com/weir-edge/weir/sdk/server"
)

func main() {
	filler := " " + strings.Repeat("x", 100)
	s := server.Server{Name: "echo", Version: "1.0.0", Tools: []server.Tool{{
		Name: "echo", Description: "Says it again.", Schema: `{"type":"object"}`,
		Call: func(arguments json.RawMessage) (string, error) {
			var in struct{ Text string }
			err := json.Unmarshal(arguments, &in)
			return in.Text + filler, err
		},
	}}}
	s.Main()
}
