package scripting

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Scope says which names a program may use besides those of the language.
type Scope struct {
	// Tool returns the advertised name of the tool behind a name in a program (Sanitize);
	// nil for no tools. It is asked about each free name of the text once.
	Tool func(name string) (advertised string, ok bool)

	Near func() []string // names to suggest for one that is unknown, asked only then; nil for none

	// Extra are names of builtins of an Extension, which come before tools. A program that
	// uses one runs in process alone.
	Extra []string
	Data  []string // keys of the data, as names

	// Whole keeps the text a file, whose functions are called when it has run (Share), in
	// place of the body of one function. Of this package it then has attempt, fail, json,
	// math and print alone.
	Whole bool
}

// Error is why a text does not compile or a run failed.
type Error struct {
	Message      string // without a position
	Line, Column int    // from 1; 0 where there is no place
	Tool         string // whose call failed; ""
	Cause        Cause
	Spent        Spent    // what is, where the cause is a budget
	Frames       []string // functions of the text that were under way, the innermost last, MaxFrames at most
}

// Error returns the message with its place in front, such as `3:12: undefined: foo`.
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Message
	}
	return fmt.Sprintf("%d:%d: %s", e.Line, e.Column, e.Message)
}

// Program is a text that was compiled. It is immutable, and may run many times at once.
type Program struct {
	file     string
	names    Names
	whole    bool
	compiled *starlark.Program

	// counted is the same text with counted operators, for the engine in process: made from
	// the text when it is first asked for. A program that was loaded has no text.
	text    string
	loaded  bool
	once    sync.Once
	counted *starlark.Program
	uses    []string            // hidden functions and counted builtins
	scope   starlark.StringDict // what those and all other names but tools and data stand for
	init    initial
	idle    sync.Pool // of tasks of runs that have ended, whose threads keep their stacks
	failed  error
}

// Names are what a program uses of its scope.
type Names struct {
	Tools []Tool   // in the order of their first use
	Data  []string // names of data
	Ours  []string // builtins of this package, without `print`
	Extra []string // builtins of an extension
}

// Tool is a tool that a program calls as a function.
type Tool struct{ Name, Advertised string }

// File is the name of the program in positions.
func (p *Program) File() string { return p.file }

// Names returns what the program uses of its scope. The caller must not change it.
func (p *Program) Names() Names { return p.names }

// dialect is that of both engines.
func dialect() *syntax.FileOptions {
	return &syntax.FileOptions{Set: true, While: true, TopLevelControl: true}
}

// entry is the function that the text becomes the body of. No text can say this name, so that
// tools and data may have every name that one can.
const entry = "<script>"

// Compile makes a program of a text of at most MaxText bytes. The file stands for it in
// positions. Names are those of the language, of this package, of the tools, and of the
// data, in this order. The error is an *Error.
func Compile(file, text string, scope Scope) (*Program, error) {
	p := &Program{file: file, text: text, whole: scope.Whole}
	var err error
	if p.compiled, err = p.compile(&scope, nil); err != nil {
		return nil, err
	}
	return p, nil
}

// compile compiles the text once: in a scope, to find its names, or with those names again,
// when rewrite is to change the tree.
func (p *Program) compile(scope *Scope, rewrite func(*syntax.File)) (prog *starlark.Program, err error) {
	defer func() {
		if v := recover(); v != nil {
			prog, err = nil, &Error{Message: "the text cannot be compiled"}
		}
	}()
	f, e := Parse(p.file, p.text)
	if e != nil {
		return nil, e
	}
	if !p.whole {
		wrap(f)
	}
	lacks(f)
	if rewrite != nil {
		rewrite(f)
	}
	known := p.known(scope)
	if prog, err = starlark.FileProgram(f, known.has); err != nil {
		return nil, fault(err)
	}
	if len(known.unknown) > 0 {
		return nil, known.undefined(f)
	}
	return prog, nil
}

// Parse reads a text as Compile does. Nothing in the tree is bound yet.
func Parse(file, text string) (*syntax.File, *Error) {
	text, e := readable(text)
	if e != nil {
		return nil, e
	}
	f, err := dialect().Parse(file, []byte(text), 0)
	if err != nil {
		e = fault(err)
		unexpected(text, e)
		return nil, e
	}
	if e := loads(f.Stmts); e != nil {
		return nil, e
	}
	return f, nil
}

// readable refuses what the scanner would stumble over without a place.
func readable(text string) (string, *Error) {
	if len(text) > MaxText {
		return "", &Error{Message: fmt.Sprintf("longer than %d bytes", MaxText)}
	}
	text = strings.TrimPrefix(text, "\ufeff")
	if i := strings.IndexByte(text, 0); i >= 0 {
		return "", at(text, i, "a NUL character")
	}
	if !utf8.ValidString(text) {
		i := 0
		for {
			r, n := utf8.DecodeRuneInString(text[i:])
			if r == utf8.RuneError && n == 1 {
				return "", at(text, i, "the text is not UTF-8")
			}
			i += n
		}
	}
	return text, nil
}

// at makes an error of a place in a text.
func at(text string, i int, message string) *Error {
	before := text[:i]
	return &Error{
		Message: message,
		Line:    1 + strings.Count(before, "\n"),
		Column:  1 + utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]),
	}
}

// wrap makes the statements the body of a function, so that they may return. Their places
// stay as they are.
func wrap(f *syntax.File) {
	start := syntax.MakePosition(&f.Path, 1, 1)
	body := f.Stmts
	if len(body) == 0 {
		body = []syntax.Stmt{&syntax.BranchStmt{Token: syntax.PASS, TokenPos: start}}
	}
	f.Stmts = []syntax.Stmt{&syntax.DefStmt{Def: start, Name: &syntax.Ident{NamePos: start, Name: entry}, Lparen: start, Rparen: start, Body: body}}
}

// loads finds a load statement: there is nothing to load from. The parser allows it at the
// top and in blocks alike.
func loads(stmts []syntax.Stmt) (found *Error) {
	for _, s := range stmts {
		syntax.Walk(s, func(n syntax.Node) bool {
			if l, ok := n.(*syntax.LoadStmt); ok && found == nil {
				found = &Error{Message: "load is not available", Line: int(l.Load.Line), Column: int(l.Load.Col)}
			}
			return found == nil
		})
	}
	return found
}

// unexpected puts an error that tells of a token ("got newline, want ':'") where the token
// begins: the parser tells where the text goes on behind it, which is another line after a newline.
func unexpected(text string, e *Error) {
	got := strings.TrimPrefix(e.Message, "got ")
	lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), "\n")
	if got == e.Message || strings.HasSuffix(got, "want primary expression") || e.Line < 1 || e.Line > len(lines) {
		return
	}
	line := []rune(lines[e.Line-1])
	before := string(line[:min(max(e.Column-1, 0), len(line))])
	switch token := strings.TrimSuffix(strings.Fields(got + " ")[0], ","); {
	case token == "newline" && before == "" && e.Line > 1:
		e.Line--
		before = strings.TrimRight(lines[e.Line-1], " \t")
	case token == "newline":
	case token == "identifier":
		before = strings.TrimRightFunc(before, func(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) })
	default: // a string or a number ends like no name of a token
		before = strings.TrimSuffix(before, strings.Trim(token, "'"))
	}
	e.Column = 1 + utf8.RuneCountInString(before)
}

// fault makes an Error of what the parser and the resolver say.
func fault(err error) *Error {
	var parse syntax.Error
	if errors.As(err, &parse) {
		return &Error{Message: Clean(parse.Msg), Line: int(parse.Pos.Line), Column: int(parse.Pos.Col)}
	}
	var list resolve.ErrorList
	if errors.As(err, &list) && len(list) > 0 {
		first := slices.MinFunc(list, func(a, b resolve.Error) int {
			return (int(a.Pos.Line)-int(b.Pos.Line))<<20 + int(a.Pos.Col) - int(b.Pos.Col)
		})
		return &Error{Message: Clean(first.Msg), Line: int(first.Pos.Line), Column: int(first.Pos.Col)}
	}
	return &Error{Message: "the text cannot be compiled"}
}

// known answers the resolver's question which names are predeclared, and notes them. It
// says yes to every name, so that the resolver's own search for likely names, whose cost is
// the square of the text, never begins.
type known struct {
	p       *Program
	scope   *Scope // nil for the names that were found before
	unknown map[string]bool
}

// ours are the builtins of this package that the program may use.
func (p *Program) ours() []string {
	if p.whole {
		return []string{"attempt", "json", "math", "print"}
	}
	return ours()
}

func (p *Program) known(scope *Scope) *known {
	return &known{p: p, scope: scope, unknown: map[string]bool{}}
}

func (k *known) has(name string) bool {
	n := &k.p.names
	switch {
	case name == "print" || name == "fail" || name == fnLacking: // ours, and always there
		return true
	case slices.Contains(k.p.ours(), name):
		if !slices.Contains(n.Ours, name) {
			n.Ours = append(n.Ours, name)
		}
		return true
	case k.scope == nil:
		counts := isHidden(name) || isCounted(name)
		if counts && !slices.Contains(k.p.uses, name) {
			k.p.uses = append(k.p.uses, name)
		}
		return counts || !starlark.Universe.Has(name)
	case starlark.Universe.Has(name):
		return false
	case slices.Contains(k.scope.Extra, name):
		n.Extra = append(n.Extra, name)
		return true
	}
	if k.scope.Tool != nil {
		if advertised, ok := k.scope.Tool(name); ok {
			n.Tools = append(n.Tools, Tool{name, advertised})
			return true
		}
	}
	if slices.Contains(k.scope.Data, name) {
		n.Data = append(n.Data, name)
		return true
	}
	k.unknown[name] = true
	return true
}

// undefined is the error of the first unknown name in the text.
func (k *known) undefined(f *syntax.File) *Error {
	var first *syntax.Ident
	local := map[string]bool{}
	syntax.Walk(f, func(n syntax.Node) bool {
		id, ok := n.(*syntax.Ident)
		if !ok {
			return true
		}
		b, _ := id.Binding.(*resolve.Binding)
		switch {
		case b == nil:
		case b.Scope != resolve.Predeclared:
			local[id.Name] = true
		case k.unknown[id.Name] && (first == nil || id.NamePos.Line < first.NamePos.Line || id.NamePos.Line == first.NamePos.Line && id.NamePos.Col < first.NamePos.Col):
			first = id
		}
		return true
	})
	if first == nil {
		return &Error{Message: "undefined name"}
	}
	candidates := slices.Concat(k.p.ours(), starlark.Universe.Keys(), k.scope.Extra, k.scope.Data)
	delete(local, entry)
	for name := range local {
		candidates = append(candidates, name)
	}
	if k.scope.Near != nil {
		candidates = append(candidates, k.scope.Near()...)
	}
	slices.Sort(candidates)
	message := "undefined: " + clip(first.Name, 128)
	if near := Nearest(first.Name, candidates); near != "" {
		message += " (did you mean " + near + "?)"
	}
	return &Error{Message: message, Line: int(first.NamePos.Line), Column: int(first.NamePos.Col)}
}

// form is the version of what Encode writes.
const form = 1

// Encode returns the program for the sandbox, with its tool table: what Load reads.
func (p *Program) Encode() []byte {
	var code bytes.Buffer
	_ = p.compiled.Write(&code) // a buffer takes all
	b := appendBytes([]byte{form, starlark.CompilerVersion}, p.file)
	b = appendInt(b, int64(len(p.names.Tools)))
	for _, t := range p.names.Tools {
		b = appendBytes(appendBytes(b, t.Name), t.Advertised)
	}
	for _, list := range [][]string{p.names.Data, p.names.Ours} {
		b = appendInt(b, int64(len(list)))
		for _, s := range list {
			b = appendBytes(b, s)
		}
	}
	return appendBytes(b, code.Bytes())
}

// Load reads a program that Encode wrote, with the same version of the interpreter.
func Load(encoded []byte) (p *Program, err error) {
	defer func() {
		if v := recover(); v != nil {
			p, err = nil, errors.New("no encoded program")
		}
	}()
	if len(encoded) < 2 || encoded[0] != form || encoded[1] != starlark.CompilerVersion {
		return nil, errors.New("no encoded program of this version")
	}
	r := reader{rest: encoded[2:], left: MaxNodes}
	text := func() string {
		b, e := r.bytes()
		if e != nil && err == nil {
			err = e
		}
		return string(b)
	}
	count := func() int {
		_, e := r.tag()
		n, e2 := r.uint64()
		if err = errors.Join(err, e, e2); err != nil || n > uint64(len(r.rest)) {
			return 0
		}
		return int(n)
	}
	p = &Program{file: text(), loaded: true}
	for range count() {
		p.names.Tools = append(p.names.Tools, Tool{text(), text()})
	}
	for _, list := range []*[]string{&p.names.Data, &p.names.Ours} {
		for range count() {
			*list = append(*list, text())
		}
	}
	code, e := r.bytes()
	if err = errors.Join(err, e); err != nil {
		return nil, err
	}
	if p.compiled, err = starlark.CompiledProgram(bytes.NewReader(code)); err != nil {
		return nil, err
	}
	return p, nil
}
