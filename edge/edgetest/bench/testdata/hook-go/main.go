// Command hook is a guest that does in a hook what the server does for ten calls: the same code
// reads the same lines, and writes the answers.
package main

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/edge/edgetest/bench/testdata/echo"
	weir "github.com/weir-edge/weir/sdk"
)

// line is a call as the benchmark makes it.
const line = `{"jsonrpc":"2.0","id":"c1-100","method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}` + "\n"

func main() {}

func init() {
	server := echo.Server()
	lines := strings.Repeat(line, 10)
	in, out := new(strings.Reader), new(bytes.Buffer)
	weir.OnCall(func(c *weir.Call) {
		in.Reset(lines)
		out.Reset()
		if err := server.Serve(in, out); err != nil {
			panic(err)
		}
		c.Respond(weir.TextResult(strconv.Itoa(out.Len())))
	})
}
