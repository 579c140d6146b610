package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/sandbox"
	"github.com/weir-edge/weir/edge/stdio"
)

// needHelper ends a test where the program has no sandbox helper.
func needHelper(t *testing.T) {
	t.Helper()
	var missing *sandbox.HelperError
	_, err := sandbox.Helper(t.TempDir())
	edgetest.Need(t, !errors.As(err, &missing), fmt.Sprint(err))
}

// An installer writes to HOME alone, also where the server may write elsewhere.
func TestInstallerWritesHome(t *testing.T) {
	needHelper(t)
	dir := t.TempDir()
	l := launcherOf(t, sandbox.Config{Command: []string{"uvx", "tiny"}, Mounts: []sandbox.Mount{{Host: dir, Writable: true}}}, `touch `+dir+`/written && exit 0; mkdir -p "$UV_TOOL_BIN_DIR" && printf '#!/bin/sh\nexit 7\n' > "$UV_TOOL_BIN_DIR/tiny" && chmod +x "$UV_TOOL_BIN_DIR/tiny"`)
	p, err := l.Start(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if exit := p.Wait(); exit.Code != 7 {
		t.Errorf("the program ends with %s", exit)
	}
	if _, err := os.Stat(filepath.Join(dir, "written")); err == nil && l.config.Grade != sandbox.None {
		t.Error("the installer has written to a mount")
	}
}

// A runner that this process does not find is said to be missing in its PATH, which need not be
// that of who asks.
func TestRunnerIsNotInPath(t *testing.T) {
	needHelper(t)
	l := launcherOf(t, sandbox.Config{Command: []string{"uvx", "tiny"}}, "")
	t.Setenv("PATH", t.TempDir())
	if _, err := l.Start(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "which is that of whoever started this process: install it, or start the process again from a shell that finds it (a manager by `weir up --replace`)") {
		t.Error(err)
	}
}

// launcherOf is a launcher whose uv is a script.
func launcherOf(t *testing.T, c sandbox.Config, script string) *launcher {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "uv"), []byte("#!/bin/sh\necho \"uv $*\" >&2\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	m := sandbox.NewMachine(t.TempDir())
	t.Cleanup(m.Close)
	c.Name, c.Network, c.Home = "test", sandbox.Host, t.TempDir()
	c.Environment = func(context.Context) ([]string, error) { return nil, nil }
	l, err := newLauncher(m, c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l.printed = (&stdio.Config{}).Printed
	t.Cleanup(l.close)
	return l
}

// What is said of an index that a profile does not let the installer reach, and where nothing
// keeps it from it.
func TestAdvice(t *testing.T) {
	for _, c := range []struct {
		tool, line string
		network    sandbox.Network
		want       string
	}{
		{"npx", "npm error 403 403 Forbidden - GET https://registry.npmjs.org/tiny", sandbox.Profile, "registry.npmjs.org or your own, to its allow_host"},
		{"npx", "npm error request to https://registry.npmjs.org/tiny failed, reason: getaddrinfo EAI_AGAIN registry.npmjs.org", sandbox.Closed, "registry.npmjs.org or"},
		{"npx", "npm error code ENOTFOUND", sandbox.Profile, "registry.npmjs.org or"},
		{"uvx", "  Caused by: dns error", sandbox.Closed, "pypi.org and files.pythonhosted.org or your own"},
		{"uvx", "  Caused by: tunnel error: unsuccessful", sandbox.Profile, "pypi.org and"},
		{"uvx", "  Caused by: invalid peer certificate: UnknownIssuer", sandbox.Profile, "SSL_CERT_FILE"},
		{"npx", "npm error code ECONNREFUSED", sandbox.Host, ""},
		{"npx", "npm error 404 Not Found - GET https://registry.npmjs.org/tiny", sandbox.Profile, ""},
	} {
		l, err := newLauncher(nil, sandbox.Config{Command: []string{c.tool, "tiny"}, Network: c.network}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if got := l.advice([]string{"first", c.line}); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s, %q: %q; want %q", c.tool, c.line, got, c.want)
		}
		l.close()
	}
}

// uvx installs by uv, once for all who come, also when who came first has left; the clock of
// the first start is that of the installation, and one that fails is tried again.
func TestUVX(t *testing.T) {
	needHelper(t)
	l := launcherOf(t, sandbox.Config{Command: []string{"uvx", "--python", "3.12", "tiny@1.2", "a b"}}, `
echo x >> "$HOME/runs"
[ "$*" = "tool install --no-progress --python 3.12 -- tiny==1.2" ] || exit 2
sleep 1
[ "$(wc -l < "$HOME/runs")" -gt 1 ] || { echo "error: no such package" >&2; exit 1; }
mkdir -p "$UV_TOOL_BIN_DIR" && printf '#!/bin/sh\n[ "$1" = "a b" ] && exit 7\n' > "$UV_TOOL_BIN_DIR/tiny" && chmod +x "$UV_TOOL_BIN_DIR/tiny"`)
	b, err := stdio.New(stdio.Config{Name: "test", Starter: l})
	if err != nil {
		t.Fatal(err)
	}
	box := &boxed{b, l, nil}
	if got := box.Introduction(); got != firstStart {
		t.Errorf("the first start may take %s", got)
	}
	if _, err := l.Start(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "tiny==1.2 cannot be installed: uv tool: exit 1: ") || !strings.Contains(err.Error(), "error: no such package") {
		t.Errorf("the first one fails with %v", err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := l.Start(gone, ""); err == nil {
		t.Error("a start goes on that nobody waits for")
	}
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			p, err := l.Start(t.Context(), "")
			if err != nil {
				t.Error(err)
				return
			}
			if exit := p.Wait(); exit.Code != 7 {
				t.Errorf("it ends with %s", exit)
			}
		})
	}
	all.Wait()
	if runs, err := os.ReadFile(filepath.Join(l.config.Home, "runs")); err != nil || string(runs) != "x\nx\n" {
		t.Errorf("uv was run %q, %v", runs, err)
	}
	if got := box.RunAs(); len(got) != 2 || filepath.Base(got[0]) != "tiny" || got[1] != "a b" {
		t.Errorf("it is run as %q", got)
	}
	if got := box.Introduction(); got >= firstStart {
		t.Errorf("a later start may take %s", got)
	}
}
