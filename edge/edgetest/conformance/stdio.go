package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/weir-edge/weir/edge/edgetest/peers"
)

// legacyCommand is the argument with which this program runs a server that speaks both eras
// on its standard streams, and has it be one of the legacy era alone.
const legacyCommand = "as-legacy"

// beLegacy runs a server, and answers itself what only a modern one knows.
func beLegacy(ctx context.Context, program string, stdin io.Reader, stdout, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, program)
	cmd.Stderr = stderr
	to, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var mu sync.Mutex // a line is written whole
	say := func(line []byte) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = stdout.Write(append(line, '\n'))
	}
	var said sync.WaitGroup
	said.Go(func() { eachLine(out, say) })
	eachLine(stdin, func(line []byte) {
		var m struct {
			ID     json.RawMessage
			Method string
		}
		if json.Unmarshal(line, &m) == nil && m.Method == "server/discover" {
			say(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, m.ID))
			return
		}
		_, _ = to.Write(append(line, '\n')) // one that has ended says so by its stdout
	})
	_ = to.Close()
	said.Wait()
	return cmd.Wait()
}

func eachLine(r io.Reader, f func(line []byte)) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 32<<20)
	for lines.Scan() {
		f(append([]byte(nil), lines.Bytes()...))
	}
}

// overStdio starts an edge that starts the server of an era itself.
func (h *harness) overStdio(ctx context.Context, era peers.Era, weir string) (*peers.Process, string, error) {
	program, err := h.shop.Program(ctx, peers.GoServerPackage)
	if err != nil {
		return nil, "", err
	}
	image, args := program, ""
	if era == peers.Legacy {
		self, err := os.Executable()
		if err != nil {
			return nil, "", err
		}
		image, args = self, fmt.Sprintf("  args: [%s, %q]\n  volumes: [{name: server, hostPath: %[2]q, mountPath: %[2]q, readOnly: true}]\n", legacyCommand, program)
	}
	return h.startLocal(ctx, weir, "exec", image, args)
}

// startLocal starts an edge that starts a server itself, the program or the module in file.
// scheme is exec or wasm, more is of the server's spec.
func (h *harness) startLocal(ctx context.Context, weir, scheme, file, more string) (*peers.Process, string, error) {
	state, err := os.MkdirTemp(h.dir, "state-")
	if err != nil {
		return nil, "", err
	}
	yaml := fmt.Sprintf("apiVersion: weir.dev/v1beta1\nkind: MCPServer\nmetadata: {name: peer}\nspec:\n  image: %q\n%s", scheme+"://"+filepath.ToSlash(file), more)
	allowed := map[string]string{"exec": "local", "wasm": "wasm"}[scheme]
	return peers.StartEdgeWith(ctx, weir, h.dir, yaml, "--allow-workloads", allowed, "--state-dir", state)
}
