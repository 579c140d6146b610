// Package workload is what belongs to MCP servers that Weir keeps for a user: what stands for
// one on a command line (form.go, flags.go) and becomes its manifest (manifest.go), what is
// written and read of it elsewhere (export.go, import.go, runconfig.go), and the keeper that
// starts them and brings them back (manager.go), with its API and client.
package workload

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/runner"
)

// What stands for a server on a command line, and the name that it gives it.

// Server is a server as it was named. One of URL and Image is set.
type Server struct {
	URL   string   // of a server that runs elsewhere
	Image string   // spec.image of an MCPServer: exec:///PATH, a package runner by its name, wasm:///PATH, wasm://HOST/REPOSITORY…, wasm+https://…, or an image
	Args  []string // of the program
	Name  string   // that it gives the workload
}

// runners are the programs that fetch a package and run it, which a manifest names without a
// path: where they are is another matter on each machine.
var runners = []string{"npx", "uvx", "pipx", "bunx"}

// ReadServer reads what a command line names: a word before --, or nothing, and the words
// after it. look finds a program as exec.LookPath does; has says whether the container engine
// has an image, and is asked about words that could be anything. Errors are *Error.
func ReadServer(word string, args []string, look func(string) (string, error), has func(string) (bool, error)) (Server, error) {
	switch {
	case word != "":
		return readWord(word, args, look, has)
	case len(args) == 0:
		return Server{}, &Error{Code: CodeInvalid, Message: "no server is named", Next: "`weir run -- COMMAND` for a process of this machine, or `weir run URL`"}
	}
	return readCommand(args, look)
}

// readWord reads a word before --.
func readWord(word string, args []string, look func(string) (string, error), has func(string) (bool, error)) (Server, error) {
	scheme, rest, named := strings.Cut(word, "://")
	if file, _, _ := strings.Cut(word, "#"); !named && strings.HasSuffix(file, ".wasm") {
		if !strings.HasPrefix(word, ".") && !filepath.IsAbs(word) {
			word = "./" + word
		}
		return readModule(word, word, args)
	}
	if !named {
		return readImage(word, args, look, has)
	}
	switch scheme {
	case "http", "https":
		return readURL(word, args)
	case "exec":
		if !filepath.IsAbs(rest) {
			return Server{}, &Error{Code: CodeInvalid, Message: "exec://" + edge.Brief(rest) + " has no absolute path", Next: "write exec:///PATH"}
		}
		return readCommand(append([]string{rest}, args...), look)
	case runner.SchemeNPX, runner.SchemeUVX, runner.SchemeGo:
		return readSource(word, args)
	case "wasm":
		return readModule(rest, word, args)
	case "wasm+https":
		return readModuleURL(word, args)
	}
	return Server{}, &Error{Code: CodeInvalid, Message: edge.Brief(word) + " is no server: " + edge.Brief(scheme) + ":// is none of the forms that are known", Next: "write an image, a URL, or a command after --"}
}

// readImage reads a word that nothing else stands for.
func readImage(word string, args []string, look func(string) (string, error), has func(string) (bool, error)) (Server, error) {
	if !isImage(word) {
		return Server{}, &Error{Code: CodeInvalid, Message: edge.Brief(word) + " is no image", Next: "write NAME, NAME:TAG or NAME@DIGEST, or a command after --"}
	}
	s := Server{Image: word, Args: slices.Clone(args), Name: runner.PlainName(imageName(word))}
	if slices.Contains(runners, word) { // which a manifest would take for a program
		return Server{}, &Error{Code: CodeInvalid, Message: word + " is a package runner of this machine", Next: localForm("", word, args)}
	}
	if strings.ContainsAny(word, "/:@") {
		return s, nil
	}
	there, err := has(word)
	if known := new(Error); errors.As(err, &known) {
		if _, missing := look(word); missing == nil {
			known.Next = localForm("", word, args)
		}
	}
	if err != nil || there {
		return s, err
	}
	e := &Error{Code: CodeInvalid, Message: "the container engine has no image " + edge.Brief(word) + ", and no registry of servers an entry of that name", Next: "write " + edge.Brief(word) + ":latest for an image to be fetched, or a command after --"}
	if _, err := look(word); err == nil {
		e.Next = localForm("", word, args)
	}
	return Server{}, e
}

// imagePattern is what names of images are made of; the engine is stricter.
var imagePattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._:@-]*(/[a-zA-Z0-9][a-zA-Z0-9._:@-]*)*$`)

func isImage(text string) bool { return len(text) <= 512 && imagePattern.MatchString(text) }

// imageName is the last part of an image, without tag and digest.
func imageName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	name, _, _ := strings.Cut(path.Base(image), ":")
	return name
}

// localForm is what to type for the same server as a process of this machine.
func localForm(runner, what string, args []string) string {
	words := append(strings.Fields("weir run -- "+runner), what)
	return edge.Brief(strings.Join(append(words, args...), " "))
}

// readModule reads a file with a module of WebAssembly, or the name of one in a registry, after
// wasm://. What follows # is for the plan to judge.
func readModule(file, word string, args []string) (Server, error) {
	path, digest, _ := strings.Cut(file, "#")
	path = filepath.FromSlash(path)
	if first, _, _ := strings.Cut(filepath.ToSlash(path), "/"); !filepath.IsAbs(path) && first != "." && first != ".." {
		ref, ok := runner.RegistryModule(word)
		if !ok {
			return Server{}, &Error{Code: CodeInvalid, Message: edge.Brief(word) + " names no module", Next: "write wasm://./FILE.wasm for a file, wasm://HOST/REPOSITORY[:TAG][@DIGEST] for one in a registry, or wasm+https://HOST/PATH#sha256=DIGEST"}
		}
		return Server{Image: word, Args: slices.Clone(args), Name: runner.PlainName(imageName(ref))}, nil
	}
	path, err := filepath.Abs(path)
	if err == nil {
		var info fs.FileInfo
		if info, err = os.Stat(path); err == nil && !info.Mode().IsRegular() {
			err = errors.New("it is no file")
		}
	}
	if err != nil {
		return Server{}, &Error{Code: CodeInvalid, Message: edge.Brief(word) + ": " + cause(err).Error(), Next: "name the file of a module of WASI preview 1"}
	}
	s := Server{Image: "wasm://" + filepath.ToSlash(path), Args: slices.Clone(args), Name: moduleName(path)}
	if digest != "" {
		s.Image += "#" + digest
	}
	return s, nil
}

// readModuleURL reads the URL of a module, which the plan judges.
func readModuleURL(word string, args []string) (Server, error) {
	u, err := url.Parse(strings.TrimPrefix(word, "wasm+"))
	if err == nil && u.User != nil {
		return Server{}, &Error{Code: CodeInvalid, Message: "the URL of the module holds a user or a password", Next: "take them out: a module is fetched without a credential"}
	}
	if err != nil || u.Hostname() == "" || !strings.HasPrefix(u.Fragment, "sha256=") {
		return Server{}, &Error{Code: CodeInvalid, Message: edge.Brief(word) + " does not say what to fetch and its digest", Next: "write wasm+https://HOST/PATH#sha256=DIGEST"}
	}
	return Server{Image: word, Args: slices.Clone(args), Name: moduleName(u.Path)}, nil
}

// moduleName is the name that the file of a module gives a workload.
func moduleName(file string) string {
	return runner.PlainName(strings.TrimSuffix(path.Base(filepath.ToSlash(file)), ".wasm"))
}

// readSource reads what an image is built of. A directory is written with its absolute path.
func readSource(word string, args []string) (Server, error) {
	source, err := runner.ParseSource(word)
	if err != nil {
		return Server{}, &Error{Code: CodeInvalid, Message: err.Error(), Next: "weir build --help"}
	}
	if err := source.Locate(); err != nil {
		return Server{}, &Error{Code: CodeInvalid, Message: edge.Brief(word) + ": " + err.Error(), Next: "name the directory of a Go module: go://./DIR"}
	}
	return Server{Image: source.String(), Args: slices.Clone(args), Name: runner.PlainName(source.Name())}, nil
}

// isBuilt reports whether spec.image is what an image is built of.
func isBuilt(image string) bool {
	source, err := runner.ParseSource(image)
	return source != nil || err != nil
}

// LocalForm is what to type for the same server as a process of this machine, where its image
// would be built; "" where it would not.
func LocalForm(image string, args []string) string {
	source, err := runner.ParseSource(image)
	if source == nil || err != nil {
		return ""
	}
	if source.Dir != "" { // a sandbox does not see it: the program is made before
		dir, err := filepath.Abs(source.Dir)
		if err != nil {
			return ""
		}
		source.Dir = dir
		name := runner.PlainName(source.Name())
		return edge.Clean("go build -C " + dir + " -o " + name + " . && " + strings.Join(append([]string{"weir run --", filepath.Join(dir, name)}, args...), " "))
	}
	local := source.Local()
	return localForm(strings.Join(local[:len(local)-1], " "), local[len(local)-1], args)
}

// isModule reports whether spec.image is a module of WebAssembly.
func isModule(image string) bool {
	return strings.HasPrefix(image, "wasm://") || strings.HasPrefix(image, "wasm+https://")
}

func readURL(text string, args []string) (Server, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "":
		return Server{}, &Error{Code: CodeInvalid, Message: edge.Brief(text) + " is no URL", Next: "write http://HOST:PORT/PATH, or https"}
	case u.User != nil:
		return Server{}, &Error{Code: CodeInvalid, Message: "the URL holds a user or a password", Next: "give a credential with --remote-auth-bearer-token-file or --remote-forward-headers-secret"}
	case u.Fragment != "":
		return Server{}, &Error{Code: CodeInvalid, Message: "the URL has a fragment, which no server sees", Next: "leave out # and what follows"}
	case len(args) > 0:
		return Server{}, &Error{Code: CodeInvalid, Message: "a URL takes no arguments: " + edge.Brief(strings.Join(args, " ")), Next: "leave out -- and what follows"}
	}
	labels := strings.Split(strings.TrimSuffix(u.Hostname(), "."), ".")
	name := labels[max(0, len(labels)-2)]
	if _, err := strconv.Atoi(labels[len(labels)-1]); err == nil || strings.Contains(u.Hostname(), ":") {
		name = u.Hostname() // an address
	}
	return Server{URL: text, Name: runner.PlainName(name)}, nil
}

// readCommand reads a command of this machine.
func readCommand(words []string, look func(string) (string, error)) (Server, error) {
	program := words[0]
	if _, err := runner.Parse(program, words[1:]); err != nil {
		return Server{}, &Error{Code: CodeInvalid, Message: err.Error(), Next: "name the package as its index does"}
	}
	s := Server{Args: slices.Clone(words[1:]), Name: commandName(words)}
	if slices.Contains(runners, program) {
		s.Image = program
		return s, nil
	}
	at, err := look(program)
	if err == nil {
		at, err = filepath.Abs(at)
	}
	if err != nil {
		return Server{}, &Error{Code: CodeInvalid, Message: "there is no program " + edge.Brief(program) + " here that can be run", Next: "correct its name, or write its path"}
	}
	s.Image = "exec://" + filepath.ToSlash(at)
	return s, nil
}

// hosts are the programs that a server is not called by, but by what they run: with the
// flags of theirs that take a value.
var hosts = map[string][]string{
	"npx": {"-p", "--package", "-c", "--call"}, "bunx": {"-p", "--package"}, "uvx": {"--from", "--with", "-p", "--python", "--index-url"}, "pipx": {"--spec", "--python"},
	"node": {"-r", "--require", "--import", "--env-file"}, "python": {"-W", "-X"}, "python3": {"-W", "-X"}, "deno": {"--config", "-c"}, "bun": {}, "go": {},
}

// commandName is the name that a command gives a workload: that of its program, or of the
// package or script that this runs.
func commandName(words []string) string {
	program := strings.TrimSuffix(filepath.Base(words[0]), ".exe")
	valued, ok := hosts[program]
	if !ok {
		return runner.PlainName(program)
	}
	for i := 1; i < len(words); i++ {
		switch word := words[i]; {
		case slices.Contains(valued, word):
			i++
		case word == "-m" && i+1 < len(words): // a module of Python
			return runner.PlainName(words[i+1])
		case word == "run" && (program == "pipx" || program == "deno" || program == "bun" || program == "go"):
		case strings.HasPrefix(word, "-") || word == "":
		default:
			return runner.PlainName(packageName(word))
		}
	}
	return runner.PlainName(program)
}

// packageName is the last part of a package or a path, without its version.
func packageName(word string) string {
	word, _, _ = strings.Cut(word, "==")
	if i := strings.LastIndexByte(word, '@'); i > 0 {
		word = word[:i]
	}
	word = path.Base(filepath.ToSlash(word))
	switch ext := path.Ext(word); ext {
	case ".js", ".mjs", ".cjs", ".ts", ".py", ".go":
		word = strings.TrimSuffix(word, ext)
	}
	return word
}

// How long a label may be is asked apart: a bound in the expression is a copy of the class for
// each byte, which every start of the program would pay for.
var labels = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// IsName reports whether a text may be the name of a workload, a group or a server: small
// letters, digits and - between them, at most 63 (a label of RFC 1123).
func IsName(text string) bool { return len(text) <= 63 && labels.MatchString(text) }

// numbered is the nth workload of a name: NAME, NAME-2, NAME-3.
func numbered(name string, n int) string {
	if n < 2 {
		return name
	}
	end := "-" + strconv.Itoa(n)
	return strings.TrimRight(name[:min(len(name), 63-len(end))], "-") + end
}
