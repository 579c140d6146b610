package sandbox

import (
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// below says whether a path is a directory or in it.
func below(path, dir string) bool {
	path, dir = filepath.ToSlash(path), filepath.ToSlash(dir)
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// unsafePaths are what no mount shows unless it is asked for by name.
type unsafePaths struct {
	whole   []string // and what they are in: these show all that is in them
	deep    []string // and all in them, too
	allowed []string
}

func newUnsafe(c *Config) *unsafePaths {
	u := &unsafePaths{
		whole:   []string{"/root"},
		deep:    []string{"/proc", "/sys", "/dev", "/run", "/var/run", "/etc"},
		allowed: c.AllowUnsafe,
	}
	for _, home := range homes() {
		u.whole = append(u.whole, home)
		for _, name := range []string{".ssh", ".gnupg", ".aws", ".kube", ".docker", ".config"} {
			u.deep = append(u.deep, filepath.Join(home, name))
		}
	}
	for _, name := range []string{"XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "GNUPGHOME"} {
		if dir := os.Getenv(name); filepath.IsAbs(dir) {
			u.deep = append(u.deep, dir)
		}
	}
	u.deep = append(u.deep, c.Protected...)
	for _, list := range []*[]string{&u.whole, &u.deep} {
		for _, path := range *list { // as they are named, and where they lead
			if real, err := filepath.EvalSymlinks(path); err == nil && real != path {
				*list = append(*list, real)
			}
		}
	}
	return u
}

// homes are the user's home as the environment has it, and as the system does: the first may be
// missing, or that of somebody else (sudo).
func homes() (all []string) {
	home, _ := os.UserHomeDir() // "" where there is none
	all = append(all, home)
	if is, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil {
		all = append(all, is.HomeDir)
	}
	return slices.DeleteFunc(all, func(home string) bool { return !filepath.IsAbs(home) })
}

// why says why a path, in which no link is left, is not shown; "" when it may be.
func (u *unsafePaths) why(real string) string {
	for _, path := range slices.Concat(u.whole, u.deep) {
		if below(path, real) {
			if real == path {
				return "it has secrets or controls this machine"
			}
			return "it holds " + path
		}
	}
	for _, path := range u.deep {
		if below(real, path) {
			return "it is in " + path
		}
	}
	return ""
}

// asked reports whether a mount was allowed by name: as it was given, or as the path in which
// no link is left.
func (u *unsafePaths) asked(given, real string) bool {
	return slices.ContainsFunc(u.allowed, func(path string) bool {
		return filepath.Clean(path) == filepath.Clean(given) || filepath.Clean(path) == real
	})
}

// judgePath says why a path, in which no link is left, is not shown; "" when it may be.
func (u *unsafePaths) judgePath(given, real string) string {
	if u.asked(given, real) {
		return ""
	}
	why := u.why(real)
	if why != "" && real != filepath.Clean(given) {
		return "it leads to " + real + ": " + why
	}
	return why
}

// OpenDir opens a directory that is mounted into a server which runs in this process, and
// refuses what no sandbox would show. AllowUnsafe and Protected of c count.
func OpenDir(c Config, m Mount) (*os.Root, error) {
	if !filepath.IsAbs(m.Host) || strings.ContainsRune(m.Host, 0) {
		return nil, &MountError{m.Host, "not an absolute path", "give one"}
	}
	root, err := os.OpenRoot(m.Host + "/.") // by the dot it has to be a directory: to open a named pipe waits
	if err != nil {
		return nil, &MountError{m.Host, cause(err), "mount a directory that is there: a server in WebAssembly is given directories alone"}
	}
	if why := judgeRoot(newUnsafe(&c), m.Host, root); why != "" {
		_ = root.Close()
		return nil, &MountError{m.Host, why, "name a directory with less in it, or allow it with --allow-unsafe-mount " + m.Host}
	}
	return root, nil
}

// cause is an error of a file without its path, which is said already.
func cause(err error) string {
	if e, ok := err.(*os.PathError); ok {
		err = e.Err
	}
	return err.Error()
}
