package build

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge/container"
	"github.com/weir-edge/weir/edge/runner"
)

// Paths in builders and images.
const (
	appDir    = "/app"       // what becomes the layer
	home      = "/home/weir" // of who builds, and in memory of who runs
	sourceDir = home + "/src"
	npmConfig = container.BuilderDir + "/npmrc"
	caFile    = container.BuilderDir + "/ca.pem"
)

// recipe is how a scheme is built.
type recipe struct {
	builder string // the usual base that it is built in
	runtime string // and the one that it runs in; "" for the same

	// build has commands make what is below appDir.
	build func(ctx context.Context, j *job, base *container.Base) error
	// entry is the command that starts it, whose first word is a path. It is called when what
	// was made is in j.app.
	entry func(ctx context.Context, j *job) ([]string, error)
}

func recipes() map[string]recipe {
	const library = "docker.io/library/"
	return map[string]recipe{
		runner.SchemeNPX: {builder: library + "node:24-alpine", build: buildNode, entry: enterNode},
		runner.SchemeUVX: {builder: library + "python:3.14-slim", build: buildPython, entry: enterPython},
		runner.SchemeGo:  {builder: library + "golang:1.26-alpine", runtime: library + "alpine:3.23", build: buildGo, entry: enterGo},
	}
}

// environment is that of each command of a build.
func (j *job) environment(more ...string) []string {
	env := append([]string{"HOME=" + home, "CI=true"}, j.index.env...)
	if len(j.CA) > 0 {
		for _, name := range []string{"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"} {
			env = append(env, name+"="+caFile)
		}
	}
	for secret, name := range map[string]string{"npmrc": "NPM_CONFIG_USERCONFIG", "netrc": "NETRC", "pip.conf": "PIP_CONFIG_FILE", "uv.toml": "UV_CONFIG_FILE"} {
		if _, given := j.Secrets[secret]; given {
			env = append(env, name+"="+container.SecretsDir+"/"+secret)
		}
	}
	slices.Sort(env[2:])
	return append(env, more...)
}

// program finds a program of a base by its PATH.
func program(ctx context.Context, b *container.Builder, base *container.Base, name string) (string, error) {
	for dir := range strings.SplitSeq(base.Path, ":") {
		if !path.IsAbs(dir) {
			continue
		}
		at := path.Join(dir, name)
		if there, err := b.Has(ctx, at); err != nil {
			return "", err
		} else if there {
			return at, nil
		}
	}
	return "", nil
}

// needed is program, and an error where there is none.
func (j *job) needed(ctx context.Context, base *container.Base, name string) (string, error) {
	at, err := program(ctx, j.builder, base, name)
	if err == nil && at == "" {
		return "", &Error{Step: "look for " + name, Why: fmt.Sprintf("the base %s has no %s", j.bases()[0], name), Next: "name a base that has it with --runtime-image, or add its package with --runtime-add-package"}
	}
	return at, err
}

// Of npm.

func buildNode(ctx context.Context, j *job, base *container.Base) error {
	npm, err := j.needed(ctx, base, "npm")
	if err != nil {
		return err
	}
	return j.run(ctx, "npm install "+j.Source.Wanted(), container.Command{
		Args: []string{
			npm, "install", "--prefix", appDir, "--omit=dev", "--no-audit", "--no-fund", "--no-update-notifier", "--no-progress", "--install-links",
			"--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=10000", "--", j.Source.Wanted(),
		},
		Env: j.environment("NPM_CONFIG_GLOBALCONFIG=" + npmConfig), Dir: home,
	})
}

func enterNode(ctx context.Context, j *job) ([]string, error) {
	node, err := j.needed(ctx, j.base, "node")
	if err != nil {
		return nil, err
	}
	at := path.Join("app/node_modules", j.Source.Package)
	text, err := j.app.read(at+"/package.json", 1<<20)
	if err != nil {
		return nil, fmt.Errorf("%s is not installed as one package: %w", j.Source.Package, err)
	}
	var pack struct {
		Bin json.RawMessage `json:"bin"`
	}
	if err := json.Unmarshal(text, &pack); err != nil {
		return nil, fmt.Errorf("%s has no package.json that can be read", j.Source.Package)
	}
	bin, err := runner.BinOf(j.Source.Package, pack.Bin)
	if err != nil {
		return nil, err
	}
	file := path.Join(at, bin)
	if !strings.HasPrefix(file, at+"/") {
		return nil, fmt.Errorf("%s: its program is not a file of its own", j.Source.Package)
	}
	first, err := j.app.read(file, 256)
	if err != nil {
		return nil, err
	}
	line, _, _ := strings.Cut(string(first), "\n")
	if line = strings.TrimSpace(line); strings.HasPrefix(line, "#!") && line != "#!/usr/bin/env node" && line != "#!/usr/bin/node" || strings.ContainsRune(line, 0) {
		return []string{"/" + file}, nil // the kernel knows what runs it
	}
	return []string{node, "/" + file}, nil
}

// Of PyPI.

func buildPython(ctx context.Context, j *job, base *container.Base) error {
	uv, err := program(ctx, j.builder, base, "uv")
	if err != nil {
		return err
	}
	if uv == "" {
		python, err := j.needed(ctx, base, "python3")
		if err != nil {
			return err
		}
		const own = home + "/uv"
		if err := j.run(ctx, "pip install uv", container.Command{
			Args: []string{python, "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check", "--no-input", "--prefix", own, "--", "uv"},
			Env:  j.environment(), Dir: home,
		}); err != nil {
			return err
		}
		uv = own + "/bin/uv"
	}
	return j.run(ctx, "uv tool install "+j.Source.Wanted(), container.Command{
		Args: []string{uv, "tool", "install", "--no-progress", "--", j.Source.Wanted()},
		// The base's own Python is the one that is there when the program runs.
		Env: j.environment("UV_TOOL_DIR="+appDir+"/tools", "UV_TOOL_BIN_DIR="+appDir+"/bin", "UV_PYTHON_DOWNLOADS=never", "UV_PYTHON_PREFERENCE=only-system", "UV_LINK_MODE=copy"),
		Dir: home,
	})
}

func enterPython(_ context.Context, j *job) ([]string, error) {
	return j.app.programOf("app/bin", j.Source.Name())
}

// Of Go.

func buildGo(ctx context.Context, j *job, base *container.Base) error {
	tool, err := j.needed(ctx, base, "go")
	if err != nil {
		return err
	}
	env := j.environment("CGO_ENABLED=0", "GOBIN="+appDir+"/bin", "GOPATH="+home+"/go", "GOCACHE="+home+"/.cache/go-build", "GOFLAGS=-trimpath -buildvcs=false")
	if j.tree == nil {
		return j.run(ctx, "go install "+j.Source.Wanted(), container.Command{Args: []string{tool, "install", "--", j.Source.Wanted()}, Env: env, Dir: home})
	}
	if err := j.step("copy "+j.shown(), func() error {
		r, err := j.tree.open()
		if err != nil {
			return err
		}
		if err := j.builder.Put(ctx, container.File{Path: sourceDir, Mode: 0o755, Mine: true, Dir: true}); err != nil {
			return err
		}
		return j.builder.PutArchive(ctx, sourceDir, r)
	}); err != nil {
		return err
	}
	return j.run(ctx, "go build", container.Command{Args: []string{tool, "build", "-o", appDir + "/bin/" + runner.PlainName(j.Source.Name()), "."}, Env: env, Dir: sourceDir})
}

func enterGo(_ context.Context, j *job) ([]string, error) {
	return j.app.programOf("app/bin", runner.PlainName(j.Source.Name()))
}

// programOf finds the program in a directory: the one of a name, or the only one.
func (s *spool) programOf(dir, name string) ([]string, error) {
	var all []string
	for _, e := range s.entries {
		if path.Dir(e.name) == dir && e.kind != kindDir {
			all = append(all, path.Base(e.name))
		}
	}
	switch {
	case slices.Contains(all, name):
	case len(all) == 1:
		name = all[0]
	case len(all) == 0:
		return nil, errors.New("nothing was made that can be started")
	default:
		return nil, fmt.Errorf("it has several programs, and none of the name %s: %.200q", name, all)
	}
	return []string{"/" + path.Join(dir, name)}, nil
}
