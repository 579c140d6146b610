package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

// Overlay is something of a mounted directory that is hidden: an empty directory or an empty
// file lies over it, which nobody inside can write to.
type Overlay struct {
	Host, Inside string
	Dir          bool
}

// String is HOST → INSIDE, and what lies there.
func (o Overlay) String() string {
	what := "empty"
	if o.Dir {
		what = "tmpfs"
	}
	return o.Host + " → " + o.Inside + " (" + what + ")"
}

// IgnoreName is the file of ignore patterns in a mounted directory, which hold in it alone.
const IgnoreName = ".weirignore"

// hideNext is what to do where nothing can be hidden.
const hideNext = "install bubblewrap, mount a directory without it, or mount it whole with --ignore-globally=false where the patterns are yours"

// emptyName is the file of nothing that lies over hidden files.
const emptyName = "empty"

// EmptyFile returns a file of nothing, which nobody can write to, in a directory of this user's
// alone.
func EmptyFile(dir string) (string, error) {
	path := filepath.Join(dir, emptyName)
	if info, err := os.Lstat(path); err == nil && info.Mode() == 0o444 && info.Size() == 0 && ownedByUs(info) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return "", err
	}
	if err = errors.Join(f.Chmod(0o444), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return "", fmt.Errorf("a file of nothing: %w", err)
	}
	return path, nil
}

// EmptyDir returns a directory of nothing, as EmptyFile does a file.
func EmptyDir(dir string) (string, error) {
	path := filepath.Join(dir, emptyName+"-directory")
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		if err = os.Mkdir(path, 0o555); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	var has []fs.DirEntry
	if err == nil {
		has, err = os.ReadDir(path)
	}
	if err == nil && len(has) > 0 {
		err = fmt.Errorf("%s is to be empty: remove what is in it", path)
	}
	return path, err
}

// Bounds of what is hidden.
const (
	maxOverlays = 10_000
	maxIgnore   = 64 << 10  // bytes of a file of patterns
	maxPatterns = 1_000     // of one
	maxWalk     = 1_000_000 // files of all mounts together
	walkWithin  = 10 * time.Second
)

// Overlays finds what is hidden of mounts: what the patterns of a file of the user's name
// ("" for none; one that is not there has none), and what those in a mounted directory's own
// .weirignore name. Patterns are as those of gitignore(5). A directory's own patterns hide more,
// and never show what the user's hide: a server that may write to the directory may write them.
// Where it may, its .weirignore is hidden, too, so that nobody inside can change it.
//
// What a matching link leads to is hidden where it is in a mount; a mounted file is one that
// was asked for by name, and shown. What is hidden of a mount is so, too, in the other paths that
// are shown inside as they are here. The error is a *MountError, or what is wrong with a file of
// patterns.
func Overlays(mounts []Mount, file string, shown ...string) ([]Overlay, error) {
	global, err := readIgnore(file, nil)
	if err != nil {
		return nil, err
	}
	w := &hiding{end: time.Now().Add(walkWithin), seen: map[string]bool{}}
	for _, m := range mounts {
		m, err := resolve(m)
		if err != nil {
			continue // whoever opens it says so
		}
		w.mounts = append(w.mounts, m)
	}
	w.shown = w.mounts
	for _, path := range shown {
		if m, err := resolve(Mount{Host: path}); err == nil {
			w.shown = append(w.shown, m)
		}
	}
	for _, m := range w.mounts {
		if info, err := os.Stat(m.Host); err != nil || !info.IsDir() {
			continue
		}
		own, err := readIgnore(filepath.Join(m.Host, IgnoreName), w.mounts)
		if err != nil {
			return nil, err
		}
		if m.Writable && own != nil {
			w.add(filepath.Join(m.Host, IgnoreName), false)
		}
		if len(global)+len(own) == 0 {
			continue
		}
		if err := w.walk(m, global, own); err != nil {
			return nil, &MountError{m.Host, err.Error(), "mount a directory with less in it, or name fewer files in the ignore patterns"}
		}
	}
	return w.all, nil
}

func resolve(m Mount) (_ Mount, err error) {
	if m.Inside == "" {
		m.Inside = m.Host
	}
	m.Host, err = filepath.EvalSymlinks(m.Host)
	return m, err
}

// hiding is one search.
type hiding struct {
	mounts []Mount
	shown  []Mount // these, and what is not looked through
	all    []Overlay
	seen   map[string]bool // paths inside
	walked int
	end    time.Time
}

// add hides a path of this machine that is in a mount wherever it is shown, and no other mount lies
// over that.
func (w *hiding) add(host string, dir bool) {
	mounted := slices.ContainsFunc(w.mounts, func(m Mount) bool { return host != m.Host && below(host, m.Host) })
	for i, m := range w.shown {
		if !mounted || host == m.Host || !below(host, m.Host) {
			continue
		}
		rest, err := filepath.Rel(m.Host, host)
		if err != nil {
			continue
		}
		inside := filepath.ToSlash(filepath.Join(m.Inside, rest))
		over := slices.ContainsFunc(w.mounts, func(n Mount) bool {
			return n != m && (i >= len(w.mounts) || below(n.Inside, m.Inside)) && below(inside, n.Inside) // mounts lie over all else
		})
		if !over && !w.seen[inside] {
			w.seen[inside] = true
			w.all = append(w.all, Overlay{host, inside, dir})
		}
	}
}

var (
	errTooMany = fmt.Errorf("ignore patterns name more than %d files in it", maxOverlays)
	errTooWide = fmt.Errorf("it has more files than are looked through for ignore patterns (%d, in %s)", maxWalk, walkWithin)
)

// walk looks through a mounted directory. What cannot be looked into by its user is not, since
// what runs inside has no more rights; where that is another user it may have other ones, and
// then the directory is hidden whole.
func (w *hiding) walk(m Mount, global, own []pattern) error {
	err := inPortions(m.Host, func(path string, e fs.DirEntry, err error) error {
		if w.walked++; w.walked > maxWalk || w.walked%1000 == 0 && time.Now().After(w.end) {
			return errTooWide
		}
		if len(w.all) > maxOverlays {
			return errTooMany
		}
		if path == m.Host {
			return err
		}
		rel, relErr := filepath.Rel(m.Host, path)
		if relErr != nil {
			return relErr
		}
		rel = filepath.ToSlash(rel)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			w.add(path, true)
			return fs.SkipDir
		}
		dir := e.IsDir()
		if !matches(global, rel, dir) && !matches(own, rel, dir) {
			return nil
		}
		if e.Type()&fs.ModeSymlink != 0 {
			real, err := filepath.EvalSymlinks(path)
			if err != nil {
				return nil // it leads nowhere
			}
			info, err := os.Stat(real)
			if err == nil {
				w.add(real, info.IsDir())
			}
			return nil
		}
		w.add(path, dir)
		if dir {
			return fs.SkipDir
		}
		return nil
	})
	slices.SortStableFunc(w.all, func(a, b Overlay) int { return strings.Compare(a.Inside, b.Inside) }) // those of one directory came in no order
	return err
}

// maxAhead is how many bytes the paths of directories may have that are still to be looked into.
const maxAhead = 16 << 20

// inPortions visits what is below a directory as filepath.WalkDir does, but in no order, and never
// with the names of a whole directory in memory: a server may have made as many as it likes.
func inPortions(dir string, visit fs.WalkDirFunc) error {
	ahead := 0
	for next := []string{dir}; len(next) > 0; {
		at := next[len(next)-1]
		next = next[:len(next)-1]
		ahead -= len(at)
		f, err := os.OpenFile(at, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		for err == nil {
			var some []fs.DirEntry
			some, err = f.ReadDir(1000)
			for _, e := range some {
				path := filepath.Join(at, e.Name())
				wrong := visit(path, e, nil)
				if wrong == nil && e.IsDir() {
					next = append(next, path)
					if ahead += len(path); ahead > maxAhead {
						wrong = errTooWide
					}
				}
				if wrong != nil && wrong != fs.SkipDir {
					return errors.Join(wrong, f.Close())
				}
			}
		}
		if f != nil {
			_ = f.Close()
		}
		if err != io.EOF {
			if wrong := visit(at, nil, err); wrong != nil && wrong != fs.SkipDir {
				return wrong
			}
		}
	}
	return nil
}

// pattern is one line of gitignore(5).
type pattern struct {
	match *regexp.Regexp
	show  bool // what it matches is not hidden after all
	dir   bool // it matches directories alone
}

// matches says whether patterns hide a path, relative and with slashes. The last one that
// matches decides.
func matches(all []pattern, path string, dir bool) bool {
	path = wide(path)
	for i := len(all) - 1; i >= 0; i-- {
		if p := &all[i]; (dir || !p.dir) && p.match.MatchString(path) {
			return !p.show
		}
	}
	return false
}

// wide has a character for each byte of a text: names of files are bytes, and no regular
// expression is about those.
func wide(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return text
	}
	var out strings.Builder
	for i := range len(text) {
		out.WriteRune(rune(text[i]))
	}
	return out.String()
}

// readIgnore reads a file of patterns, for a server that has mounts; nil for none.
func readIgnore(path string, mounts []Mount) ([]pattern, error) {
	if path == "" {
		return nil, nil
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	text, err := readSome(path, mounts)
	if err != nil {
		return nil, fmt.Errorf("ignore patterns in %s: %w", path, err)
	}
	var all []pattern
	for n, line := range strings.Split(string(bytes.TrimPrefix(text, []byte("\ufeff"))), "\n") {
		p, err := parsePattern(strings.TrimSuffix(line, "\r"))
		if err != nil {
			return nil, fmt.Errorf("ignore patterns in %s: line %d: %w", path, n+1, err)
		}
		if p.match != nil {
			all = append(all, p)
		}
	}
	if len(all) > maxPatterns {
		return nil, fmt.Errorf("ignore patterns in %s: more than %d", path, maxPatterns)
	}
	if all == nil {
		all = []pattern{} // the file is there
	}
	return all, nil
}

func readSome(path string, mounts []Mount) ([]byte, error) {
	f, err := OpenWithin(mounts, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(errors.New("no file"), err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxIgnore+1))
	if err == nil && len(text) > maxIgnore {
		err = fmt.Errorf("more than %d bytes", maxIgnore)
	}
	return text, err
}

// parsePattern reads a line of gitignore(5); a pattern without match for one that says nothing.
func parsePattern(line string) (p pattern, err error) {
	line = wide(line)
	for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
		line = line[:len(line)-1]
	}
	if line == "" || line[0] == '#' {
		return p, nil
	}
	if line[0] == '!' {
		p.show, line = true, line[1:]
	}
	if strings.HasSuffix(line, "/") {
		p.dir, line = true, strings.TrimRight(line, "/")
	}
	anchored := strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	if line == "" {
		return pattern{}, nil
	}
	var out strings.Builder
	out.WriteString(`(?s)^`)
	if !anchored {
		out.WriteString(`(?:.*/)?`)
	}
	for i := 0; i < len(line); {
		rest := line[i:]
		begins := i == 0 || line[i-1] == '/'
		switch {
		case begins && strings.HasPrefix(rest, "**/"):
			out.WriteString(`(?:.*/)?`)
			i += 3
		case begins && rest == "**":
			out.WriteString(`.+`)
			i += 2
		case rest[0] == '*':
			out.WriteString(`[^/]*`)
			i++
			for i < len(line) && line[i] == '*' { // more of them say no more
				i++
			}
		case rest[0] == '?':
			out.WriteString(`[^/]`)
			i++
		case rest[0] == '[':
			class, n, ok := bracket(rest)
			if !ok {
				return p, errors.New("a [ without its ]")
			}
			out.WriteString(class)
			i += n
		case rest[0] == '\\' && len(rest) == 1:
			return p, errors.New(`a \ at its end`)
		default:
			if rest[0] == '\\' {
				i++
			}
			_, size := utf8.DecodeRuneInString(line[i:])
			out.WriteString(regexp.QuoteMeta(line[i : i+size]))
			i += size
		}
	}
	out.WriteString(`$`)
	if p.match, err = regexp.Compile(out.String()); err != nil {
		return p, errors.New("no pattern")
	}
	return p, nil
}

// bracket reads [SET], as fnmatch(3) does, and never matches a slash.
func bracket(text string) (class string, n int, ok bool) {
	i, not := 1, false
	if i < len(text) && (text[i] == '!' || text[i] == '^') {
		i, not = i+1, true
	}
	var set strings.Builder
	for first := true; i < len(text); first = false {
		if text[i] == ']' && !first {
			if set.Len() == 0 {
				return "", 0, false
			}
			if not {
				return `[^/` + set.String() + `]`, i + 1, true
			}
			return `[` + set.String() + `]`, i + 1, true
		}
		if rest := text[i:]; strings.HasPrefix(rest, "[:") {
			if end := strings.Index(rest, ":]"); end > 0 {
				set.WriteString(rest[:end+2])
				i += end + 2
				continue
			}
		}
		if text[i] == '-' && !first && i+1 < len(text) && text[i+1] != ']' {
			set.WriteByte('-')
			i++
			continue
		}
		if text[i] == '\\' && i+1 < len(text) {
			i++
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		i += size
		if r != '/' {
			fmt.Fprintf(&set, `\x{%x}`, r)
		}
	}
	return "", 0, false
}
