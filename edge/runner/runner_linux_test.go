package runner_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-edge/weir/edge/runner"
)

// A command of a package runner is read as the runner reads it; what only the runner
// understands runs as it was given, and what could be an option of the installer is refused.
func TestParseRunner(t *testing.T) {
	for command, want := range map[string]string{
		"npx -y pkg":                            "npx pkg [] []",
		"npx pkg@1.2 --stdio -y":                "npx pkg@1.2 [] [--stdio -y]",
		"npx --yes @scope/pkg@latest dir":       "npx @scope/pkg@latest [] [dir]",
		"npx -p pkg tool x":                     "npx pkg [tool] [x]",
		"npx --package=pkg@2 -y tool":           "npx pkg@2 [tool] []",
		"npx -y -- pkg a":                       "npx pkg [] [a]",
		"/opt/node/bin/npx ./a.tgz":             "npx ./a.tgz [] []",
		"npx -p a -p b tool":                    "as given",
		"npx -c tool":                           "as given",
		"npx --registry=http://a.example pkg":   "as given",
		"npx":                                   "no package",
		"npx -y":                                "no package",
		"npx -p":                                "no value follows",
		"npx -- --prefix=/":                     "looks like an option",
		"npx -p --prefix=/ tool":                "looks like an option",
		"npx --package=--prefix=/ tool":         "looks like an option",
		"npx -p pkg ../../bin/sh":               "no name of a program",
		"npx -p pkg ..":                         "no name of a program",
		"npx pkg\n--prefix=/":                   "control characters",
		"npx pkg\x00":                           "control characters",
		"uvx pkg":                               "uvx pkg [pkg] []",
		"uvx pkg@1.0 a":                         "uvx pkg==1.0 [pkg] [a]",
		"uvx pkg@latest":                        "uvx pkg@latest [pkg] []",
		"uvx pkg[cli]==1.0":                     "uvx pkg[cli]==1.0 [pkg] []",
		"uvx --from pkg==2 --python 3.12 tool":  "uvx pkg==2 [tool] []",
		"uvx --from=git+https://a.example tool": "uvx git+https://a.example [tool] []",
		"uvx ./dir":                             "as given",
		"uvx --refresh pkg":                     "as given",
		"uvx --from -e tool":                    "looks like an option",
		"uvx --with --index-url=x pkg":          "looks like an option",
		"pipx run pkg":                          "as given",
		"node server.js":                        "as given",
	} {
		words := strings.Split(command, " ")
		r, err := runner.Parse(words[0], words[1:])
		got := "as given"
		switch {
		case err != nil:
			got = err.Error()
		case r != nil:
			bin := []string{}
			if r.Bin != "" {
				bin = append(bin, r.Bin)
			}
			got = fmt.Sprintf("%s %s %v %v", r.Tool, r.Package, bin, r.Args)
		}
		if err == nil && got != want || err != nil && !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", command, got, want)
		}
	}
}

// The installer's own words come before the package, which stands alone behind --; a runner
// that was named by its path has its neighbours run.
func TestInstall(t *testing.T) {
	r, err := runner.Parse("/opt/node/bin/npx", []string{"-y", "pkg; rm -rf /", "x"})
	if err != nil {
		t.Fatal(err)
	}
	command, env := r.Install("/home", false)
	if command[0] != "/opt/node/bin/npm" || !slices.Equal(command[len(command)-2:], []string{"--", "pkg; rm -rf /"}) || len(env) > 0 {
		t.Errorf("npm is run as %q with %q", command, env)
	}
	if at := slices.Index(command, "--prefix"); at < 0 || command[at+1] != r.Dir("/home") || !strings.HasPrefix(r.Dir("/home"), "/home/.weir/npx-") {
		t.Errorf("npm is run as %q", command)
	}
	if again, _ := r.Install("/home", true); !slices.Contains(again, "--fetch-retries=0") {
		t.Errorf("npm is run again as %q", again)
	}
	r, err = runner.Parse("uvx", []string{"--python", "3.12", "--from", "pkg==1", "tool"})
	if err != nil {
		t.Fatal(err)
	}
	command, env = r.Install("/home", false)
	if want := []string{"uv", "tool", "install", "--no-progress", "--python", "3.12", "--", "pkg==1"}; !slices.Equal(command, want) {
		t.Errorf("uv is run as %q, want %q", command, want)
	}
	if !slices.Contains(env, "UV_TOOL_BIN_DIR="+r.Dir("/home")+"/bin") {
		t.Errorf("uv is run with %q", env)
	}
}

// installed is a HOME in which a package was installed as npm does it.
func installed(t *testing.T, r *runner.Runner, manifest, bin, text string) string {
	t.Helper()
	home := t.TempDir()
	at := filepath.Join(r.Dir(home), "node_modules", "@a", "pkg")
	for path, text := range map[string]string{
		filepath.Join(r.Dir(home), "package.json"): `{"dependencies": {"@a/pkg": "^1.0.0"}}`,
		filepath.Join(at, "package.json"):          manifest,
		filepath.Join(at, bin):                     text,
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return home
}

// The program of an installed package is that of its name or its only one, and runs by node
// where it says so; arguments follow as they were given.
func TestRunnerCommand(t *testing.T) {
	for _, c := range []struct{ manifest, asked, file, text, want string }{
		{`{"bin": "a.js"}`, "", "a.js", "#!/usr/bin/env node\n", "node a.js"},
		{`{"bin": {"other": "./dist/a.js"}}`, "", "dist/a.js", "#!/usr/bin/env node\r\n", "node dist/a.js"},
		{`{"bin": {"x": "x.js", "pkg": "a.js"}}`, "", "a.js", "console.log(1)", "node a.js"},
		{`{"bin": {"x": "a.js", "pkg": "b.js"}}`, "x", "a.js", "#!/usr/bin/node", "node a.js"},
		{`{"bin": {"x": "a.sh"}}`, "", "a.sh", "#!/bin/sh\n", "a.sh"},
		{`{"bin": {"x": "a"}}`, "", "a", "\x7fELF\x00\x00", "a"},
		{`{"bin": {"x": "x.js", "y": "y.js"}}`, "", "x.js", "", `no program "pkg"`},
		{`{"bin": {"x": "x.js"}}`, "y", "x.js", "", `no program "y"`},
		{`{}`, "", "x.js", "", "no program to start"},
		{`{"bin": {}}`, "", "x.js", "", "no program to start"},
		{`{"bin": "../../../../../../etc/passwd"}`, "", "x.js", "", "not a file of its own"},
		{`{"bin": "/bin/sh"}`, "", "x.js", "", "not a file of its own"},
		{`{"bin": "gone.js"}`, "", "x.js", "", "no such file"},
		{`{"bin": `, "", "x.js", "", "no package.json that can be read"},
	} {
		args := []string{"@a/pkg", "--", "a b", "$(c)"}
		if c.asked != "" {
			args = append([]string{"-p", "@a/pkg", c.asked}, args[1:]...)
		}
		r, err := runner.Parse("npx", args)
		if err != nil {
			t.Fatal(err)
		}
		home := installed(t, r, c.manifest, c.file, c.text)
		got := ""
		if command, err := r.Command(home); err != nil {
			got = err.Error()
		} else {
			if !slices.Equal(command[len(command)-3:], []string{"--", "a b", "$(c)"}) {
				t.Errorf("%s: it is run as %q", c.manifest, command)
			}
			got = strings.ReplaceAll(strings.Join(command[:len(command)-3], " "), filepath.Join(r.Dir(home), "node_modules/@a/pkg")+"/", "")
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.manifest, got, c.want)
		}
	}
}

// What a server has put into its HOME leads nowhere else, and holds nobody up.
func TestRunnerCommandHostile(t *testing.T) {
	r, err := runner.Parse("npx", []string{"@a/pkg"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Command(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing is installed: %v", err)
	}
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "package.json"), []byte(`{"bin": "a.js"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "a.js"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func(pack string) error{
		"the package leads outside": func(p string) error { return errors.Join(os.RemoveAll(p), os.Symlink(outside, p)) },
		"a manifest leads outside": func(p string) error {
			return relink(filepath.Join(outside, "package.json"), filepath.Join(p, "package.json"))
		},
		"the program leads outside": func(p string) error { return relink("/etc/passwd", filepath.Join(p, "a.js")) },
		"the program is a FIFO":     func(p string) error { return fifo(filepath.Join(p, "a.js")) },
		"a manifest is a FIFO":      func(p string) error { return fifo(filepath.Join(p, "package.json")) },
		"a manifest is a directory": func(p string) error {
			return errors.Join(os.Remove(p+"/package.json"), os.Mkdir(p+"/package.json", 0o700))
		},
		"a manifest has no end": func(p string) error {
			return os.WriteFile(p+"/package.json", []byte(strings.Repeat(" ", 2<<20)+`{"bin": "a.js"}`), 0o600)
		},
		"a manifest leads to itself": func(p string) error { return relink("package.json", p+"/package.json") },
	} {
		home := installed(t, r, `{"bin": "a.js"}`, "a.js", "")
		if _, err := r.Command(home); err != nil {
			t.Fatal(err)
		}
		if err := spoil(filepath.Join(r.Dir(home), "node_modules/@a/pkg")); err != nil {
			t.Fatal(err)
		}
		if command, err := r.Command(home); err == nil {
			t.Errorf("%s: it is run as %q", what, command)
		}
	}
	home := installed(t, r, `{"bin": "a.js"}`, "a.js", "")
	if err := os.WriteFile(filepath.Join(r.Dir(home), "package.json"), []byte(`{"dependencies": {"../../..": "1"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if command, err := r.Command(home); err == nil {
		t.Errorf("a name that leads outside: it is run as %q", command)
	}
}

func relink(to, path string) error { return errors.Join(os.Remove(path), os.Symlink(to, path)) }

func fifo(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) }

// What was installed for another version goes, and nothing else does.
func TestRunnerTidy(t *testing.T) {
	old, err := runner.Parse("npx", []string{"@a/pkg@1"})
	if err != nil {
		t.Fatal(err)
	}
	now, err := runner.Parse("npx", []string{"@a/pkg@2"})
	if err != nil {
		t.Fatal(err)
	}
	home := installed(t, old, `{"bin": "a.js"}`, "a.js", "")
	outside := t.TempDir()
	for path, to := range map[string]string{now.Dir(home): "", filepath.Join(home, ".weir/mine"): "", filepath.Join(home, ".weir/npx-link"): outside} {
		if to != "" {
			err = os.Symlink(to, path)
		} else {
			err = os.Mkdir(path, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(outside, "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := now.Tidy(home); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(home, ".weir/*"))
	if want := []string{filepath.Join(home, ".weir/mine"), now.Dir(home)}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
	if _, err := os.Stat(filepath.Join(outside, "kept")); err != nil {
		t.Error(err)
	}
}
