package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/edge"
)

// commands are those of a process.
type commands struct{ *cli.App }

// Command is the command `weir plugin` of a process.
func Command(app *cli.App) *cobra.Command { return (&commands{app}).command() }

func (a *commands) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plugin COMMAND",
		Short: "Make guests: write, build, try, measure and pack filters in WebAssembly or Starlark",
		Long: `Make guests: programs in WebAssembly, and scripts in Starlark, that see the messages
of servers and answer with operations on them. An EdgeFilter puts one into an edge.

"new" lays out a directory with a guest that works: in Starlark, which needs no
compiler, or in Go, AssemblyScript, Rust or C, with its SDK; "build" compiles it;
"test" runs the cases of fixtures.yaml; "bench" measures them; "inspect" shows the
hooks and grants of a guest; "pack" finishes it and prints the EdgeFilter for it. No
command needs a network, unless the author of a guest adds packages.

In place of DIR, "test", "bench" and "inspect" take the file of a module or a script.`,
		Example: `  weir plugin new admins-only --language starlark && weir plugin test admins-only
  weir plugin build admins-only && weir plugin test admins-only
  weir plugin inspect admins-only/build/admins-only.wasm`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownPlugin(cmd, args[0])
			}
			return cmd.Help()
		},
		Args: cobra.ArbitraryArgs,
	}
	cmd.AddCommand(a.pluginNewCommand(), a.pluginBuildCommand(), a.pluginTestCommand(), a.pluginBenchCommand(), a.pluginInspectCommand(), a.pluginPackCommand())
	return cmd
}

func unknownPlugin(cmd *cobra.Command, name string) error {
	var known []string
	for _, c := range cmd.Commands() {
		known = append(known, c.Name())
	}
	return cli.Usagef("no such command %q%s", name, cli.DidYouMean(name, known, "`weir plugin --help` lists them"))
}

// oneDir allows at most one argument; without one it is the current directory.
func oneDir(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return cli.Usagef("%q is one word too many: name one directory or module, or none for this directory", args[1])
	}
	return nil
}

func dirOf(args []string) string {
	if len(args) == 0 {
		return "."
	}
	return args[0]
}

func (a *commands) pluginNewCommand() *cobra.Command {
	var language string
	var server bool
	cmd := &cobra.Command{
		Use:   "new DIR",
		Short: "Lay out a directory with a guest that works",
		Long: `Lay out a directory with a guest that works: it lets one group alone call tools
that delete. The last part of DIR is its name.

There will be its sources, fixtures.yaml with what it must answer, plugin.yaml
with what it is, and the SDK of its language, so that it is built without a
network. (AssemblyScript has its compiler from npm.) In Starlark there is no SDK,
and nothing to build; beside the script lies weir.yaml, an edge that asks it.

With --server it is no guest but an MCP server in WebAssembly, in Go or Rust, which
"weir run" starts without a sandbox of the machine.`,
		Example: `  weir plugin new admins-only
  weir plugin new --server calculator
  weir plugin new --server --language rust calculator
  weir plugin new --language starlark admins-only
  weir plugin new --language rust redact-results
  weir plugin new --language c guests/pin-region`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usagef("name one directory for the guest")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			l, ok := LanguageNamed(language)
			if !ok {
				return cli.Usagef("--language: there is no %q%s", language, cli.DidYouMean(language, LanguageNames(), "one of "+strings.Join(LanguageNames(), ", ")))
			}
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			make := New
			if server {
				make = NewServer
			}
			files, err := make(dir, filepath.Base(dir), l)
			if err != nil {
				return err
			}
			for _, f := range files {
				if !strings.Contains(f, "weir/") {
					fmt.Fprintln(a.Out, filepath.ToSlash(filepath.Join(args[0], f)))
				}
			}
			if server {
				fmt.Fprintf(a.Out, "\nNext: cd %s && weir plugin build --server && weir run ./build/%s.wasm\n", args[0], filepath.Base(dir))
				return nil
			}
			build := "weir plugin build && "
			switch {
			case l.Name == "assemblyscript":
				build = "npm install && " + build
			case !l.Compiled():
				build = ""
			}
			fmt.Fprintf(a.Out, "\nNext: cd %s && %sweir plugin test\n", args[0], build)
			return nil
		},
	}
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "lang" {
			name = "language"
		}
		return pflag.NormalizedName(name)
	})
	cmd.Flags().StringVar(&language, "language", "go", "`LANGUAGE` of the guest: "+strings.Join(LanguageNames(), ", "))
	cmd.Flags().BoolVar(&server, "server", false, "an MCP server, which weir run starts, in place of a guest")
	fixed(cmd, "language", LanguageNames())
	return cmd
}

// fixed completes a flag with the values that it takes.
func fixed(cmd *cobra.Command, flag string, values []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag was defined a line before
	}
}

func (a *commands) pluginBuildCommand() *cobra.Command {
	var out string
	var server bool
	cmd := &cobra.Command{
		Use:   "build [DIR]",
		Short: "Compile a guest",
		Long: `Compile a guest to a module, and check it as the edge would.

The compilers are those of the language: go; clang and wasm-ld; cargo with the
target wasm32-unknown-unknown; asc, which "npm install" brings. When one is missing
the error says how to install it. A script in Starlark runs as it is: it is checked,
and there is nothing to build.

With --server it is an MCP server that is compiled, for WASI preview 1, in Go or in
Rust with the target wasm32-wasip1 (in older compilers wasm32-wasi).`,
		Example: `  weir plugin build
  weir plugin build --server calculator && weir run ./calculator/build/calculator.wasm
  weir plugin build admins-only
  weir plugin build admins-only -o admins-only.wasm`,
		Args: oneDir,
		RunE: func(cmd *cobra.Command, args []string) error {
			if server || isServer(dirOf(args)) {
				return a.buildServer(cmd.Context(), dirOf(args), out)
			}
			file, err := a.buildPlugin(cmd.Context(), dirOf(args), out)
			if err != nil {
				return err
			}
			p, err := Load(cmd.Context(), file, CacheDir())
			if err != nil {
				return err
			}
			defer p.Close()
			fmt.Fprintf(a.Out, "%s: ok (%s, sha256 %s)\n", file, size(uint64(p.Size)), p.Digest)
			if IsScript(file) {
				fmt.Fprintln(a.Out, "It runs as it is: there is nothing to build.")
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "`FILE` of the module (default DIR/build/NAME.wasm)")
	cmd.Flags().BoolVar(&server, "server", false, "an MCP server, in place of a guest")
	return cmd
}

// buildServer builds the MCP server in a directory.
func (a *commands) buildServer(ctx context.Context, dir, out string) error {
	if _, err := os.Stat(filepath.Join(dir, ManifestFile)); err == nil {
		return cli.Usagef("--server: %s: %s says that it is a guest: leave --server out", dir, ManifestFile)
	}
	l, err := LanguageOf(dir)
	if err != nil {
		return err
	}
	if out == "" {
		if out, err = moduleOf(dir, ""); err != nil {
			return err
		}
	}
	if err := BuildServer(ctx, l, dir, out); err != nil {
		return err
	}
	info, err := os.Stat(out)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "%s: ok (%s)\n", out, size(uint64(info.Size())))
	return nil
}

// buildPlugin compiles the guest in a directory and returns the module's file, or that of a
// script, which needs no compiling.
func (a *commands) buildPlugin(ctx context.Context, dir, out string) (string, error) {
	l, err := LanguageOf(dir)
	if err != nil {
		return "", err
	}
	name := ""
	if p, err := ReadProject(dir); err == nil {
		name = p.Name
		if p.Language != "" {
			l, _ = LanguageNamed(p.Language) // ReadProject has looked
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	if !l.Compiled() {
		if out != "" {
			return "", cli.Usagef("--output: %s runs as it is: there is no module to write", l.Name)
		}
		return ScriptOf(dir, name)
	}
	if out == "" {
		if out, err = moduleOf(dir, name); err != nil {
			return "", err
		}
	}
	return out, Build(ctx, l, dir, out)
}

// moduleOf returns the path of the module of a directory.
func moduleOf(dir, name string) (string, error) {
	if name == "" {
		whole, err := filepath.Abs(dir)
		if err != nil {
			return "", err
		}
		name = filepath.Base(whole)
	}
	return filepath.Join(dir, "build", name+".wasm"), nil
}

// target is the module or script that a command works on, and its project.
type target struct {
	module  string   // its file
	dir     string   // "" for a file alone
	project *Project // nil without plugin.yaml
}

// targetOf returns the target for a directory, whose module it builds, or for the
// file of a module or a script.
func (a *commands) targetOf(ctx context.Context, path string) (*target, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return &target{module: path}, nil
	}
	t := &target{dir: path}
	if t.project, err = ReadProject(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	t.module, err = a.buildPlugin(ctx, path, "")
	return t, err
}

// fixturesOf reads the fixtures for a target: the file given, or that beside
// its sources.
func (t *target) fixturesOf(file string) (*Fixtures, string, error) {
	if file == "" {
		if t.dir == "" {
			return nil, "", cli.Usagef("name the fixtures for a %s alone: --fixtures FILE", t.kind())
		}
		file = filepath.Join(t.dir, "fixtures.yaml")
	}
	text, err := edge.ReadFile(file, maxText)
	if err != nil {
		return nil, "", err
	}
	f, err := ParseFixtures(file, text)
	if err != nil {
		return nil, file, err
	}
	says, err := t.manifest()
	return f.Without(says), file, err
}

// manifest is what a target says of itself: in plugin.yaml, or in the module.
func (t *target) manifest() (*Manifest, error) {
	if t.project != nil {
		return &t.project.Manifest, nil
	}
	if IsScript(t.module) {
		return nil, nil
	}
	return manifestIn(t.module)
}

// kind says what the target is, for people.
func (t *target) kind() string {
	if IsScript(t.module) {
		return "script"
	}
	return "module"
}

// withProgram calls a function with a target's program and fixtures.
func (a *commands) withProgram(ctx context.Context, args []string, fixtures string, do func(*Program, *Fixtures, string) error) error {
	t, err := a.targetOf(ctx, dirOf(args))
	if err != nil {
		return err
	}
	f, file, err := t.fixturesOf(fixtures)
	if err != nil {
		return err
	}
	p, err := Load(ctx, t.module, CacheDir())
	if err != nil {
		return err
	}
	defer p.Close()
	return do(p, f, file)
}
