package edge

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Finding is what a check found out about a subject, for who runs the edge. The
// package that owns a thing says what can be wrong with it; `weir doctor` asks.
type Finding struct {
	Step    string // of `weir doctor`
	Subject string // of the step: a file, SERVER/BACKEND, an address
	Level   Level
	Class   string // one of those below; "" where nothing is wrong
	Cause   string
	Next    string
	Detail  string // what else there is to know
}

// Level is how much a finding matters. Only a problem is a failure.
type Level int

// The levels.
const (
	LevelOK Level = iota
	LevelNote
	LevelWarning
	LevelProblem
)

func (l Level) String() string { return [...]string{"ok", "note", "warning", "problem"}[l] }

// The classes of findings, each with an exit code of `weir doctor`.
const (
	ClassSettings    = "settings"
	ClassManifest    = "manifest"
	ClassFile        = "file"
	ClassAddress     = "address"
	ClassClock       = "clock"
	ClassSecret      = "secret"
	ClassStore       = "store"
	ClassDNS         = "dns"
	ClassRefused     = "refused"
	ClassTimeout     = "timeout"
	ClassTLS         = "tls"
	ClassPrivate     = "private"
	ClassUnreachable = "unreachable"
	ClassCredential  = "credential"
	ClassProtocol    = "protocol"
	ClassTransport   = "transport"
	ClassFailing     = "failing"
	ClassLists       = "lists"
	ClassAnswers     = "answers"
	ClassNames       = "names"
	ClassDefinition  = "definition"
)

// Fine is the finding that nothing is wrong.
func Fine(detail string) Finding { return Finding{Detail: detail} }

// Problem is a finding that has to be mended; cause is a format.
func Problem(class, next, cause string, args ...any) Finding {
	return Finding{Level: LevelProblem, Class: class, Next: next, Cause: fmt.Sprintf(cause, args...)}
}

// Warning is a finding that may have to be; cause is a format.
func Warning(class, next, cause string, args ...any) Finding {
	f := Problem(class, next, cause, args...)
	f.Level = LevelWarning
	return f
}

// ExpiresSoon is how long before its end a certificate is spoken of.
const ExpiresSoon = 14 * 24 * time.Hour

// Day writes a moment, such as the end of a certificate.
func Day(t time.Time) string { return t.UTC().Format(time.DateTime) + " UTC" }

// Count writes a number of things: 1 server, 2 servers.
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Clean removes from a text the control characters by which it could steer a
// terminal, all but line ends and tabs, and the marks of direction by which it
// would be read in another order than it is written.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return r
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return -1
		}
		return r
	}, s)
}

// Brief is what a stranger says on one line, cut to a length that a line can have.
func Brief(s string) string {
	const most = 200
	return Cut(oneLine.Replace(Clean(s)), most)
}

var oneLine = strings.NewReplacer("\n", " ", "\t", " ")

// Cut cuts a text to so many bytes.
func Cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
