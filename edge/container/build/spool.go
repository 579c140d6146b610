package build

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/container"
)

// Bounds of what a build makes.
const (
	maxAppBytes   = 4 << 30
	maxAppEntries = 500_000
	maxAppName    = 4096
)

// The kinds of what is in a layer.
const (
	kindFile = tar.TypeReg
	kindDir  = tar.TypeDir
	kindLink = tar.TypeSymlink
	kindHard = tar.TypeLink
)

// spool is what a build has made: the files in one file of this machine, and what is known of
// each. Packages of strangers were at work where it comes from.
type spool struct {
	file    *os.File
	entries []entry // sorted by name
}

// entry is one of them.
type entry struct {
	name     string // app/…
	kind     byte
	mode     int64
	target   string // of a link
	at, size int64  // of a file, in the spool
}

// openSpool makes a file without a name.
func openSpool(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, ".weir-build-")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(f.Name()) // where that cannot be, it goes when it is closed
	return f, nil
}

func closeSpool(f *os.File) {
	_ = f.Close()
	_ = os.Remove(f.Name())
}

// readApp takes the archive of /app. What no program needs is left out: devices, sockets,
// owners, times, and rights beyond who may run a file.
func readApp(r io.Reader, dir string) (_ *spool, err error) {
	s := &spool{}
	if s.file, err = openSpool(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	t, at := tar.NewReader(r), int64(0)
	for {
		h, err := t.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			return nil, fmt.Errorf("what was built: %w", err)
		}
		name := path.Clean(h.Name)
		switch {
		case name != "app" && !strings.HasPrefix(name, "app/") || len(name) > maxAppName:
			return nil, fmt.Errorf("what was built has a file %.100q, which is not below %s", h.Name, appDir)
		case strings.HasPrefix(path.Base(name), ".wh."):
			return nil, fmt.Errorf("what was built has a file %.100q, a name that layers of images read as a deletion", path.Base(name))
		case len(s.entries) >= maxAppEntries:
			return nil, fmt.Errorf("what was built has more than %d files", maxAppEntries)
		}
		e := entry{name: name, kind: h.Typeflag, mode: 0o644}
		if h.Mode&0o111 != 0 {
			e.mode = 0o755
		}
		switch h.Typeflag {
		case kindDir:
			e.mode = 0o755
		case kindFile:
			if at+h.Size > maxAppBytes {
				return nil, errTooLarge
			}
			n, err := io.Copy(s.file, t)
			if err != nil {
				return nil, err
			}
			e.at, e.size = at, n
			at += n
		case kindLink:
			e.mode, e.target = 0o777, h.Linkname
		case kindHard:
			if e.target = path.Clean(h.Linkname); !strings.HasPrefix(e.target, "app/") {
				return nil, fmt.Errorf("what was built has a link to %.100q, which is not below %s", h.Linkname, appDir)
			}
		default:
			continue
		}
		s.entries = append(s.entries, e)
	}
	// A file system in memory that is mounted there takes the rights of the directory.
	s.entries = append(s.entries, entry{name: strings.TrimPrefix(home, "/"), kind: kindDir, mode: 0o1777})
	slices.SortFunc(s.entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	for i := 1; i < len(s.entries); i++ {
		if s.entries[i].name == s.entries[i-1].name {
			return nil, fmt.Errorf("what was built has two files %.100q", s.entries[i].name)
		}
	}
	// A hard link stands behind what it names, or is none. In the layer it is a file of its own.
	for i, e := range s.entries {
		if e.kind != kindHard {
			continue
		}
		of, ok := s.find(e.target)
		if !ok || of.kind != kindFile {
			return nil, fmt.Errorf("what was built has a link to %.100q, which is no file", e.target)
		}
		if at += of.size; at > maxAppBytes {
			return nil, errTooLarge
		}
		s.entries[i] = entry{name: e.name, kind: kindFile, mode: of.mode, at: of.at, size: of.size}
	}
	return s, nil
}

func (s *spool) close() { closeSpool(s.file) }

func (s *spool) find(name string) (entry, bool) {
	i, ok := slices.BinarySearchFunc(s.entries, name, func(e entry, name string) int { return strings.Compare(e.name, name) })
	if !ok {
		return entry{}, false
	}
	return s.entries[i], true
}

// read reads the first bytes of a file, and follows no link.
func (s *spool) read(name string, most int64) ([]byte, error) {
	e, ok := s.find(path.Clean(name))
	if !ok || e.kind != kindFile {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return io.ReadAll(io.NewSectionReader(s.file, e.at, min(e.size, most)))
}

// holder is the first file of it in which one of the words stands, by its content, its name or
// what it leads to; "" for none.
func (s *spool) holder(ctx context.Context, words []string) (string, error) {
	most := 0
	for _, word := range words {
		most = max(most, len(word))
	}
	if most == 0 {
		return "", nil
	}
	part := make([]byte, 1<<20+most)
	for _, e := range s.entries {
		kept := copy(part, e.name+"\x00"+e.target+"\x00")
		for r := io.NewSectionReader(s.file, e.at, e.size); ; {
			if ctx.Err() != nil {
				return "", context.Cause(ctx)
			}
			n, err := io.ReadFull(r, part[kept:])
			has := part[:kept+n]
			if slices.ContainsFunc(words, func(word string) bool { return bytes.Contains(has, []byte(word)) }) {
				return e.name, nil
			}
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				break
			} else if err != nil {
				return "", err
			}
			kept = copy(part, has[len(has)-most+1:]) // a word may begin in there
		}
	}
	return "", nil
}

// layer makes a layer of it: of the same files always the same bytes.
func (s *spool) layer(ctx context.Context) (container.Layer, error) {
	sum := &counted{Hash: sha256.New()}
	write := func(to io.Writer) error { return s.write(ctx, to) }
	if err := write(sum); err != nil {
		return container.Layer{}, err
	}
	return container.Layer{DiffID: "sha256:" + hex.EncodeToString(sum.Sum(nil)), Size: sum.n, Write: write}, nil
}

func (s *spool) write(ctx context.Context, to io.Writer) error {
	w := tar.NewWriter(to)
	for _, e := range s.entries {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h := &tar.Header{Typeflag: e.kind, Name: e.name, Mode: e.mode, Size: e.size, Linkname: e.target, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		if e.kind == kindDir {
			h.Name += "/"
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if e.kind != kindFile {
			continue
		}
		if _, err := io.Copy(w, io.NewSectionReader(s.file, e.at, e.size)); err != nil {
			return err
		}
	}
	return w.Close()
}

// counted is a hash that knows how much it was given.
type counted struct {
	hash.Hash
	n int64
}

func (c *counted) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return c.Hash.Write(p)
}

var errTooLarge = fmt.Errorf("what was built has more than %d bytes", int64(maxAppBytes))

var errNoModule = errors.New("it has no go.mod")
