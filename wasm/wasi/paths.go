package wasi

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Flags of path_open (typenames.witx, oflags) and of looking a path up.
const (
	openCreate    = 1
	openDirectory = 2
	openExclusive = 4
	openTruncate  = 8

	followLinks = 1
)

// Flags of setting times (typenames.witx, fstflags).
const (
	setAccess    = 1
	setAccessNow = 2
	setModify    = 4
	setModifyNow = 8
)

// path finds the directory that a path is below, and the path. os.Root keeps it below: what
// this refuses is only what it would not say so well.
func (s *System) path(m Memory, fd, p, n uint64) (*file, string, errno) {
	f := s.files[uint32(fd)]
	switch {
	case f == nil:
		return nil, "", eBadf
	case f.root == nil:
		return nil, "", eNotdir
	case uint32(n) > maxPath:
		return nil, "", eNameTooBig
	}
	b, ok := m.Read(uint32(p), uint32(n))
	switch {
	case !ok:
		return nil, "", eFault
	case len(b) == 0:
		return nil, "", eNoent
	}
	path := string(b)
	s.spend(10_000 + 2_000*uint64(strings.Count(path, "/")))
	if strings.HasPrefix(path, "/") || filepath.VolumeName(filepath.FromSlash(path)) != "" {
		return nil, "", eNotcapable
	}
	if strings.ContainsRune(path, 0) {
		return nil, "", eInval
	}
	return f, filepath.FromSlash(path), success
}

// changed is path for what changes something.
func (s *System) changed(m Memory, fd, p, n uint64) (*file, string, errno) {
	f, path, number := s.path(m, fd, p, n)
	if number == success && !f.writes {
		return nil, "", eRofs
	}
	return f, path, number
}

// look is the stat of a path: of what a link leads to, or of the link.
func look(root *os.Root, path string, follow bool) (fs.FileInfo, error) {
	if follow {
		return root.Stat(path)
	}
	return root.Lstat(path)
}

func (s *System) pathOpen(m Memory, a []uint64) errno {
	f, path, n := s.path(m, a[0], a[2], a[3])
	if n != success {
		return n
	}
	follow, how, rights, flags := a[1]&followLinks != 0, a[4], a[5], uint16(a[7])
	write := rights&rightWrite != 0 || how&openTruncate != 0
	read := rights&rightRead != 0 || !write
	// Nothing makes a directory here; the rest of the flags says when to write through.
	if flags&^(flagAppend|flagNonblock|2|8|16) != 0 || how&openCreate != 0 && how&openDirectory != 0 {
		return eInval
	}
	if _, ok := m.Read(uint32(a[8]), 4); !ok {
		return eFault
	}
	// 1. What is there. Only files and directories are opened: to open a named pipe or a
	// device may wait for ever, and may do something.
	info, err := look(f.root, path, follow)
	switch {
	case err == nil && info.Mode()&fs.ModeSymlink != 0:
		return eLoop
	case err == nil && how&openExclusive != 0 && how&openCreate != 0:
		return eExist
	case err == nil && info.IsDir():
		if rights&rightWrite != 0 && how&openDirectory == 0 || how&(openCreate|openTruncate) != 0 {
			return eIsdir
		}
		return s.openDir(m, f, path, a[8])
	case err == nil && !info.Mode().IsRegular():
		return eAcces
	case how&openDirectory != 0 && err == nil:
		return eNotdir
	case err != nil && (how&openCreate == 0 || numberOf(err) != eNoent):
		return numberOf(err)
	}
	// 2. What is asked for, of what the directory allows.
	if (write || err != nil) && !f.writes {
		return eRofs
	}
	mode := os.O_RDONLY
	switch {
	case write && read:
		mode = os.O_RDWR
	case write:
		mode = os.O_WRONLY
	}
	if how&openCreate != 0 && f.writes { // what was there may be gone by now
		mode |= os.O_CREATE
	}
	if how&openExclusive != 0 {
		mode |= os.O_EXCL
	}
	if how&openTruncate != 0 {
		mode |= os.O_TRUNC
	}
	if flags&flagAppend != 0 && write {
		mode |= os.O_APPEND
	}
	// 3. The file, which may be another one by now.
	opened, err := f.root.OpenFile(path, mode|withoutWaiting, 0o666)
	if err != nil {
		return numberOf(err)
	}
	if info, err = opened.Stat(); err != nil || !info.Mode().IsRegular() {
		opened.Close()
		return eAcces
	}
	return s.opened(m, &file{os: opened, given: f.given, below: true, reads: read, writes: write, flags: flags & (flagAppend | flagNonblock)}, a[8])
}

// openDir opens a directory: what is looked up below it stays below it. What has become a
// named pipe meanwhile is none, which the dot behind it asks for: to open one waits for ever.
func (s *System) openDir(m Memory, f *file, path string, p uint64) errno {
	root, err := f.root.OpenRoot(path + "/.")
	if err != nil {
		return numberOf(err)
	}
	return s.opened(m, &file{root: root, given: f.given, below: true, reads: true, writes: f.writes}, p)
}

func (s *System) opened(m Memory, f *file, p uint64) errno {
	fd, n := s.add(f)
	if n == success {
		n = put32(m, p, fd)
	} else {
		f.close()
	}
	return n
}

func (s *System) pathFileStat(m Memory, a []uint64) errno {
	f, path, n := s.path(m, a[0], a[2], a[3])
	if n != success {
		return n
	}
	b, ok := m.Read(uint32(a[4]), 64)
	if !ok {
		return eFault
	}
	info, err := look(f.root, path, a[1]&followLinks != 0)
	if err == nil {
		putStat(b, s.deviceOf(f), info)
	}
	return numberOf(err)
}

func (s *System) pathSetTimes(m Memory, a []uint64) errno {
	f, path, n := s.changed(m, a[0], a[2], a[3])
	if n != success {
		return n
	}
	flags := a[6]
	if flags > 15 || flags&setAccess != 0 && flags&setAccessNow != 0 || flags&setModify != 0 && flags&setModifyNow != 0 || a[4] > 1<<62 || a[5] > 1<<62 {
		return eInval
	}
	pick := func(given, now bool, t uint64) time.Time {
		switch {
		case given:
			return time.Unix(0, int64(t))
		case now:
			return time.Now()
		}
		return time.Time{} // stays
	}
	return numberOf(f.root.Chtimes(path, pick(flags&setAccess != 0, flags&setAccessNow != 0, a[4]), pick(flags&setModify != 0, flags&setModifyNow != 0, a[5])))
}

func (s *System) pathReadlink(m Memory, a []uint64) errno {
	f, path, n := s.path(m, a[0], a[1], a[2])
	if n != success {
		return n
	}
	out, ok := m.Read(uint32(a[3]), uint32(a[4]))
	if !ok {
		return eFault
	}
	to, err := f.root.Readlink(path)
	if err != nil {
		return numberOf(err)
	}
	// Where a link leads to outside is none of the instance's business.
	if !filepath.IsLocal(filepath.Join(filepath.Dir(path), to)) || filepath.IsAbs(to) {
		return eNotcapable
	}
	return put32(m, a[5], uint32(copy(out, filepath.ToSlash(to))))
}

func (s *System) pathMkdir(m Memory, a []uint64) errno {
	f, path, n := s.changed(m, a[0], a[1], a[2])
	if n != success {
		return n
	}
	return numberOf(f.root.Mkdir(path, 0o777))
}

func (s *System) pathRmdir(m Memory, a []uint64) errno {
	f, path, n := s.changed(m, a[0], a[1], a[2])
	if n != success {
		return n
	}
	return s.remove(f, path, true)
}

func (s *System) pathUnlink(m Memory, a []uint64) errno {
	f, path, n := s.changed(m, a[0], a[1], a[2])
	if n != success {
		return n
	}
	return s.remove(f, path, false)
}

func (s *System) remove(f *file, path string, dir bool) errno {
	info, err := f.root.Lstat(path)
	switch {
	case err != nil:
		return numberOf(err)
	case dir && !info.IsDir():
		return eNotdir
	case !dir && info.IsDir():
		return eIsdir
	}
	return numberOf(f.root.Remove(path))
}

// pathRename renames below one directory: to another that was given would be to copy.
func (s *System) pathRename(m Memory, a []uint64) errno {
	from, old, n := s.changed(m, a[0], a[1], a[2])
	if n != success {
		return n
	}
	to, new, n := s.changed(m, a[3], a[4], a[5])
	switch {
	case n != success:
		return n
	case from != to:
		return eXdev
	}
	return numberOf(from.root.Rename(old, new))
}
