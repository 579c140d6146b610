package workloads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/local"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/container"
	"github.com/weir-edge/weir/edge/container/build"
	"github.com/weir-edge/weir/edge/image"
	"github.com/weir-edge/weir/edge/runner"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/edge/workload"
)

// givenName is a name that an engine gives an image, with a tag or without one.
var givenName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*(:[0-9]{1,5}/[a-z0-9][a-z0-9._-]*)?(/[a-z0-9][a-z0-9._-]*)*(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$`)

// maxFile bounds a file that a flag names, in bytes; engineWait how long the engine may take to
// say that it is there.
const (
	maxFile    = 4 << 20
	engineWait = 10 * time.Second
)

// buildFlags are the flags of `weir build`.
type buildFlags struct {
	tag, image, ca string
	packages       []string
	secrets        []string
	pull, rebuild  bool
	verification   string
}

// Build is `weir build`.
func (a *Commands) Build() *cobra.Command {
	var x buildFlags
	cmd := &cobra.Command{
		Use:   "build [flags] npx://PACKAGE|uvx://PACKAGE|go://MODULE|go://./DIR",
		Short: "Build the image of an MCP server from a package",
		Long: `Build the image of an MCP server from a package of npm (npx://), of PyPI (uvx://), or of a
Go module (go://), or from a directory with one (go://./DIR). "weir run" does the same where
it is needed; what was built before is not built again, unless a newer version could be
meant, or --rebuild is given.

The package is installed in a container of its base, as an ordinary user, and what came of
it is one layer on that base. The base is node:24-alpine, python:3.14-slim, or
golang:1.26-alpine to build in and alpine:3.23 to run in. The indexes are those that your
own settings name (.npmrc, UV_DEFAULT_INDEX, go env), without their credentials. A login to
an index is a file that the build alone sees: --build-secret npmrc=FILE is npm's
configuration, netrc=FILE that of uv and Go, pip.conf=FILE and uv.toml=FILE theirs; any
other is at /run/secrets/NAME. It is in memory, and in no image.

Who made a base is verified as it is of an image that "weir run" runs: by the rules of
image-policy.yaml.

The last line of the output is the name of the image.

Exit codes: 2 wrong command line, 8 no container engine, 9 refused by a rule, 42 the build
failed, 43 a base cannot be had.`,
		Example: `  weir build npx://@modelcontextprotocol/server-everything@2026.8.31
  weir build uvx://mcp-server-time==2026.1.1 -t mine/time:1
  weir build go://./cmd/server -t registry.example.com/team/server:dev
  weir build npx://@acme/private --build-secret npmrc=$HOME/.npmrc --ca-cert authority.pem
  weir build uvx://mcp-server-git --runtime-add-package git`,
		DisableFlagsInUseLine: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usagef("name one thing to build: npx://PACKAGE, uvx://PACKAGE, go://MODULE or go://./DIR")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.build(cmd, &x, args[0]) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&x.tag, "tag", "t", "", "`TAG`: give the image this name, too")
	f.StringVar(&x.image, "runtime-image", "", "`IMAGE`: the base, in place of the usual one; of go:// that of the toolchain")
	f.StringArrayVar(&x.packages, "runtime-add-package", nil, "`PACKAGE`: of the base's system, to install in the image; may be repeated")
	f.StringVar(&x.ca, "ca-cert", "", "`FILE`: authorities in PEM that the build trusts, too")
	f.StringArrayVar(&x.secrets, "build-secret", nil, "`NAME=FILE`: a file that the build alone sees; may be repeated")
	f.StringVar(&x.verification, "image-verification", string(v1beta1.VerifyWarn), "`MODE`: whether who made the bases is verified: warn, enabled, disabled")
	f.BoolVar(&x.pull, "pull", false, "look for newer bases, and build anew where there is one")
	f.BoolVar(&x.rebuild, "rebuild", false, "build anew also what is there")
	for _, name := range []string{"tag", "runtime-image", "runtime-add-package"} {
		cli.MustRegister(cmd, name, nil)
	}
	cli.MustRegister(cmd, "image-verification", []string{"warn", "enabled", "disabled"})
	cli.AddFormat(cmd, "text", "json")
	return cmd
}

// build builds an image.
func (a *Commands) build(cmd *cobra.Command, x *buildFlags, word string) error {
	r, err := x.request(word)
	if err != nil {
		return err
	}
	paths, err := a.Paths()
	if err != nil {
		return err
	}
	if err := local.Private(paths.State); err != nil {
		return paths.Unusable(err)
	}
	defaults, err := local.OfUser(a.Paths)
	if err != nil {
		return err
	}
	r.RuntimeImage = cmp.Or(r.RuntimeImage, defaults.RuntimeImage(word))
	ctx, stop := cli.UntilSignal(cmd)
	defer stop()
	log := slog.New(slog.NewTextHandler(a.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	m := container.NewMachine(container.Options{Cache: paths.Cache, State: paths.State, Lookup: defaults.Lookup(a.Lookup), Log: log})
	defer m.Close()
	home, _ := a.Lookup("HOME")
	steps := a.Steps(cmd)
	watched := cli.Terminal(a.Err)
	r.Told = func(s build.Step) {
		switch {
		case cli.WantsJSON(cmd):
		case watched && !s.Done: // with a clock behind it
			steps.Show(edge.Clean(s.Text))
		case !watched && s.Done:
			steps.Show(edge.Clean(local.StepLine(s)))
		}
	}
	reach, err := a.Reach()
	if err != nil {
		return err
	}
	images := &image.Images{PolicyFile: filepath.Join(paths.Config, image.PolicyFile), RootsFile: filepath.Join(paths.Config, image.RootsFile), CAs: reach.CAs}
	mode := v1beta1.ImageVerification(x.verification)
	builds := &build.Builds{Machine: m, Spool: paths.State, Home: home, Lookup: a.Lookup, Log: log, Login: images.Login, Choose: local.Bases(images, mode, paths.State)}
	r.Proven = mode == v1beta1.VerifyEnabled
	done, err := builds.Build(ctx, r)
	steps.End()
	if err != nil {
		return cli.Interrupted(ctx, buildProblem(word, err))
	}
	if mode != v1beta1.VerifyDisabled {
		done.Notes = append(done.Notes, done.Doubts...)
	}
	for _, text := range done.Notes {
		fmt.Fprintf(a.Err, "%s %s\n", a.Paint(a.Err, cli.Dim, cmd.CommandPath()+": note:"), edge.Clean(text))
	}
	name := done.Tag
	if x.tag != "" {
		name = x.tag
	}
	if cli.WantsJSON(cmd) {
		return cli.PrintJSON(a.Out, map[string]any{"image": name, "tag": done.Tag, "id": done.ID, "built": done.Built}, "")
	}
	_, err = fmt.Fprintln(a.Out, name)
	return err
}

// request reads the command line, and the files that it names.
func (x *buildFlags) request(word string) (r build.Request, err error) {
	if r.Source, err = runner.ParseSource(word); err != nil {
		return r, cli.Usagef("%s", err)
	}
	if r.Source == nil {
		return r, cli.Usagef("%s is nothing to build: write npx://PACKAGE, uvx://PACKAGE, go://MODULE or go://./DIR", cli.Brief(word))
	}
	if err := r.Source.Locate(); err != nil {
		return r, cli.Usagef("%s: %s: name the directory of a Go module, go://./DIR", cli.Brief(word), err)
	}
	if !slices.Contains([]string{"warn", "enabled", "disabled"}, x.verification) {
		return r, cli.Usagef("--image-verification: %s is none of warn, enabled and disabled", cli.Brief(x.verification))
	}
	if err := runner.CheckBase(x.image, nil); err != nil {
		return r, cli.Usagef("--runtime-image: %s", err)
	}
	if err := runner.CheckBase("", x.packages); err != nil {
		return r, cli.Usagef("--runtime-add-package: %s", err)
	}
	switch {
	case x.tag == "":
	case !givenName.MatchString(x.tag):
		return r, cli.Usagef("--tag: %s is no name to give an image: write NAME or NAME:TAG, the name in small letters", cli.Brief(x.tag))
	case strings.HasPrefix(x.tag, "weir/"):
		return r, cli.Usagef("--tag: names below weir/ are those that weir itself gives: write another")
	}
	r.RuntimeImage, r.AddPackages, r.Tag, r.Pull, r.Rebuild = x.image, x.packages, x.tag, x.pull, x.rebuild
	if x.ca != "" {
		if r.CA, err = build.ReadCA(x.ca); err != nil {
			return r, cli.Usagef("--ca-cert: %s", err)
		}
	}
	for _, text := range x.secrets {
		name, file, ok := strings.Cut(text, "=")
		if !ok || !build.IsSecretName(name) || file == "" {
			return r, cli.Usagef("--build-secret: write NAME=FILE, such as npmrc=$HOME/.npmrc")
		}
		if _, twice := r.Secrets[name]; twice {
			return r, cli.Usagef("--build-secret: %s is given twice", cli.Brief(name))
		}
		if r.Secrets == nil {
			r.Secrets = map[string][]byte{}
		}
		if r.Secrets[name], err = readBounded(file, maxFile); err != nil {
			return r, cli.Usagef("--build-secret: %s: %s", cli.Brief(name), err)
		}
	}
	return r, nil
}

// readBounded reads a file of at most so many bytes.
func readBounded(path string, most int64) ([]byte, error) {
	f, err := edge.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", cli.Brief(path))
	}
	data, err := io.ReadAll(io.LimitReader(f, most))
	if err == nil && int64(len(data)) == most {
		err = fmt.Errorf("%s is too large", cli.Brief(path))
	}
	return data, err
}

// buildProblem is the error of a build for the user.
func buildProblem(word string, err error) error {
	var failed *build.Error
	var engine *container.Error
	var unproven *image.Error
	switch {
	case errors.As(err, &unproven):
		return local.Unproven(unproven)
	case errors.As(err, &failed):
		return local.BuildFailure(edge.Brief(word), failed)
	case errors.As(err, &engine):
		e := local.EngineFailure(engine)
		if engine.Kind == container.NoEngine {
			if form := workload.LocalForm(word, nil); form != "" {
				e.Next += ", or run the server as a process of this machine: " + form
			}
		}
		return e
	}
	return err
}

// Buildable refuses a server whose image is to be built where there is no container engine,
// before anything is kept of it.
func (a *Commands) Buildable(ctx context.Context, plan *compile.Plan) error {
	w := plan.Servers[0].Backends[0].Workload
	if w == nil || w.Build == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, engineWait)
	defer cancel()
	e, err := local.Engine(ctx, a.Paths, a.Lookup)
	if err == nil {
		e.Close()
		return nil
	}
	known := new(container.Error)
	if !errors.As(err, &known) {
		return err
	}
	failed := local.EngineFailure(known)
	failed.Message = "an image of " + edge.Brief(w.Image) + " would have to be built: " + failed.Message
	failed.Next += ", or run the server as a process of this machine: " + workload.LocalForm(w.Image, w.Args)
	return failed
}
