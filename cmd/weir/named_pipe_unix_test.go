//go:build unix

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

// A file that is a named pipe to which nobody writes is empty, or refused: no command waits for
// its other end, where no signal would reach it.
func TestNamedPipes(t *testing.T) {
	home := t.TempDir()
	pipe := filepath.Join(home, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		".star": "return 1",
		".yaml": `{apiVersion: weir.dev/v1beta1, kind: EdgeFilter, metadata: {name: f}, spec: {type: starlark, source: {path: pipe}}}
---
{apiVersion: weir.dev/v1beta1, kind: VirtualMCPServer, metadata: {name: s}, spec: {groupRef: {name: g}, incomingAuth: {type: anonymous}, filterRefs: [{name: f}], config: {backends: [{name: b, url: "http://127.0.0.1:1/mcp", transport: streamable-http}]}}}
---
{apiVersion: weir.dev/v1beta1, kind: MCPGroup, metadata: {name: g}}
`,
	} {
		if err := os.WriteFile(pipe+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for line, want := range map[string]int{
		"run --dry-run --env-file PIPE -- true":                                          exitUsage,
		"run --dry-run --weir-ca-bundle PIPE -- true":                                    exitUsage,
		"run --dry-run --permission-profile PIPE -- true":                                exitUsage,
		"run --dry-run --authz-config PIPE -- true":                                      exitUsage,
		"run --dry-run --from-config PIPE":                                               exitUsage,
		"run --dry-run --remote-auth-bearer-token-file PIPE https://mcp.example.com/mcp": exitUsage,
		"run --print-profile --permission-profile PIPE":                                  exitUsage,
		"egress test --permission-profile PIPE a.example:443":                            exitUsage,
		"egress --profile PIPE --listen 127.0.0.1:0":                                     exitUsage,
		"egress --profile none --peers PIPE --listen 256.0.0.1:0":                        exitUsage,
		"registry convert PIPE":                                                          exitFault,
		"authz test -c PIPE PIPE":                                                        exitFault,
		"call http://127.0.0.1:1/mcp tool --args @PIPE":                                  exitUsage,
		"tools http://127.0.0.1:1/mcp --bearer-token-file PIPE":                          exitFault,
		"tools http://127.0.0.1:1/mcp --ca PIPE":                                         exitFault,
		"secret import PIPE":                                                             exitFault,
		"validate PIPE":                                                                  exitFault,
		"doctor -c PIPE":                                                                 11,
		"doctor --token-file PIPE":                                                       exitFault,
		"auth test x -c PIPE":                                                            exitFault,
		"tools http://127.0.0.1:1/mcp --ca-bundle PIPE":                                  exitFault,
		"call http://127.0.0.1:1/mcp x --args @PIPE":                                     exitUsage,
		"workflow run x --url http://127.0.0.1:1/mcp --args @PIPE":                       exitUsage,
		"validate PIPE.yaml":                                                             exitFault,
		"plugin inspect PIPE":                                                            exitFault,
		"plugin test PIPE.star --fixtures PIPE":                                          exitFault,
		"script run PIPE --url http://127.0.0.1:1/mcp":                                   exitUsage,
		"script run PIPE.star --url http://127.0.0.1:1/mcp --data @PIPE":                 exitUsage,
	} {
		t.Run(line, func(t *testing.T) {
			var said bytes.Buffer
			ended := make(chan int, 1)
			go func() {
				ended <- runWeir(strings.Fields(strings.ReplaceAll(line, "PIPE", pipe)), &said, &said, "HOME="+home)
			}()
			select {
			case code := <-ended:
				if code != want {
					t.Errorf("%d, want %d: %s", code, want, &said)
				}
			case <-time.After(edgetest.Patience):
				t.Error("it waits")
			}
		})
	}
}
