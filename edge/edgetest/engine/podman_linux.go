package engine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest/need"
)

// MissingPodman says why no Podman can be run here; "" where one can.
func MissingPodman() string {
	if os.Geteuid() != 0 {
		return "a container engine needs root"
	}
	for _, name := range []string{"podman", "conmon", "runc"} {
		if _, err := exec.LookPath(name); err != nil {
			return name + " is not installed (Debian: podman)"
		}
	}
	return ""
}

// StartPodman starts a Podman with a Docker-like interface (podman system service), which ends
// with the test. Its storage, and all else that it keeps, is in a directory of its own.
func StartPodman(t testing.TB) *Engine { return startPodman(t, false) }

// StartPodmanHere starts one in the network of the test.
func StartPodmanHere(t testing.TB) *Engine { return startPodman(t, true) }

func startPodman(t testing.TB, here bool) *Engine {
	t.Helper()
	why := MissingPodman()
	need.Of(t, why == "", why)
	dir, err := os.MkdirTemp("", "weir-podman-")
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{Dir: dir, Socket: filepath.Join(dir, "p.sock"), Shared: here}
	t.Cleanup(e.Close)
	for name, text := range map[string]string{
		// Without an overlay file system below one: layers are copied.
		"storage.conf":    fmt.Sprintf("[storage]\ndriver = \"vfs\"\nrunroot = %q\ngraphroot = %q\n", e.path("run"), e.path("data")),
		"containers.conf": fmt.Sprintf("[containers]\ndefault_ulimits = [\"nofile=8192:8192\", \"nproc=4096:4096\"]\n[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\nruntime = \"runc\"\ntmp_dir = %q\nvolume_path = %q\n[network]\nnetwork_config_dir = %q\n", e.path("tmp"), e.path("volumes"), e.path("net")),
		"policy.json":     `{"default": [{"type": "insecureAcceptAnything"}]}`,
	} {
		if err := os.WriteFile(e.path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e.podman = []string{"podman", "system", "service", "--time=0", "unix://" + e.Socket}
	if err := e.Run(); err != nil {
		t.Fatal(err)
	}
	return e
}

// environment is that of a Podman of this directory.
func (e *Engine) environment() []string {
	return append(os.Environ(), "CONTAINERS_STORAGE_CONF="+e.path("storage.conf"), "CONTAINERS_CONF="+e.path("containers.conf"), "XDG_RUNTIME_DIR="+e.path("run"), "HOME="+e.Dir, "TMPDIR="+e.Dir)
}

// removeAll removes the containers of a Podman, which go on without it.
func (e *Engine) removeAll() {
	cmd := exec.Command("podman", "rm", "--all", "--force", "--time=0")
	cmd.Env = e.environment()
	_ = cmd.Run()
	e.killLeft("conmon")
}
