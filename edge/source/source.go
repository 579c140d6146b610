// Package source reads objects from where they are written: a file, a
// directory, the embedded default. It is strict, and what it finds wrong, and
// what compiling finds wrong, it says with the file and line.
//
// Open is the one entry for whoever wants a plan: `weir validate` and
// `weir serve` print the same text and end the same way because both print what
// Open found.
package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/filters/guest"
)

// Set is what was read: the objects, where each field of them stands, and what
// is wrong with the text.
type Set struct {
	compile.Set

	path     string // that was read
	findings []Finding
	places   []place // of each object
}

// String says how many objects the set holds. It shows nothing of them.
func (s *Set) String() string { return fmt.Sprintf("%d objects", len(s.Objects)) }

// GoString is String: a set may hold secrets.
func (s *Set) GoString() string { return s.String() }

// Format writes String for every verb: a set may hold secrets.
func (s *Set) Format(f fmt.State, _ rune) {
	// A fmt.State records its own failures.
	_, _ = io.WriteString(f, s.String())
}

// Secret returns the value of a Secret of the set and whether there is one. A
// caller must not change the bytes.
func (s *Set) Secret(name, key string) ([]byte, bool) {
	for _, o := range s.Objects {
		if secret, ok := o.Value.(*compile.Secret); ok && secret.Name == name {
			return secret.Get(key)
		}
	}
	return nil, false
}

// Load reads files, and of directories the files *.yaml, *.yml and *.json in
// the order of their names (not those of directories inside them, and none whose
// name starts with a dot). A file that is named twice is read once. The set is
// never nil: beside an error it holds what could be read. The error is of type
// Findings.
func Load(paths ...string) (*Set, error) {
	s := &Set{path: strings.Join(paths, ", ")}
	read := map[string]bool{}
	for _, path := range paths {
		for _, name := range s.files(path) {
			if len(s.places) >= maxDocuments && s.Incomplete {
				break
			}
			if at := filepath.Clean(name); !read[at] {
				read[at] = true
				s.read(name)
			}
		}
	}
	return s, s.err()
}

// read adds the documents of a file to the set.
func (s *Set) read(name string) {
	data, err := readAll(name)
	if err != nil {
		s.unreadable(name, err)
		return
	}
	s.add(name, data)
}

// Read reads the documents of data. The name stands for the file in messages;
// one that ends in .json says that data is JSON. The set is never nil. The
// error is of type Findings.
func Read(name string, data []byte) (*Set, error) {
	s := &Set{path: name}
	s.add(name, data)
	return s, s.err()
}

// files returns the files that path stands for.
func (s *Set) files(path string) []string {
	info, err := os.Stat(path)
	if err != nil {
		s.unreadable(path, err)
		return nil
	}
	if !info.IsDir() {
		return []string{path}
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		s.unreadable(path, err)
		return nil
	}
	var names []string
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		switch ext := strings.ToLower(filepath.Ext(e.Name())); {
		case strings.HasPrefix(e.Name(), "."):
		case ext != ".yaml" && ext != ".yml" && ext != ".json":
		default:
			if info, err := os.Stat(name); err == nil && info.IsDir() {
				continue
			}
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		s.unreadable(path, errors.New("no file *.yaml, *.yml or *.json in the directory: add one, or name the directory that holds them"))
	}
	return names
}

// readAll reads a file up to one byte more than a file may have, so that a
// larger one is seen to be larger.
func readAll(name string) ([]byte, error) {
	f, err := edge.OpenFile(name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	return data, errors.Join(err, f.Close())
}

// unreadable notes a file that cannot be read at all.
func (s *Set) unreadable(name string, err error) {
	cause := err
	var pathError *os.PathError
	if errors.As(err, &pathError) {
		cause = pathError.Err
	}
	s.Incomplete = true
	s.findings = append(s.findings, Finding{
		File:    name,
		Finding: compile.Finding{Index: -1, Reason: compile.ReasonUnreadable, Message: cause.Error()},
	})
}

// add reads the documents of one file into the set.
func (s *Set) add(name string, data []byte) {
	for _, d := range readFile(name, data, maxDocuments-len(s.places)) {
		s.object(name, d)
	}
}

// Result is what became of a set.
type Result struct {
	Plan     *compile.Plan   // nil when there is an error
	Report   *compile.Report // of the objects that could be read; never nil
	Findings Findings        // of reading and compiling, in file and line order
	Set      *Set            // never nil
}

// Option says what of the process a set is judged by.
type Option func(*Set)

// LocalRateLimits has rate limits accepted where there is no store to count in,
// if the process counts for itself.
func LocalRateLimits(yes bool) Option { return func(s *Set) { s.LocalRateLimits = yes } }

// AllowWorkloads has the forms of workloads accepted that the process may start.
func AllowWorkloads(forms ...string) Option {
	return func(s *Set) {
		for _, f := range forms {
			s.Starts = append(s.Starts, compile.Form(f))
		}
	}
}

// Part has what objects refer to, and is not there, warned of: it may be in
// another part of the set. There is no plan then.
func Part(yes bool) Option { return func(s *Set) { s.Part = yes } }

// Open is OpenAll of one file or directory.
func Open(path string, options ...Option) *Result { return OpenAll([]string{path}, options...) }

// OpenAll reads and compiles the manifests at paths, files and directories, as
// one set, and judges the modules that they name.
func OpenAll(paths []string, options ...Option) *Result {
	// What Load finds wrong stays in the set, for Compile to report with the rest.
	s, _ := Load(paths...)
	s.Modules = guest.ReadModule
	for _, o := range options {
		o(s)
	}
	return s.Compile()
}

// OpenDefault compiles the embedded default, which serves the built-in demo
// backend at demoURL.
func OpenDefault(demoURL string) *Result { return Default(demoURL).Compile() }

// Compile compiles the set and finds the line for everything that is to be said
// about it.
func (s *Set) Compile() *Result {
	r := &Result{Set: s, Findings: slices.Clone(s.findings)}
	r.Plan, r.Report = s.judge()
	var whole Findings // what is about the set comes last
	for _, f := range r.Report.Findings {
		switch {
		case f.Index < 0:
			whole = append(whole, s.locate(f))
		case !s.said(f):
			r.Findings = append(r.Findings, s.locate(f))
		}
	}
	r.Findings.sort()
	r.Findings = append(r.Findings, whole...)
	if r.Err() != nil {
		r.Plan = nil // what is wrong need not be an object of the set
	}
	return r
}

// judge compiles the set. A panic is an error of it, so that an edge which reads a set again
// goes on with what it serves. What the panic says may hold what was read, and is not shown.
func (s *Set) judge() (plan *compile.Plan, report *compile.Report) {
	defer func() {
		if why := recover(); why != nil {
			slog.Error("panic", "in", "judging the configuration", "panic", fmt.Sprintf("%T", why), "stack", string(debug.Stack()))
			plan, report = nil, &compile.Report{Findings: []compile.Finding{{
				Index: -1, Reason: compile.ReasonUnreadable, Message: "the configuration cannot be judged: this is a defect of weir, please report it with the stack that was logged; take back what was changed last to go on",
			}}}
		}
	}()
	return compile.Compile(s.Set)
}

// said reports whether a finding is about a value that could not be read, which
// says it all. An object that was added to the set has no place in a file.
func (s *Set) said(f compile.Finding) bool {
	return f.Index < len(s.places) && slices.ContainsFunc(s.places[f.Index].faulty, func(path string) bool {
		rest, ok := strings.CutPrefix(f.Path, path)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// Missing warns of every secret that the servers need and secrets does not have,
// or has and is not sound, where it is referred to: the edge would not start.
func (r *Result) Missing(ctx context.Context, secrets edge.Secrets) Findings {
	var out Findings
	for _, n := range r.Report.Needs {
		if _, err := secrets.Secret(ctx, n.Name, n.Key); err != nil {
			f := r.Set.locate(compile.Finding{
				Severity: compile.Warning, Index: n.Index, Object: n.Object, Path: n.Path, Reason: compile.ReasonNotFound,
				Message: err.Error() + "; it has to be there when the edge starts",
			})
			if n.Index < 0 {
				f.File = n.Origin
			}
			out = append(out, f)
		}
	}
	out.sort()
	return out
}

// Err returns nil when the set can be served, else an error that says how many
// errors there are; Render says which.
func (r *Result) Err() error {
	if n := len(r.Findings.Errors()); n > 0 {
		return fmt.Errorf("%s", edge.Count(n, "error"))
	}
	return nil
}

// Render writes one line for each finding, errors, warnings and notes, in file
// and line order.
func (r *Result) Render(w io.Writer) error { return r.Findings.Render(w) }
