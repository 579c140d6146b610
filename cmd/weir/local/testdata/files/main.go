// Command files is an MCP server in WebAssembly for tests: it reads the files that it is
// asked for, writes them, and loops without end.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/weir-edge/weir/sdk/server"
)

func main() {
	of := func(f func(text string) (string, error)) func(json.RawMessage) (string, error) {
		return func(arguments json.RawMessage) (string, error) {
			var in struct{ Text string }
			if err := json.Unmarshal(arguments, &in); err != nil {
				return "", err
			}
			return f(in.Text)
		}
	}
	s := server.Server{Name: "files", Version: "1", Tools: []server.Tool{
		{Name: "read", Call: of(func(path string) (string, error) { b, err := os.ReadFile(path); return string(b), err })},
		{Name: "write", Call: of(func(path string) (string, error) {
			return "written", os.WriteFile(path, []byte("of the server"), 0o600)
		})},
		{Name: "list", Call: of(func(path string) (string, error) {
			all, err := os.ReadDir(path)
			var names []string
			for _, e := range all {
				names = append(names, e.Name())
			}
			return strings.Join(names, " "), err
		})},
		{Name: "env", Call: of(func(name string) (string, error) { return fmt.Sprint(os.Environ(), os.Args[1:]), nil })},
		{Name: "loop", Call: of(func(string) (string, error) {
			for i := 0; ; i++ {
			}
		})},
		{Name: "complain", Call: of(func(text string) (string, error) { fmt.Fprintln(os.Stderr, text); return "", nil })},
	}}
	s.Main()
}
