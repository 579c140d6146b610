// Package peers finds, starts and ends the programs that the edge is tested
// against: servers and clients of others, from npm and from Go modules, and the
// edge itself as a process. Its tests drive the edge with them; the conformance
// harness uses it as well.
//
// Everything listens on addresses of the loopback interface that were free a
// moment before, except the npm servers, which know no other than all
// interfaces. Every process leads a group of its own and is ended with it.
package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Kit is where things are on this machine.
type Kit struct {
	Root string // the folder of go.mod
	Node string // the node program; empty when there is none that is new enough
}

// Find returns the kit of the module that the working directory is in. That
// node or its packages are missing is no error: see Kit.Lacks.
func Find() (Kit, error) {
	dir, err := os.Getwd()
	if err != nil {
		return Kit{}, fmt.Errorf("find peers: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "edge", "edgetest", "peers", "package.json")); err == nil {
			k := Kit{Root: dir}
			k.Node = findNode(k.modules())
			return k, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return Kit{}, errors.New("find peers: the working directory is not inside the module")
		}
		dir = up
	}
}

// Dir is this package's folder.
func (k Kit) Dir() string { return filepath.Join(k.Root, "edge", "edgetest", "peers") }

func (k Kit) modules() string { return filepath.Join(k.Dir(), "node_modules") }

// Module returns the path of a file of an npm package. It need not exist.
func (k Kit) Module(path string) string {
	return filepath.Join(k.modules(), filepath.FromSlash(path))
}

// The files of npm packages that are run with node.
const (
	suite         = "@modelcontextprotocol/conformance/dist/index.js"
	inspectorCLI  = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
	npmEverything = "@modelcontextprotocol/server-everything/dist/index.js"
	npmBridge     = "supergateway/dist/index.js"
)

// Inspector is the inspector's program.
func (k Kit) Inspector() string { return k.Module(inspectorCLI) }

// Suite is the program of the conformance suite.
func (k Kit) Suite() string { return k.Module(suite) }

// Lacks says what a machine needs before node programs can run on it; it is
// empty when it has everything.
func (k Kit) Lacks() string {
	if _, err := os.Stat(k.Suite()); err != nil {
		return "the npm packages are not installed: run npm ci in edge/edgetest/peers"
	}
	if k.Node == "" {
		return fmt.Sprintf("there is no node %d.%d or newer", nodeMajor, nodeMinor)
	}
	return ""
}

// The inspector asks for this version of node, the other packages for less.
const nodeMajor, nodeMinor = 22, 19

// findNode prefers the program of the npm package, whose version the lock file
// fixes, and takes the one in PATH where there is no package for the platform.
func findNode(modules string) string {
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	packed := filepath.Join(modules, "node-"+runtime.GOOS+"-"+arch, "bin", "node")
	if _, err := os.Stat(packed); err == nil {
		return packed
	}
	path, err := exec.LookPath("node")
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil || !newEnough(string(out)) {
		return ""
	}
	return path
}

// newEnough reads what node --version prints, such as v22.19.0.
func newEnough(version string) bool {
	major, rest, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(version), "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, errA := strconv.Atoi(major)
	b, errB := strconv.Atoi(minor)
	return errA == nil && errB == nil && (a > nodeMajor || a == nodeMajor && b >= nodeMinor)
}

// Build builds the program of a Go package, named as from the module's root,
// into the file out.
func (k Kit) Build(ctx context.Context, pkg, out string) error {
	cmd := Command(ctx, "go", "build", "-o", out, pkg)
	cmd.Dir = k.Root
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", pkg, err, strings.TrimSpace(string(said)))
	}
	return nil
}
