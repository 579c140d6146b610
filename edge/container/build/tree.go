package build

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge/container"
)

// Bounds of a directory that is built.
const (
	maxTreeBytes   = 512 << 20
	maxTreeEntries = 100_000
	maxIgnore      = 256 << 10
	maxPatterns    = 1000
)

// versioned are directories of version control, which no build needs.
var versioned = []string{".git", ".hg", ".svn", ".bzr", ".jj"}

// tree is a directory of the user's as an archive: with the same files always the same bytes.
type tree struct {
	file   *os.File
	digest string
}

// readTree archives a directory. What .dockerignore in it names is left out, and so is what
// version control keeps there; a link that leads out of it is an error.
func readTree(dir, spool string) (_ *tree, err error) {
	refuse := func(next, format string, args ...any) error {
		return &container.Error{Kind: container.Refused, What: "go://" + filepath.ToSlash(dir) + ": " + fmt.Sprintf(format, args...), Next: next}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, refuse("name the directory of a Go module", "%v", cause(err))
	}
	defer root.Close()
	if info, err := root.Stat("go.mod"); err != nil || !info.Mode().IsRegular() {
		return nil, refuse(nextModule(dir), "%v", errNoModule)
	}
	ignored, err := readIgnore(root)
	if err != nil {
		return nil, refuse("mend it", "%v", err)
	}
	t := &tree{}
	if t.file, err = openSpool(spool); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	sum := sha256.New()
	w := tar.NewWriter(io.MultiWriter(t.file, sum))
	entries, size := 0, int64(0)
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if d.IsDir() && slices.Contains(versioned, d.Name()) || ignored.skips(name) {
			if d.IsDir() && !ignored.exceptions {
				return fs.SkipDir
			}
			if !d.IsDir() || slices.Contains(versioned, d.Name()) {
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			}
		}
		if entries++; entries > maxTreeEntries {
			return refuse("leave some out with .dockerignore", "it has more than %d files", maxTreeEntries)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		h := &tar.Header{Name: name, Mode: 0o644, Uid: owner, Gid: owner, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		switch info.Mode().Type() {
		case fs.ModeDir:
			h.Typeflag, h.Name, h.Mode = tar.TypeDir, name+"/", 0o755
			return w.WriteHeader(h)
		case fs.ModeSymlink:
			target, err := root.Readlink(name)
			if err != nil {
				return err
			}
			if filepath.IsAbs(target) || !filepath.IsLocal(filepath.Join(filepath.Dir(name), target)) {
				return refuse("put what it names there, or leave it out with .dockerignore", "the link %s leads out of it", name)
			}
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, filepath.ToSlash(target), 0o777
			return w.WriteHeader(h)
		case 0:
		default:
			return refuse("leave it out with .dockerignore", "%s is no file", name)
		}
		if size += info.Size(); size > maxTreeBytes {
			return refuse("leave some out with .dockerignore", "it has more than %d MiB", maxTreeBytes>>20)
		}
		if info.Mode()&0o111 != 0 {
			h.Mode = 0o755
		}
		h.Typeflag, h.Size = tar.TypeReg, info.Size()
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		f, err := openFile(root, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, cause(err))
		}
		defer f.Close()
		if n, err := io.Copy(w, io.LimitReader(f, info.Size())); err != nil || n != info.Size() {
			return fmt.Errorf("%s changed while it was read", name)
		}
		return nil
	})
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, err
	}
	t.digest = hex.EncodeToString(sum.Sum(nil))
	return t, nil
}

// openFile opens a file, and nothing else: what was one when it was looked at may be a named pipe
// by now, which would never end.
func openFile(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(errors.New("no file"), err, f.Close())
	}
	return f, nil
}

// owner is the user that commands of a build run as.
const owner = 65532

func cause(err error) error {
	for {
		inner, ok := err.(interface{ Unwrap() error })
		if !ok || inner.Unwrap() == nil {
			return err
		}
		err = inner.Unwrap()
	}
}

// nextModule is where the module of a directory without one may be.
func nextModule(dir string) string {
	at, err := filepath.Abs(dir)
	for ; err == nil && at != filepath.Dir(at); at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return "name the directory of the module, " + at + ", which has to be a program itself"
		}
	}
	return "make it a module: go mod init"
}

func (t *tree) close() { closeSpool(t.file) }

// open returns the archive from its beginning.
func (t *tree) open() (io.Reader, error) {
	_, err := t.file.Seek(0, io.SeekStart)
	return t.file, err
}

// ignore are the patterns of a .dockerignore; the last one that fits decides.
type ignore struct {
	patterns   []*regexp.Regexp
	keeps      []bool // of each pattern: it began with !
	exceptions bool
}

// readIgnore reads .dockerignore; without one it ignores nothing.
func readIgnore(root *os.Root) (*ignore, error) {
	i := &ignore{}
	f, err := openFile(root, ".dockerignore")
	if errors.Is(err, fs.ErrNotExist) {
		return i, nil
	}
	if err != nil {
		return nil, fmt.Errorf(".dockerignore: %w", cause(err))
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxIgnore+1))
	if err != nil {
		return nil, fmt.Errorf(".dockerignore: %w", cause(err))
	}
	if len(text) > maxIgnore {
		return nil, fmt.Errorf(".dockerignore has more than %d bytes", maxIgnore)
	}
	for line := range strings.Lines(strings.TrimPrefix(string(text), "\ufeff")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pattern, keeps := strings.CutPrefix(line, "!")
		one, err := ignorePattern(strings.TrimSpace(pattern))
		if err != nil {
			return nil, fmt.Errorf(".dockerignore: %.100q is no pattern", line)
		}
		if len(i.patterns) == maxPatterns {
			return nil, fmt.Errorf(".dockerignore has more than %d patterns", maxPatterns)
		}
		i.patterns, i.keeps, i.exceptions = append(i.patterns, one), append(i.keeps, keeps), i.exceptions || keeps
	}
	return i, nil
}

// ignorePattern is a pattern as Docker reads them: of the whole path, ** for any number of
// directories, and with a directory all that is in it.
func ignorePattern(text string) (*regexp.Regexp, error) {
	text = strings.TrimPrefix(path.Clean("/"+text), "/")
	var b strings.Builder
	b.WriteString("^")
	for len(text) > 0 {
		switch {
		case strings.HasPrefix(text, "**/"):
			b.WriteString("(.*/)?")
			text = text[3:]
			continue
		case strings.HasPrefix(text, "**"):
			b.WriteString(".*")
			text = text[2:]
			continue
		case text[0] == '*':
			b.WriteString("[^/]*")
		case text[0] == '?':
			b.WriteString("[^/]")
		case text[0] == '[' && strings.IndexByte(text, ']') > 1:
			end := strings.IndexByte(text, ']')
			b.WriteString(text[:end+1])
			text = text[end+1:]
			continue
		case text[0] == '\\' && len(text) > 1:
			b.WriteString(regexp.QuoteMeta(text[1:2]))
			text = text[2:]
			continue
		default:
			b.WriteString(regexp.QuoteMeta(text[:1]))
		}
		text = text[1:]
	}
	b.WriteString("(/.*)?$")
	return regexp.Compile(b.String())
}

func (i *ignore) skips(name string) (skip bool) {
	for at, pattern := range i.patterns {
		if pattern.MatchString(name) {
			skip = !i.keeps[at]
		}
	}
	return skip
}
