// Package logs keeps the logs of a workload, in its directory: what its server says, and
// what the edge says of it. Each begins anew when it is full, and both are read as one, by time.
package logs

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Bounds of a log.
const (
	MaxSize     = 10 << 20 // bytes of one file
	files       = 3        // of one log: it, and what it was before
	maxLine     = 20 << 10 // bytes
	stamp       = "2006-01-02T15:04:05.000000Z07:00"
	followEvery = 200 * time.Millisecond
)

// The files of a workload's logs, in its directory.
const (
	server = "server.log"
	own    = "edge.log"
	Audit  = "audit.log" // which others write
)

// The sources of lines that are none of the server's.
const (
	Event = "event"
	Edge  = "edge"
)

// Line is one of a workload's log.
type Line struct {
	Time   time.Time `json:"time"`
	Source string    `json:"source"` // stderr, stdout, event, or edge
	Text   string    `json:"text"`
}

// Options say which lines of a log are wanted.
type Options struct {
	Follow bool
	Since  time.Time // zero for all
	Tail   int       // so many of the last lines, MaxTail at most; 0 for all
	Proxy  bool      // the edge's own lines alone
}

// File is a log that begins anew when it is full. It is safe for concurrent use. A line
// that cannot be written is lost: a workload does not stop for its log.
type File struct {
	path string

	mu   sync.Mutex
	file *os.File
	size int64
}

// Server and Own are the two logs in a directory: of what the server says, and of what the
// edge does.
func Server(dir string) *File { return &File{path: filepath.Join(dir, server)} }

// Own is the second of them.
func Own(dir string) *File { return &File{path: filepath.Join(dir, own)} }

// Add writes a line.
func (l *File) Add(line Line) {
	text := strings.NewReplacer("\n", " ", "\r", " ").Replace(line.Text)
	if len(text) > maxLine-64 {
		text = text[:maxLine-64]
	}
	row := line.Time.UTC().Format(stamp) + " " + line.Source + " " + text + "\n"
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil && l.size+int64(len(row)) > MaxSize {
		l.file.Close()
		l.file = nil
		Rotate(l.path)
	}
	if l.file == nil {
		f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|noFollow, 0o600)
		if err != nil {
			return
		}
		info, err := f.Stat()
		if err != nil || !info.Mode().IsRegular() {
			f.Close()
			return
		}
		l.file, l.size = f, info.Size()
	}
	n, _ := l.file.WriteString(row)
	l.size += int64(n)
}

// Close closes the file; another line opens it again.
func (l *File) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.file.Close()
		l.file = nil
	}
}

// Rotate makes room for a new file of a log.
func Rotate(path string) {
	for i := files - 1; i > 0; i-- {
		_ = os.Rename(older(path, i-1), older(path, i))
	}
}

// older is the name of a log that was begun anew so many times since.
func older(path string, times int) string {
	if times == 0 {
		return path
	}
	return path + "." + strconv.Itoa(times)
}

// tail reads the lines of a log, the oldest first, over its files, and goes on where it
// was when there are more.
type tail struct {
	path  string
	since time.Time // of the first line that is wanted; zero once there was one

	file  *os.File
	lines *bufio.Reader
	part  []byte // of a line whose end is not there yet
	next  *Line  // that was read and not taken
}

func newTail(path string, since time.Time) *tail { return &tail{path: path, since: since} }

// open opens the oldest file that has not been read: the one after the file that was, or
// the first of all.
func (t *tail) open() error {
	was := t.file
	for i := files - 1; i >= 0; i-- {
		f, err := os.OpenFile(older(t.path, i), os.O_RDONLY|noFollow, 0)
		if err != nil {
			continue
		}
		info, err := f.Stat()
		switch {
		case err != nil || !info.Mode().IsRegular():
			f.Close()
			continue
		case was == nil:
			t.file = f
		default:
			mine, err := was.Stat()
			if err == nil && os.SameFile(mine, info) { // the one after it is the next to read
				was.Close()
				was, t.file = nil, nil
			}
			f.Close()
			continue
		}
		t.lines, t.part = bufio.NewReader(t.file), nil
		return nil
	}
	if was != nil { // it was deleted meanwhile: the oldest one that is left follows
		was.Close()
		t.file = nil
		return t.open()
	}
	t.file = nil
	return io.EOF
}

// replaced reports whether the log goes on in another file than the one that is read.
func (t *tail) replaced() bool {
	mine, err := t.file.Stat()
	now, gone := os.Lstat(t.path)
	return err == nil && gone == nil && !os.SameFile(mine, now)
}

// peek returns the next line, and nil where there is none yet.
func (t *tail) peek() *Line {
	for t.next == nil {
		if t.file == nil {
			if err := t.open(); err != nil {
				return nil
			}
		}
		text, err := t.lines.ReadSlice('\n')
		if len(t.part)+len(text) <= maxLine {
			t.part = append(t.part, text...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && t.replaced():
			// Nothing more is written there; but something may have been since its end was read.
			if more, _ := t.lines.Peek(1); len(more) > 0 {
				continue
			}
			if t.open() != nil {
				return nil
			}
			continue
		case err != nil:
			return nil
		}
		if l, ok := parseLine(string(t.part)); ok && !l.Time.Before(t.since) {
			t.next, t.since = &l, time.Time{} // what follows it in the file is later, whatever its time
		}
		t.part = t.part[:0]
	}
	return t.next
}

func (t *tail) close() {
	if t.file != nil {
		t.file.Close()
	}
}

// parseLine reads what File writes.
func parseLine(row string) (l Line, ok bool) {
	when, rest, ok := strings.Cut(strings.TrimSuffix(row, "\n"), " ")
	if !ok {
		return l, false
	}
	source, text, _ := strings.Cut(rest, " ")
	at, err := time.Parse(stamp, when)
	return Line{Time: at, Source: source, Text: text}, err == nil
}

// merged takes the next line of several logs by time; nil where there is none yet. Which
// says whether a line is wanted.
func merged(logs []*tail, wanted func(*Line) bool) *Line {
	for {
		var first *tail
		for _, t := range logs {
			if l := t.peek(); l != nil && (first == nil || l.Time.Before(first.next.Time)) {
				first = t
			}
		}
		if first == nil {
			return nil
		}
		l := first.next
		first.next = nil
		if wanted(l) {
			return l
		}
	}
}

// MaxTail is how many of the last lines of a log may be asked for.
const MaxTail = 100_000

// Read tells the lines of the logs in a directory. done ends it where it follows, and so does
// the end of the directory.
func Read(dir string, o Options, done <-chan struct{}, line func(Line)) {
	logs := []*tail{newTail(filepath.Join(dir, own), o.Since)}
	wanted := func(l *Line) bool { return o.Proxy || l.Source != Edge }
	if !o.Proxy {
		logs = append(logs, newTail(filepath.Join(dir, server), o.Since))
	}
	defer func() {
		for _, t := range logs {
			t.close()
		}
	}()
	over := func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
	var last []Line // a ring, where the last lines alone are wanted
	for n := 0; ; n++ {
		l := merged(logs, wanted)
		switch {
		case over():
			return
		case l == nil:
			for i := range last {
				line(last[(n+i)%len(last)])
			}
		case o.Tail == 0:
			line(*l)
			continue
		case len(last) < o.Tail:
			last = append(last, *l)
			continue
		default:
			last[n%o.Tail] = *l
			continue
		}
		break
	}
	// What comes from now on is new, whatever the clock was set back to.
	for _, t := range logs {
		t.since = time.Time{}
	}
	for o.Follow {
		select {
		case <-done:
			return
		case <-time.After(followEvery):
		}
		for l := merged(logs, wanted); l != nil && !over(); l = merged(logs, wanted) {
			line(*l)
		}
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			return // the workload was removed
		}
	}
}

// Files are the names of all files that logs in a directory may have.
func Files() (all []string) {
	for _, log := range []string{server, own, Audit} {
		for i := range files {
			all = append(all, older(log, i))
		}
	}
	return all
}
