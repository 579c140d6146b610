package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/sandbox"
)

// plainServer is an MCP server on standard streams: of its tool env the answer is a variable
// of its environment. It writes a banner before anything else.
func plainServer() {
	fmt.Println("plain server, version 1")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Version   string `json:"protocolVersion"`
				Arguments struct{ Name string }
			} `json:"params"`
		}
		if json.Unmarshal(in.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		answer := map[string]any{"jsonrpc": "2.0", "id": m.ID}
		switch m.Method {
		case "initialize":
			answer["result"] = map[string]any{"protocolVersion": m.Params.Version, "capabilities": map[string]any{"tools": map[string]any{}}, "serverInfo": map[string]any{"name": "plain", "version": "1"}}
		case "tools/list":
			answer["result"] = map[string]any{"tools": []any{map[string]any{"name": "env", "description": "A variable", "inputSchema": map[string]any{"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}}}}}}
		case "tools/call":
			answer["result"] = map[string]any{"content": []any{map[string]any{"type": "text", "text": "<" + os.Getenv(m.Params.Arguments.Name) + ">"}}}
		default:
			answer["error"] = map[string]any{"code": -32601, "message": "no such method"}
		}
		text, _ := json.Marshal(answer)
		fmt.Println(string(text))
	}
}

// The scripts are what somebody does with workloads of theirs, through a manager of their own
// in a process of its own.
func TestWorkloadsOfAUser(t *testing.T) {
	var missing *sandbox.HelperError
	_, err := sandbox.Helper(t.TempDir())
	edgetest.Need(t, !errors.As(err, &missing), fmt.Sprint(err))
	weir, err := exec.LookPath("weir") // of these tests
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/user",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "fill": fill},
		Setup: func(e *testscript.Env) error {
			home, err := os.MkdirTemp("", "weir-user-") // the path of a socket may not be long
			if err != nil {
				return err
			}
			e.Setenv("WEIR_HOME", home)
			e.Setenv("HOME", home)
			e.Defer(func() {
				down := exec.Command(weir, "down")
				down.Env = e.Vars
				said, err := down.CombinedOutput()
				if err != nil {
					t.Errorf("weir down: %v: %s", err, said)
				}
				if err := os.RemoveAll(home); err != nil {
					t.Error(err)
				}
			})
			return nil
		},
	})
}
