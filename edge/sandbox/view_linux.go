package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// view is what is seen inside, of the files of this machine.
type view struct {
	system   []shown  // read-only
	hidden   []string // files and directories in there of which nothing is
	prefixes []string // where the program is; read-only
	home     *os.File // HOME, writable
	mounts   []opened
	overlays []Overlay
	empty    string // a file that lies over hidden ones; "" where there are none
}

// shown is a path of the system that is the same inside; one that is a link stays one.
type shown struct{ path, link string }

// opened is a mount, opened once: whatever its path leads to later, this is what is shown.
type opened struct {
	Mount
	file *os.File // O_PATH
}

func (v *view) close() {
	if v.home != nil {
		_ = v.home.Close()
	}
	for _, m := range v.mounts {
		_ = m.file.Close()
	}
}

// view looks at all that a sandbox is to show, and refuses what it may not.
func (m *Machine) view(c *Config) (v *view, err error) {
	v = &view{}
	defer func() {
		if err != nil {
			v.close()
		}
	}()
	v.system, v.hidden = systemView()
	if !c.judged {
		if v.home, err = openPath(c.Home); err != nil {
			return v, fmt.Errorf("sandbox of %s: home: %w", c.Name, err)
		}
	}
	unsafe := newUnsafe(c)
	v.prefixes, _ = prefixes(c, unsafe)
	for _, mount := range c.Mounts {
		o, err := open(mount, unsafe)
		if err != nil {
			return v, err
		}
		if slices.ContainsFunc(v.mounts, func(has opened) bool { return has.Inside == o.Inside }) || o.Inside == c.Home {
			_ = o.file.Close()
			return v, &MountError{mount.Host, o.Inside + " is mounted twice", "give one of the two"}
		}
		v.mounts = append(v.mounts, o)
	}
	for _, path := range c.Writable {
		if err := checkInside(path); err != nil {
			return v, &MountError{path, err.Error(), "name another path"}
		}
	}
	shown := slices.Clone(v.prefixes)
	for _, e := range v.system {
		if e.link == "" {
			shown = append(shown, e.path)
		}
	}
	if v.overlays, err = Overlays(c.Mounts, c.Ignore, shown...); err != nil {
		return v, fmt.Errorf("sandbox of %s: %w", c.Name, err)
	}
	if slices.ContainsFunc(v.overlays, func(o Overlay) bool { return !o.Dir }) {
		v.empty, err = EmptyFile(m.cache)
	}
	return v, err
}

// mountsIn reports whether a mount in a directory has a path.
func (v *view) mountsIn(dir, path string) bool {
	return slices.ContainsFunc(v.mounts, func(m opened) bool { return below(m.Inside, dir) && below(path, m.Inside) })
}

// placed refuses mounts, and memory, for which there would have to be made a place in what is
// read-only inside, or which would hide the home; and mounts at a link, which bubblewrap does not make.
func (v *view) placed(home string, writable []string) error {
	type layer struct {
		inside, from string // from is the path of this machine; "" for memory
		made         bool   // places can be made
	}
	layers := []layer{{home, home, true}}
	for _, e := range v.system {
		layers = append(layers, layer{e.path, e.path, false})
	}
	for _, path := range v.prefixes {
		layers = append(layers, layer{path, path, false})
	}
	wanted := slices.Clone(writable)
	for _, path := range writable {
		layers = append(layers, layer{inside: path})
	}
	for _, m := range v.mounts {
		layers, wanted = append(layers, layer{m.Inside, m.Host, m.Writable}), append(wanted, m.Inside)
	}
	for i, path := range wanted {
		if below(home, path) {
			return &MountError{path, "it would hide the home of the server", "name another path inside"}
		}
		var in layer
		for _, l := range layers {
			if l.inside != path && below(path, l.inside) && len(l.inside) > len(in.inside) {
				in = l
			}
		}
		if slices.ContainsFunc(v.system, func(e shown) bool { return e.path == path && e.link != "" }) {
			in = layer{path, path, false}
		}
		if in.from == "" {
			continue
		}
		at, up := in.from+strings.TrimPrefix(path, in.inside), path
		info, err := os.Lstat(at)
		for j := len(in.inside) + 1; in.made && j < len(path); j++ { // a link on the way, which the server may have made, leads outside while places are made
			if path[j] != '/' {
				continue
			}
			if way, wrong := os.Lstat(in.from + path[len(in.inside):j]); wrong == nil && way.Mode()&os.ModeSymlink != 0 {
				at, up, info, err = in.from+path[len(in.inside):j], path[:j], way, nil
				break
			}
		}
		switch {
		case errors.Is(err, fs.ErrNotExist) && !in.made:
			return &MountError{path, fmt.Sprintf("%s is read-only inside, and has no such path", in.inside), "name another path inside"}
		case err == nil && info.Mode()&os.ModeSymlink != 0 && (i >= len(writable) || up != path):
			to, _ := os.Readlink(at)
			if !filepath.IsAbs(to) {
				to = filepath.Join(filepath.Dir(up), to)
			}
			to = clean(to) // a server may have made it
			what := "it"
			if up != path {
				what = clean(up)
			}
			return &MountError{path, what + " is a link to " + to + " inside", "name " + to + clean(path[len(up):]) + ", or another path inside"}
		}
	}
	return nil
}

// plain refuses what only a mount namespace can show.
func (v *view) plain(grade Grade, writable []string) error {
	if len(writable) > 0 {
		return &MountError{writable[0], fmt.Sprintf("the sandbox %s has no memory at a path (--writable)", grade), "mount a directory at its own path, or install bubblewrap"}
	}
	if len(v.overlays) > 0 {
		return &MountError{v.overlays[0].Host, fmt.Sprintf("ignore patterns name it, and the sandbox %s hides nothing of a mounted directory", grade), hideNext}
	}
	for _, m := range v.mounts {
		if m.Inside != m.Host {
			return &MountError{m.Host, fmt.Sprintf("the sandbox %s shows it at no other path than its own, and %s was asked for", grade, m.Inside), "mount it at its own path, or install bubblewrap"}
		}
	}
	return nil
}

// systemView is what every sandbox shows of the system: programs, libraries, and of /etc
// what they are configured by.
func systemView() (all []shown, hidden []string) {
	paths := []string{
		"/usr", "/bin", "/sbin", "/opt", "/etc/ssl", "/etc/ca-certificates", "/etc/alternatives", "/etc/localtime",
		"/etc/pki/ca-trust", "/etc/pki/java", "/etc/pki/tls/cert.pem", "/etc/pki/tls/certs", "/etc/pki/tls/openssl.cnf", "/etc/pki/tls/openssl.d", "/etc/crypto-policies", // of Fedora
		"/etc/fonts", "/etc/mime.types", "/etc/os-release", "/etc/protocols", "/etc/services", "/etc/timezone",
	}
	for _, pattern := range []string{"/lib*", "/etc/ld.so.*", "/etc/java", "/etc/java-*"} {
		more, _ := filepath.Glob(pattern) // the pattern is right
		paths = append(paths, more...)
	}
	for _, path := range paths {
		info, err := os.Lstat(path)
		switch {
		case err != nil:
		case info.Mode()&os.ModeSymlink != 0 && filepath.Dir(path) == "/":
			if target, err := os.Readlink(path); err == nil {
				all = append(all, shown{path, target})
			}
		default: // a link in /etc is shown as what it leads to
			if _, err := os.Stat(path); err == nil {
				all = append(all, shown{path: path})
			}
		}
	}
	// Keys and passwords of this machine's, which root could read.
	const password = "management/jmxremote.password"
	for _, pattern := range []string{"/etc/ssl/private", "/etc/java-*/" + password, "/etc/java/*/*/conf/" + password} {
		more, _ := filepath.Glob(pattern)
		hidden = append(hidden, more...)
	}
	return all, hidden
}

// inSystem says whether a path is shown already.
func inSystem(path string) bool {
	return slices.ContainsFunc([]string{"/usr", "/opt", "/bin", "/sbin"}, func(dir string) bool { return below(path, dir) }) || strings.HasPrefix(path, "/lib")
}

// ofKernel says whether a path is where nothing of a program's is shown.
func ofKernel(path string) bool {
	return slices.ContainsFunc([]string{"/etc", "/proc", "/dev", "/sys", "/run"}, func(dir string) bool { return below(path, dir) })
}

// prefixes are where the program of a sandbox is: the directory that it was installed in, or
// where that shows too much, its file alone. Each link on the way counts, since programs
// look for their own beside the path by which they were called; but none that the server may
// have made: unfollowed is the one at which that ends, "" for none.
func prefixes(c *Config, unsafe *unsafePaths) (all []string, unfollowed string) {
	path := c.Command[0]
	if !strings.Contains(path, "/") {
		found, err := exec.LookPath(path)
		if err != nil {
			return nil, "" // what starts it says so
		}
		path = found
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.Dir, path)
	}
	for range 40 { // as many links as the kernel follows
		path = filepath.Clean(path)
		info, err := os.Lstat(path)
		if err != nil || below(path, c.Home) { // a link there is the server's, and shows nothing
			return all, ""
		}
		show, servers := ofServer(c, path)
		if !servers {
			show = prefix(path, unsafe)
		}
		if show != "" && !inSystem(show) && !ofKernel(show) && !slices.Contains(all, show) {
			all = append(all, show)
		}
		if info.Mode()&os.ModeSymlink == 0 {
			return all, ""
		}
		if servers {
			return all, path
		}
		target, err := os.Readlink(path)
		if err != nil {
			return all, ""
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return all, ""
}

// ofServer says whether a program is in a mounted directory that the server may write to. Of that
// no more is shown than the directory itself, and nothing where a link leads into the midst of it:
// whatever is below may be a link to something else by the time that it is shown.
func ofServer(c *Config, path string) (show string, is bool) {
	dir, rest := into(c.Mounts, filepath.Dir(path))
	if dir == "" {
		return "", false
	}
	show = strings.TrimSuffix(filepath.Dir(path), rest[1:])
	if _, rest = into(c.Mounts, show); rest != "." {
		show = ""
	}
	return show, true
}

// prefix is what is shown for a program at a path.
func prefix(path string, unsafe *unsafePaths) string {
	dir := filepath.Dir(path)
	if filepath.Base(dir) == "bin" {
		dir = filepath.Dir(dir)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil || unsafe.why(real) != "" || slices.Contains([]string{"/tmp", "/var/tmp", "/var"}, real) {
		return path
	}
	return dir
}

// open opens a mount, and refuses what must not be shown.
func open(m Mount, unsafe *unsafePaths) (opened, error) {
	if m.Inside == "" {
		m.Inside = m.Host
	}
	o := opened{Mount: m}
	if !filepath.IsAbs(m.Host) || strings.ContainsRune(m.Host, 0) {
		return o, &MountError{m.Host, "not an absolute path", "give one"}
	}
	if err := checkInside(m.Inside); err != nil {
		return o, &MountError{m.Host, err.Error(), "name another path inside"}
	}
	f, err := openPath(m.Host)
	if err != nil {
		return o, &MountError{m.Host, err.Error(), "create it first, or correct the path"}
	}
	if why := unsafe.judge(m.Host, f); why != "" {
		_ = f.Close()
		return o, &MountError{m.Host, why, "name a directory with less in it, or allow it with --allow-unsafe-mount " + m.Host}
	}
	o.file = f
	return o, nil
}

// openPath opens a directory or file for no more than to be shown.
func openPath(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// checkInside says what is wrong with a path inside.
func checkInside(path string) error {
	switch {
	case !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0):
		return fmt.Errorf("%q inside is no clean absolute path", path)
	case path == "/":
		return fmt.Errorf("/ inside is the sandbox's own")
	}
	for _, ours := range []string{"/proc", "/dev", "/sys", insideHelper} {
		if below(path, ours) {
			return fmt.Errorf("%s inside is the sandbox's own", ours)
		}
	}
	switch path {
	case "/run", "/etc", "/etc/passwd", "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf":
		return fmt.Errorf("%s inside is the sandbox's own", path)
	}
	return nil
}

// judge says why an open mount is not shown; "" when it may be.
func (u *unsafePaths) judge(given string, f *os.File) string {
	var stat unix.Stat_t
	real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err == nil {
		err = unix.Fstat(int(f.Fd()), &stat)
	}
	if err != nil {
		return err.Error()
	}
	asked := u.asked(given, real)
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR, unix.S_IFREG:
	case unix.S_IFSOCK:
		if !asked {
			return "it is a socket"
		}
	default:
		if !asked {
			return "it is no directory and no file"
		}
	}
	return u.judgePath(given, real)
}
