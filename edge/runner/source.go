package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// The schemes of what an image is built of.
const (
	SchemeNPX = "npx" // a package of npm
	SchemeUVX = "uvx" // a package of PyPI
	SchemeGo  = "go"  // a program of a Go module, or of a directory of this machine
)

// Source is what an image is built of. Each part of it is one word that no tool takes for an
// option.
type Source struct {
	Scheme  string
	Package string // as its index names it, with extras; "" for a directory
	Version string // as it was given; "" for the newest one
	Dir     string // a directory of this machine, cleaned; "" for a package
}

// What the parts of a source are made of. Names are as their indexes have them (npm: RFC of
// package names; PyPI: PEP 508; Go: the reference of modules, "Module paths and versions"). How
// long they may be is asked apart: a bound in an expression is a copy of the class for each
// byte, which every start of the program would pay for.
var (
	npmVersion    = regexp.MustCompile(`^[~^]?[A-Za-z0-9][A-Za-z0-9._+-]*$`)
	npmExact      = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+([-+][A-Za-z0-9.+-]+)?$`)
	pythonSource  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(\[[A-Za-z0-9][A-Za-z0-9._,-]*\])?$`)
	pythonVersion = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+!-]*$`)
	pythonExact   = regexp.MustCompile(`^[0-9]`)
	goPath        = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*(\.[A-Za-z0-9-]+)+(/[A-Za-z0-9_~][A-Za-z0-9._~-]*)*$`)
	goVersion     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]*$`)
	goExact       = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+([-+][A-Za-z0-9.+-]+)?$`)
)

const (
	maxSource = 512 // bytes of a package's name, or of a module's path
	maxWord   = 128 // bytes of a version, of a tag, of a name of PyPI or of its extras, or of a system's package
)

// ParseSource reads npx://PKG[@VERSION], uvx://PKG[@VERSION|==VERSION], go://MODULE[@VERSION]
// and go://DIR, where DIR begins with ./, ../ or /. For a word of another scheme it returns
// nil. Its errors say what to write.
func ParseSource(word string) (*Source, error) {
	scheme, rest, found := strings.Cut(word, "://")
	if !found {
		return nil, nil
	}
	s := &Source{Scheme: scheme}
	var name, version *regexp.Regexp
	var usage string
	switch scheme {
	case SchemeNPX:
		name, version, usage = nodePackage, npmVersion, "npx://PACKAGE, npx://@SCOPE/PACKAGE, and @VERSION after it"
		s.Package, s.Version = cutVersion(rest)
	case SchemeUVX:
		name, version, usage = pythonSource, pythonVersion, "uvx://PACKAGE, uvx://PACKAGE[EXTRA], and @VERSION or ==VERSION after it"
		if before, after, ok := strings.Cut(rest, "=="); ok {
			s.Package, s.Version = before, after
		} else {
			s.Package, s.Version = cutVersion(rest)
		}
	case SchemeGo:
		if first, _, _ := strings.Cut(filepath.ToSlash(rest), "/"); first == "." || first == ".." || filepath.IsAbs(rest) {
			if len(rest) > 4096 || strings.ContainsFunc(rest, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				return nil, fmt.Errorf("go://: the directory has control characters, or more than 4096 bytes")
			}
			s.Dir = filepath.Clean(rest)
			return s, nil
		}
		name, version, usage = goPath, goVersion, "go://HOST/MODULE, and @VERSION after it, or go://./DIR"
		s.Package, s.Version = cutVersion(rest)
	default:
		return nil, nil
	}
	given := strings.HasPrefix(rest, s.Package+"@") || strings.HasPrefix(rest, s.Package+"==")
	if project, extras, _ := strings.Cut(s.Package, "["); scheme == SchemeUVX && max(len(project), len(extras)) > maxWord {
		name = nil
	}
	for part := range strings.SplitSeq(s.Package, "/") {
		if strings.HasSuffix(part, ".") || part == ".." {
			name = nil
		}
	}
	switch {
	case len(s.Package) > maxSource || name == nil || !name.MatchString(s.Package):
		return nil, fmt.Errorf("%.100q is no package of %s: write %s", s.Package, scheme, usage)
	case given && (len(s.Version) > maxWord || !version.MatchString(s.Version)):
		return nil, fmt.Errorf("%.100q is no version of %s: write %s", s.Version, s.Package, usage)
	}
	if s.Version == "latest" {
		s.Version = ""
	}
	return s, nil
}

// cutVersion takes the version from a package that may begin with @ itself.
func cutVersion(text string) (name, version string) {
	if i := strings.LastIndexByte(text, '@'); i > 0 {
		return text[:i], text[i+1:]
	}
	return text, ""
}

// Locate makes the directory of a source absolute. It fails where there is none by that path.
func (s *Source) Locate() error {
	if s.Dir == "" {
		return nil
	}
	dir, err := filepath.Abs(s.Dir)
	if err != nil {
		return err
	}
	info, err := os.Stat(dir)
	var failed *fs.PathError
	switch {
	case errors.As(err, &failed):
		return failed.Err
	case err != nil:
		return err
	case !info.IsDir():
		return errors.New("it is no directory")
	}
	s.Dir = dir
	return nil
}

// String is the source as ParseSource reads it.
func (s *Source) String() string {
	switch {
	case s.Dir != "":
		dir := filepath.ToSlash(s.Dir)
		if !filepath.IsAbs(s.Dir) && dir != ".." && !strings.HasPrefix(dir, "../") {
			dir = "./" + dir
		}
		return s.Scheme + "://" + dir
	case s.Version != "":
		return s.Scheme + "://" + s.Package + "@" + s.Version
	}
	return s.Scheme + "://" + s.Package
}

// Exact reports whether the source always means the same code, by the word of its index.
func (s *Source) Exact() bool {
	switch {
	case s.Dir != "":
		return false
	case s.Scheme == SchemeNPX:
		return npmExact.MatchString(s.Version)
	case s.Scheme == SchemeUVX:
		return pythonExact.MatchString(s.Version)
	}
	return goExact.MatchString(s.Version)
}

// majorSuffix is the last part of a module of a major version above 1.
var majorSuffix = regexp.MustCompile(`^v[0-9]+$`)

// Name is what people would call it: the last part of the package or the directory, without
// extras.
func (s *Source) Name() string {
	if s.Dir != "" {
		return path.Base(filepath.ToSlash(s.Dir))
	}
	name, _, _ := strings.Cut(s.Package, "[")
	last := path.Base(name)
	if s.Scheme == SchemeGo && majorSuffix.MatchString(last) {
		last = path.Base(path.Dir(name))
	}
	return last
}

// Wanted is the package as its installer takes it, in one word.
func (s *Source) Wanted() string {
	switch {
	case s.Scheme == SchemeUVX && s.Version != "":
		return s.Package + "==" + s.Version
	case s.Scheme == SchemeUVX:
		return s.Package
	case s.Version == "":
		return s.Package + "@latest"
	}
	return s.Package + "@" + s.Version
}

// Local are the words that run the same as a process of this machine, of a package.
func (s *Source) Local() []string {
	switch {
	case s.Scheme == SchemeNPX:
		return []string{"npx", "-y", strings.TrimSuffix(s.Wanted(), "@latest")}
	case s.Scheme == SchemeUVX:
		return []string{"uvx", s.Wanted()}
	}
	return []string{"go", "run", s.Wanted()}
}

// BinOf chooses the program of a package of npm as npx does: its only one, or that of its
// name. bin is that member of its package.json.
func BinOf(pack string, bin []byte) (string, error) {
	return (&Runner{Package: pack}).binOf(pack, bin)
}

// IsNodePackage reports whether a text is a name of npm's.
func IsNodePackage(name string) bool { return nodePackage.MatchString(name) }

// What the base of an image is made of, and packages of its system. Engines and package
// managers are stricter.
var (
	baseImage     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]*(/[A-Za-z0-9][A-Za-z0-9._:@-]*)*$`)
	systemPackage = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+:~=-]*$`)
)

// maxSystemPackages is how many packages of its system an image may be built with.
const maxSystemPackages = 64

// CheckBase refuses what is no image to build on, and what is no package of its system.
func CheckBase(image string, packages []string) error {
	if image != "" && (len(image) > maxSource || !baseImage.MatchString(image)) {
		return fmt.Errorf("%.100q is no image: write NAME, NAME:TAG or NAME@DIGEST", image)
	}
	if len(packages) > maxSystemPackages {
		return fmt.Errorf("an image is built with %d packages of its system at most", maxSystemPackages)
	}
	for _, name := range packages {
		if len(name) > maxWord || !systemPackage.MatchString(name) {
			return fmt.Errorf("%.100q is no package of a system: write its name, or NAME=VERSION", name)
		}
	}
	return nil
}

// PlainName makes of any text a name of small letters, digits and -, of 63 characters at most:
// a workload or a part of an image's name may be called so.
func PlainName(text string) string {
	var b strings.Builder
	for _, c := range strings.ToLower(text) {
		switch {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			b.WriteRune(c)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() == 63 {
			break
		}
	}
	if name := strings.Trim(b.String(), "-"); name != "" {
		return name
	}
	return "server"
}

// registryModule is the name of a module of WebAssembly at a registry, which always names its
// host: by a dot, a port, or as localhost.
var registryModule = regexp.MustCompile(`^(localhost|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+:[0-9]{1,5}|\[[0-9A-Fa-f:]+\])(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?(@sha256:[0-9a-f]{64})?$`)

// RegistryModule reads wasm://HOST/REPOSITORY[:TAG][@DIGEST], and returns the name of the module
// as registries have it. false: that is no name of one.
func RegistryModule(word string) (ref string, ok bool) {
	ref, ok = strings.CutPrefix(word, "wasm://")
	if !ok || len(ref) > maxSource || !registryModule.MatchString(ref) {
		return ref, false
	}
	name, _, _ := strings.Cut(path.Base(ref), "@")
	_, tag, _ := strings.Cut(name, ":")
	return ref, len(tag) <= maxWord
}
