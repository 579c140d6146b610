// Package runner reads commands of package runners (npx, uvx), whose packages are installed once
// into the HOME of a workload: its program is started without them from then on.
package runner

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// Runner is a command of npx or uvx that was read: its package is installed once into the
// HOME of its workload, and its program started without the runner from then on.
type Runner struct {
	Tool    string   // npx or uvx
	Package string   // as the installer takes it
	Bin     string   // the program that is wanted; "" for the package's own
	Args    []string // of the program

	options []string // that the installer takes as well
	at      string   // where Tool was named by a path: its directory
}

// maxManifest bounds a package.json, in bytes.
const maxManifest = 1 << 20

// Parse reads a command: a program and its arguments. For one that is not of npx or uvx,
// and for one with options that only its runner understands, it returns nil: it has to run as
// it was given. Its errors are about packages that are none.
func Parse(program string, args []string) (*Runner, error) {
	r := &Runner{Tool: filepath.Base(program)}
	if filepath.IsAbs(program) {
		r.at = filepath.Dir(program)
	}
	// With -p or --from the package has a flag, and the first word is its program.
	named, skipped, passed := []string{"-p", "--package"}, []string{"-y", "--yes"}, []string(nil)
	switch r.Tool {
	case "npx":
	case "uvx":
		named, skipped, passed = []string{"--from"}, []string{"-q", "--quiet"}, []string{"-p", "--python", "--with"}
	default:
		return nil, nil
	}
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		option, value, joined := strings.Cut(args[0], "=")
		args = args[1:]
		switch {
		case option == "--" && !joined:
		case slices.Contains(skipped, option) && !joined:
			continue
		case slices.Contains(named, option) || slices.Contains(passed, option):
			if !joined {
				if len(args) == 0 {
					return nil, fmt.Errorf("%s %s: no value follows", r.Tool, option)
				}
				value, args = args[0], args[1:]
			}
			if slices.Contains(passed, option) {
				r.options = append(r.options, option, value)
			} else if r.Package != "" {
				return nil, nil // several packages
			} else {
				r.Package = value
			}
			if err := checkWord(r.Tool, value); err != nil {
				return nil, err
			}
			continue
		default:
			return nil, nil
		}
		break
	}
	if len(args) == 0 {
		return nil, fmt.Errorf("%s: no package: name one in the arguments", r.Tool)
	}
	if err := checkWord(r.Tool, args[0]); err != nil {
		return nil, err
	}
	switch first := args[0]; {
	case r.Package != "":
		if r.Bin = first; first != filepath.Base(first) || strings.HasPrefix(first, ".") {
			return nil, fmt.Errorf("%s: %q is no name of a program", r.Tool, first)
		}
	case r.Tool == "uvx":
		r.Package, r.Bin = pythonPackage(first)
		if r.Bin == "" {
			return nil, nil // a path or a URL: uvx knows its program
		}
	default:
		r.Package = first
	}
	r.Args = args[1:]
	return r, nil
}

// checkWord refuses what an installer could take for an option, or what is no one word of a
// line.
func checkWord(tool, word string) error {
	switch {
	case word == "" || strings.HasPrefix(word, "-"):
		return fmt.Errorf("%s: %q is no package: it looks like an option", tool, word)
	case strings.ContainsFunc(word, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("%s: %q is no package: it has control characters", tool, word)
	}
	return nil
}

// pythonName is a name of PyPI's, with its extras and what follows it (PEP 508).
var pythonName = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]*)(\[[A-Za-z0-9._, -]*\])?(@|[=<>!~].*|$)`)

// pythonPackage reads NAME[EXTRAS], NAME@VERSION or NAME==VERSION: as uv installs it, and the
// program of that name.
func pythonPackage(word string) (pack, bin string) {
	m := pythonName.FindStringSubmatch(word)
	if m == nil {
		return word, ""
	}
	if version, ok := strings.CutPrefix(word, m[1]+m[2]+"@"); ok && version != "latest" {
		word = m[1] + m[2] + "==" + version
	}
	return word, m[1]
}

// Dir is where the package is installed, below a HOME: another package, and another version
// of it that was asked for, has another place.
func (r *Runner) Dir(home string) string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{r.Tool, r.Package}, r.options...), "\x00")))
	return filepath.Join(home, ".weir", r.Tool+"-"+hex.EncodeToString(sum[:6]))
}

// Install is the command that installs the package below a HOME, and what its environment
// has beside. No shell reads it, and no word of it but ours is taken for an option. again
// says that it is there, and the index only asked for a newer one: once.
func (r *Runner) Install(home string, again bool) (command, env []string) {
	dir := r.Dir(home)
	if r.Tool == "npx" {
		command = append([]string{r.beside("npm"), "install", "--prefix", dir}, npmOptions...)
		if again {
			command = append(command, "--fetch-retries=0")
		}
		pack := r.Package
		if nodePackage.MatchString(pack) { // without a version npm keeps what is there
			pack += "@latest"
		}
		return append(command, "--", pack), nil
	}
	command = append([]string{r.beside("uv"), "tool", "install", "--no-progress"}, r.options...)
	return append(command, "--", r.Package), []string{"UV_TOOL_DIR=" + filepath.Join(dir, "tools"), "UV_TOOL_BIN_DIR=" + filepath.Join(dir, "bin")}
}

// npmOptions have npm say what it fetches, and nothing else that a user did not ask for, and
// give up on an index that is not there in seconds.
var npmOptions = []string{
	"--no-audit", "--no-fund", "--no-update-notifier", "--no-progress", "--install-links", "--loglevel=http",
	"--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=10000",
}

// Needs are the programs that have to be there, as they are looked for.
func (r *Runner) Needs() []string {
	if r.Tool == "npx" {
		return []string{r.beside("node"), r.beside("npm")}
	}
	return []string{r.beside("uv")}
}

// beside is a program that belongs to the runner: by its path where that was named by one.
func (r *Runner) beside(program string) string {
	if r.at != "" {
		return filepath.Join(r.at, program)
	}
	return program
}

// Command finds the program of the installed package below a HOME, and returns the command
// that starts it. Its error says what is not there: a package that was never installed is an
// fs.ErrNotExist. What it reads is the server's, who can write to its HOME: it follows no
// link out of it, waits for nothing and reads little.
func (r *Runner) Command(home string) ([]string, error) {
	dir, err := filepath.Rel(home, r.Dir(home))
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(home)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if r.Tool == "uvx" {
		return r.python(root, home, filepath.Join(dir, "bin"))
	}
	return r.node(root, home, dir)
}

// python is Command of uvx.
func (r *Runner) python(root *os.Root, home, dir string) ([]string, error) {
	path := filepath.Join(dir, r.Bin)
	if _, err := root.Lstat(path); err != nil {
		if _, no := root.Lstat(dir); no == nil && errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s has no program %q: name the one that it has, with --from %s", r.Package, r.Bin, r.Package)
		}
		return nil, err
	}
	return append([]string{filepath.Join(home, path)}, r.Args...), nil
}

// nodePackage is a name of npm's.
var nodePackage = regexp.MustCompile(`^(@[A-Za-z0-9~_][A-Za-z0-9._~-]*/)?[A-Za-z0-9~_][A-Za-z0-9._~-]*$`)

// node is Command of npx: the package.json of the installed package names its programs.
func (r *Runner) node(root *os.Root, home, dir string) ([]string, error) {
	var top struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	if err := readManifest(root, filepath.Join(dir, "package.json"), &top); err != nil {
		return nil, err
	}
	names := slices.Collect(maps.Keys(top.Dependencies))
	if len(names) != 1 || !nodePackage.MatchString(names[0]) {
		return nil, fmt.Errorf("%s is not installed as one package", r.Package)
	}
	at := filepath.Join(dir, "node_modules", filepath.FromSlash(names[0]))
	var pack struct {
		Bin json.RawMessage `json:"bin"`
	}
	if err := readManifest(root, filepath.Join(at, "package.json"), &pack); err != nil {
		return nil, err
	}
	bin, err := r.binOf(names[0], pack.Bin)
	if err != nil {
		return nil, err
	}
	if bin = filepath.Clean(filepath.FromSlash(bin)); !filepath.IsLocal(bin) {
		return nil, fmt.Errorf("%s: its program is not a file of its own", r.Package)
	}
	path := filepath.Join(at, bin)
	first, err := readFile(root, path, 256)
	if err != nil {
		return nil, err
	}
	command := []string{filepath.Join(home, path)}
	line, _, _ := strings.Cut(string(first), "\n")
	switch strings.TrimSpace(line) {
	case "#!/usr/bin/env node", "#!/usr/bin/node":
		command = append([]string{r.beside("node")}, command...)
	default: // with another line the kernel knows what runs it, and as a program it does
		if !strings.HasPrefix(line, "#!") && bytes.IndexByte(first, 0) < 0 {
			command = append([]string{r.beside("node")}, command...)
		}
	}
	return append(command, r.Args...), nil
}

// binOf chooses the program of a package as npx does: its only one, or that of its name.
func (r *Runner) binOf(name string, raw json.RawMessage) (string, error) {
	own := name[strings.LastIndexByte(name, '/')+1:]
	var one string
	bins := map[string]string{}
	if json.Unmarshal(raw, &one) == nil && one != "" {
		bins[own] = one
	} else if err := json.Unmarshal(raw, &bins); err != nil || len(bins) == 0 {
		return "", fmt.Errorf("%s has no program to start", r.Package)
	}
	if r.Bin != "" {
		own = r.Bin
	} else if len(bins) == 1 {
		for _, bin := range bins {
			return bin, nil
		}
	}
	if bin := bins[own]; bin != "" {
		return bin, nil
	}
	all := slices.Sorted(maps.Keys(bins))
	return "", fmt.Errorf("%s has no program %q: write npx --package %s and one of %.200q", r.Package, own, r.Package, all)
}

// readManifest reads a package.json.
func readManifest(root *os.Root, path string, into any) error {
	text, err := readFile(root, path, maxManifest)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: no package.json that can be read", path)
	}
	return nil
}

// readFile reads at most so many bytes of a regular file.
func readFile(root *os.Root, path string, most int64) ([]byte, error) {
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO may be there
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", path)
	}
	return io.ReadAll(io.LimitReader(f, most))
}

// Tidy removes what else was installed for a workload below a HOME: another version, and what
// another command named.
func (r *Runner) Tidy(home string) error {
	root, err := os.OpenRoot(home)
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := root.OpenFile(".weir", os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(1000)
	_ = f.Close()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	keep := filepath.Base(r.Dir(home))
	for _, name := range names {
		if name != keep && (strings.HasPrefix(name, "npx-") || strings.HasPrefix(name, "uvx-")) {
			err = errors.Join(err, root.RemoveAll(filepath.Join(".weir", name)))
		}
	}
	return err
}
