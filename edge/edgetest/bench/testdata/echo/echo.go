// Package echo is the server that is measured in WebAssembly, by the SDK: it answers as the
// backend over HTTP does.
package echo

import (
	"encoding/json"
	"strings"

	"github.com/weir-edge/weir/sdk/server"
)

var filler = " " + strings.Repeat("x", 100)

// Server is one that says again what it is told.
func Server() *server.Server {
	return &server.Server{Name: "echo", Version: "1.0.0", Tools: []server.Tool{{
		Name: "echo", Description: "Says it again.", Schema: `{"type":"object"}`,
		Call: func(arguments json.RawMessage) (string, error) {
			var in struct{ Text string }
			err := json.Unmarshal(arguments, &in)
			return in.Text + filler, err
		},
	}}}
}
