// Command echo is an MCP server of the legacy era on its standard streams, for tests of what
// keeps such servers.
//
//	echo [MARK]       serves
//	echo fail CODE    complains, and ends with a code
//	echo silent       reads, and says nothing
//	echo once CODE    serves until the tool "end" is called, which ends it with a code
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
)

func main() {
	how, code := "", 0
	if len(os.Args) > 1 {
		how = os.Args[1]
	}
	if len(os.Args) > 2 {
		code, _ = strconv.Atoi(os.Args[2])
	}
	if how == "fail" {
		fmt.Fprintln(os.Stderr, "echo: there is no such thing as luck")
		os.Exit(code)
	}
	fmt.Fprintln(os.Stderr, "echo is up")
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 32<<20)
	for lines.Scan() {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Name      string
				Arguments map[string]any
			}
		}
		if json.Unmarshal(lines.Bytes(), &m) != nil || m.ID == nil || how == "silent" {
			continue
		}
		var result any
		switch m.Method {
		case "initialize":
			result = map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{"tools": map[string]any{}}, "serverInfo": map[string]any{"name": "echo", "version": "1"}}
		case "ping":
			result = map[string]any{}
		case "tools/list":
			result = map[string]any{"tools": []any{map[string]any{"name": "echo", "inputSchema": map[string]any{"type": "object"}}}}
		case "tools/call":
			if m.Params.Name == "end" {
				os.Exit(code)
			}
			text := fmt.Sprint(m.Params.Arguments["text"], " from ", os.Getpid(), " with ", os.Getenv("MODE"))
			result = map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}}
		default:
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`+"\n", m.ID)
			continue
		}
		text, err := json.Marshal(result)
		if err != nil {
			panic(err)
		}
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, text)
	}
}
