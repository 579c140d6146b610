package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Language is one that guests are written in.
type Language struct {
	Name string
	// marks are files, one of which a directory of the language has. They may
	// be patterns.
	marks []string
	build func(ctx context.Context, dir, out string) error // nil for one whose text runs as it is
}

// Compiled says whether there is something to build.
func (l Language) Compiled() bool { return l.build != nil }

// Languages are those that `weir plugin new` knows.
func Languages() []Language {
	return []Language{
		{"go", []string{"go.mod", "*.go"}, buildGo},
		{"assemblyscript", []string{"assembly/index.ts", "asconfig.json"}, buildAssemblyScript},
		{"rust", []string{"Cargo.toml"}, buildRust},
		{"c", []string{"*.c"}, buildC},
		{"starlark", []string{"*.star"}, nil},
	}
}

// LanguageNames are the names of all languages.
func LanguageNames() []string {
	var names []string
	for _, l := range Languages() {
		names = append(names, l.Name)
	}
	return names
}

// LanguageNamed returns the language of a name.
func LanguageNamed(name string) (Language, bool) {
	for _, l := range Languages() {
		if l.Name == name {
			return l, true
		}
	}
	return Language{}, false
}

// LanguageOf finds out what a directory is written in.
func LanguageOf(dir string) (Language, error) {
	if _, err := os.Stat(dir); err != nil {
		return Language{}, err
	}
	for _, l := range Languages() {
		for _, mark := range l.marks {
			if found, _ := filepath.Glob(filepath.Join(escaped(dir), mark)); len(found) > 0 {
				return l, nil
			}
		}
	}
	return Language{}, fmt.Errorf("%s: no sources of %s: `weir plugin new` makes a directory with some", dir, strings.Join(LanguageNames(), ", "))
}

// escaped is a path in which Glob sees no pattern.
func escaped(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// Missing is a program that building needs and this machine lacks.
type Missing struct{ What, Install string }

func (m *Missing) Error() string { return m.What + " is missing: " + m.Install }

// Build compiles the guest in dir to the file out.
func Build(ctx context.Context, l Language, dir, out string) error {
	if !l.Compiled() {
		return fmt.Errorf("%s: there is nothing to build: its text runs as it is", l.Name)
	}
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	return l.build(ctx, dir, out)
}

// maxSaid is how much of what a compiler says is shown.
const maxSaid = 32 << 10

// run runs a compiler. What it says is in the error.
func run(ctx context.Context, dir string, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(said.String())
		if len(text) > maxSaid {
			text = text[:maxSaid] + "\n…"
		}
		return fmt.Errorf("%s: %w\n%s", filepath.Base(name), err, text)
	}
	return nil
}

func find(what, install string, names ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path, nil
		}
	}
	return "", &Missing{what, install}
}

func buildGo(ctx context.Context, dir, out string) error {
	return goBuild(ctx, dir, out, "-buildmode=c-shared")
}

func goBuild(ctx context.Context, dir, out string, how ...string) error {
	compiler, err := find("the Go toolchain", "install Go 1.24 or later (https://go.dev/dl), and see that `go` is in PATH", "go")
	if err != nil {
		return err
	}
	return run(ctx, dir, []string{"GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0"}, compiler,
		append(append([]string{"build", "-trimpath"}, how...), "-ldflags=-s -w", "-o", out, ".")...)
}

// clangFlags make small modules of freestanding C. clang does not link them
// itself: it would run a wasm-opt that it finds, of whatever age.
var clangFlags = []string{"--target=wasm32", "-std=c11", "-O2", "-ffreestanding", "-fno-builtin", "-nostdlib", "-mbulk-memory", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror=implicit-function-declaration", "-c"}

func buildC(ctx context.Context, dir, out string) error {
	const install = "install clang and lld (Debian: apt-get install clang lld)"
	clang, err := find("clang", install, os.Getenv("CLANG"), "clang", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14")
	if err != nil {
		return err
	}
	linker, err := find("wasm-ld", install, os.Getenv("WASM_LD"), "wasm-ld", "wasm-ld-19", "wasm-ld-18", "wasm-ld-17", "wasm-ld-16", "wasm-ld-15", "wasm-ld-14")
	if err != nil {
		return err
	}
	sources, err := filepath.Glob(filepath.Join(escaped(dir), "*.c"))
	if err != nil || len(sources) == 0 {
		return errors.Join(err, fmt.Errorf("%s: no files *.c", dir))
	}
	scratch, err := os.MkdirTemp("", "weir-build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	var objects []string
	for i, source := range sources {
		object := filepath.Join(scratch, fmt.Sprint(i, ".o"))
		args := append(append([]string{}, clangFlags...), "-I", ".", "-I", "weir", "-o", object, filepath.Base(source))
		if err := run(ctx, dir, nil, clang, args...); err != nil {
			return err
		}
		objects = append(objects, object)
	}
	return run(ctx, dir, nil, linker, append([]string{"--no-entry", "--gc-sections", "--strip-all", "-z", "stack-size=32768", "--stack-first", "-o", out}, objects...)...)
}

// ascFlags make modules that import nothing but what they call. The collector
// runs by itself; "stub" would be smaller, and never give memory back.
var ascFlags = []string{"--runtime", "incremental", "-O3", "--converge", "--noColors"}

// sdkImport finds where a guest in AssemblyScript has the SDK.
var sdkImport = regexp.MustCompile(`(?m)^export \* from "(\.[^"]*)/exports";?$`)

// abortOf is the function that the language calls where it gives up: the SDK's,
// and none for a guest without the SDK, which then ends without a word.
func abortOf(dir string) string {
	source, err := os.ReadFile(filepath.Join(dir, "assembly", "index.ts"))
	if err != nil {
		return ""
	}
	found := sdkImport.FindSubmatch(source)
	if found == nil {
		return ""
	}
	return path.Join("assembly", string(found[1]), "host", "abort")
}

// buildAssemblyScript runs the compiler that npm installed beside the sources,
// above them, or in PATH.
func buildAssemblyScript(ctx context.Context, dir, out string) error {
	const install = "run `npm install` in the directory of package.json (npm comes with Node.js: https://nodejs.org, Debian: apt-get install nodejs npm)"
	if _, err := find("node", install, "node"); err != nil {
		return err
	}
	top, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for {
		asc := filepath.Join(top, "node_modules", ".bin", "asc")
		if _, err := os.Stat(asc); err == nil {
			return compileAssemblyScript(ctx, asc, dir, out)
		}
		up := filepath.Dir(top)
		if up == top {
			break
		}
		top = up
	}
	asc, err := find("the AssemblyScript compiler", install, "asc")
	if err != nil {
		return err
	}
	return compileAssemblyScript(ctx, asc, dir, out)
}

func compileAssemblyScript(ctx context.Context, asc, dir, out string) error {
	return run(ctx, dir, nil, asc, append([]string{"assembly/index.ts", "--outFile", out, "--use", "abort=" + abortOf(dir)}, ascFlags...)...)
}

// rustTarget is what modules without an operating system are built for.
const rustTarget = "wasm32-unknown-unknown"

func buildRust(ctx context.Context, dir, out string) error {
	return cargoBuild(ctx, dir, out, "a [lib] with crate-type = [\"cdylib\"]", "--lib", rustTarget)
}

// cargoBuild makes the one module of a crate, for the first of some targets that there is a
// compiler for. What a crate needs for that is said when it makes another number of them.
func cargoBuild(ctx context.Context, dir, out, needs, what string, targets ...string) error {
	install := "`rustup target add " + targets[0] + "`, or on Debian `apt-get install cargo rustc libstd-rust-dev-wasm32`"
	rustc, rustTarget, err := rustCompiler(targets...)
	if err != nil {
		return &Missing{"a Rust compiler with the target " + targets[0], install}
	}
	// The cargo of the same place fits the compiler.
	cargo, err := find("cargo", install, os.Getenv("CARGO"), filepath.Join(filepath.Dir(rustc), "cargo"), "cargo")
	if err != nil {
		return err
	}
	scratch := strings.TrimSuffix(out, ".wasm") + ".cargo" // kept, so that only what changed is compiled anew
	flags, err := rustFlags(dir)
	if err != nil {
		return err
	}
	// The encoded form, which takes the place of RUSTFLAGS, may have spaces in a flag.
	env := []string{"RUSTC=" + rustc, "CARGO_ENCODED_RUSTFLAGS=" + strings.Join(flags, "\x1f")}
	// A crate that had another name before left its module there. Cargo puts what
	// it made in its place again, whether it compiles it anew or not.
	release := filepath.Join(escaped(scratch), rustTarget, "release", "*.wasm")
	if old, err := filepath.Glob(release); err == nil {
		for _, file := range old {
			_ = os.Remove(file) // what cannot be removed is found below
		}
	}
	if err := run(ctx, dir, env, cargo, "build", "--release", "--quiet", what, "--target", rustTarget, "--target-dir", scratch); err != nil {
		return err
	}
	made, err := filepath.Glob(release)
	if err != nil || len(made) != 1 {
		return errors.Join(err, fmt.Errorf("%s: cargo made %d modules: Cargo.toml needs %s", dir, len(made), needs))
	}
	module, err := os.ReadFile(made[0])
	if err != nil {
		return err
	}
	return os.WriteFile(out, module, 0o644)
}

// rustFlags are those that a crate in dir is compiled with. The places of panics
// in the module name files as seen from dir, and those of crates from elsewhere
// as seen from the directory of cargo: where the author keeps them is nobody's
// business.
func rustFlags(dir string) ([]string, error) {
	flags := []string{"-Clink-arg=-zstack-size=65536", "-Clink-arg=--stack-first", "-Cstrip=symbols"}
	top, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if top, err = filepath.EvalSymlinks(top); err != nil { // as the compiler sees it
		return nil, err
	}
	// The last prefix that fits counts: what is nearer comes after what is farther.
	var prefixes []string
	for from, to := top, ""; from != filepath.Dir(from); from, to = filepath.Dir(from), path.Join("..", to) {
		prefixes = append(prefixes, "--remap-path-prefix="+from+"="+to)
	}
	slices.Reverse(prefixes)
	flags = append(flags, prefixes...)
	home := os.Getenv("CARGO_HOME")
	if user, err := os.UserHomeDir(); home == "" && err == nil {
		home = filepath.Join(user, ".cargo")
	}
	if home != "" {
		flags = append(flags, "--remap-path-prefix="+home+"=cargo")
	}
	return flags, nil
}

// rustCompiler finds a compiler that has the standard library of the target.
func rustCompiler(targets ...string) (path, target string, err error) {
	for _, target := range targets {
		for _, name := range []string{os.Getenv("RUSTC"), "rustc", "/usr/bin/rustc"} {
			path, err := exec.LookPath(name)
			if name == "" || err != nil {
				continue
			}
			libs, err := exec.Command(path, "--print", "target-libdir", "--target", target).Output()
			if err != nil {
				continue
			}
			if _, err := os.Stat(strings.TrimSpace(string(libs))); err == nil {
				return path, target, nil
			}
		}
	}
	return "", "", errors.New("none")
}
