package stdio

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
)

const (
	// maxLine is how long a line of a server's log may be, and maxPerSecond how much a
	// process may print in a second.
	maxLine      = 16 << 10
	maxPerSecond = 1 << 20

	// oddLines is how many lines of stdout that are no messages are logged in a minute.
	oddLines = 100

	// lastLines is how many lines of stderr a status has, of at most saidLine bytes.
	lastLines = 10
	saidLine  = 500

	// masked is how long a secret has to be for its value to be looked for.
	masked = 8
)

// logbook takes what one process prints. It is safe for concurrent use.
type logbook struct {
	to      func(Line)
	secrets [][]byte      // the longest first
	lines   atomic.Uint64 // that were read

	mu     sync.Mutex
	last   []string  // of stderr
	second time.Time // since when printed counts
	spent  int       // bytes in it
	left   int       // lines left out since
	minute time.Time // since when odd counts
	odd    int
	unsaid int // odd lines that were only counted
}

func newLogbook(c *Config) *logbook {
	b := &logbook{to: c.Lines}
	if c.Secrets != nil {
		for _, s := range c.Secrets() {
			b.secrets = append(b.secrets, spellings(s)...)
		}
	}
	slices.SortFunc(b.secrets, func(x, y []byte) int { return cmp.Compare(len(y), len(x)) })
	return b
}

// event logs what became of a process.
func (b *logbook) event(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.say("weir", fmt.Sprintf(format, args...))
}

// say passes a line on; b.mu is held.
func (b *logbook) say(source, text string) {
	if b.to != nil {
		b.to(Line{At: time.Now(), Source: source, Text: text})
	}
}

// mask takes the secrets out of a text, which it changes.
func (b *logbook) mask(text []byte) []byte {
	for _, s := range b.secrets {
		if bytes.Contains(text, s) {
			text = bytes.ReplaceAll(text, s, []byte("REDACTED"))
		}
	}
	return text
}

// masked is why a server did not introduce itself, without the secrets that it was started with.
func (c *Config) masked(err error) error {
	b, text := newLogbook(c), err.Error()
	clean := text
	if cut, ok := strings.CutSuffix(text, "…\""); ok {
		clean = string(b.whole([]byte(cut))) + "…\""
	}
	if clean = string(b.mask([]byte(clean))); clean == text {
		return err
	}
	return &edge.Error{Kind: edge.KindOf(err), Op: "introduction", Err: errors.New(strings.TrimPrefix(clean, "call: "))}
}

// whole takes off the end of a text that was cut what may be the beginning of a secret.
func (b *logbook) whole(text []byte) []byte {
	for _, s := range b.secrets {
		for n := min(len(s)-1, len(text)); n >= masked/2; n-- {
			if bytes.HasSuffix(text, s[:n]) {
				return text[:len(text)-n]
			}
		}
	}
	return text
}

// printed takes a line of what a server prints for people: of stderr, and of stdout where no
// messages are there.
func (b *logbook) printed(source string, text []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if now.Sub(b.second) >= time.Second {
		b.leftOut()
		b.second, b.spent = now, 0
	}
	if b.spent += len(text) + 1; b.spent > maxPerSecond {
		b.left++
		return
	}
	line := string(b.mask(text[:min(len(text), maxLine+len("…"))]))
	if b.last = append(b.last, line[:min(len(line), saidLine)]); len(b.last) > lastLines {
		b.last = slices.Delete(b.last, 0, 1)
	}
	b.say(source, line)
}

// leftOut says how many lines were left out; b.mu is held.
func (b *logbook) leftOut() {
	if b.left > 0 {
		b.say("weir", fmt.Sprintf("%d lines left out: more than %d bytes in a second", b.left, maxPerSecond))
		b.left = 0
	}
}

// stray takes a line of stdout that is no message, and why it is none where that is to be told.
func (b *logbook) stray(text []byte, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if now.Sub(b.minute) >= time.Minute {
		b.onlyCounted()
		b.minute, b.odd = now, 0
	}
	if b.odd++; b.odd > oddLines {
		b.unsaid++
		return
	}
	head := bytes.Clone(text[:min(len(text), maxLine)])
	if len(head) < len(text) {
		head = b.whole(head)
	}
	b.say("stdout", "stdout: "+string(b.mask(head)))
	if why != "" {
		b.say("weir", why)
	}
}

// onlyCounted says how many lines of stdout were not logged; b.mu is held.
func (b *logbook) onlyCounted() {
	if b.unsaid > 0 {
		b.say("weir", fmt.Sprintf("%d more lines on stdout that are no messages", b.unsaid))
		b.unsaid = 0
	}
}

// end says what has only been counted so far.
func (b *logbook) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leftOut()
	b.onlyCounted()
}

// said returns the last lines of stderr.
func (b *logbook) said() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.last)
}

// read takes what is printed for people to its end. A line above maxLine is cut.
func (b *logbook) read(source string, r io.Reader) {
	l := newLines(r, maxLine, maxLine)
	for {
		text, _, err := l.next()
		b.lines.Add(1)
		if head, _, cut := isLong(err); cut {
			b.printed(source, append(b.whole(head), "…"...))
			continue
		}
		if err != nil {
			return
		}
		if text = bytes.TrimRight(text, " \t"); len(text) > 0 {
			b.printed(source, text)
		}
	}
}

// Printed passes on what a process prints that speaks to people alone, such as one that
// installs a server, to the end of both its streams, which it closes. It returns the last
// lines, ten at most.
func (c *Config) Printed(p Process) []string {
	b := newLogbook(c)
	defer b.end()
	b.both(p)
	_, _ = p.Stdout().Close(), p.Stderr().Close()
	return b.said()
}

// both takes all that a process prints, to its end.
func (b *logbook) both(p Process) {
	var all sync.WaitGroup
	all.Go(func() { b.read("stdout", p.Stdout()) })
	all.Go(func() { b.read("stderr", p.Stderr()) })
	all.Wait()
}

// lastOf returns the last line of several; "" for none.
func lastOf(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.TrimSpace(lines[len(lines)-1])
}
