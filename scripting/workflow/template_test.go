package workflow

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// everything has a value of each kind.
func everything() map[string]any {
	return map[string]any{
		"s": "héllo <b a='1'>&\"\\\x00\n=☃\u200b", "word": "word", "e": "", "n": int64(3), "z": int64(0), "neg": int64(-2), "f": decimal(2.5), "m": decimal(1e6), "fz": decimal(0),
		"big": digits("123456789012345678901234567890"), "t": true, "ff": false, "nothing": nil,
		"l": []any{int64(1), "a", nil, map[string]any{"k": "v"}, decimal(1e20), []any{int64(7)}}, "el": []any{},
		"o": map[string]any{"a": int64(1), "b": "x", "c": nil, "d": []any{int64(1), int64(2)}, "e e": map[string]any{}}, "eo": map[string]any{},
		"j": `{"a":[1,2.5,"x"],"b":12345678901234567890}`,
	}
}

// TestLanguage holds that templates mean what they mean to the language, in each of its
// corners.
func TestLanguage(t *testing.T) {
	texts := 0
	for _, s := range corners() {
		if compare(t, s, everything()) {
			texts++
		}
	}
	if texts < 150 {
		t.Errorf("only %d templates gave a text", texts)
	}
}

// corners are templates for each of the corners of the language.
func corners() []string {
	return []string{
		// Text, trim markers, comments.
		"", "plain", "{{/* c */}}", "a {{- /* c */ -}} b", "a {{- 1 -}} b", "{{- .word}}  ", "{{\"{{\"}}", "{{`}}`}}", "{{1}}{{2}}", "{{ }}", "{{", "}}", "{{.}", "{{/* c }}",
		// Constants.
		"{{1}} {{-1}} {{+1}} {{0x1F}} {{0b11}} {{0o17}} {{017}} {{1_000}} {{'a'}} {{'\\n'}} {{'☃'}}", "{{1.5}} {{1e3}} {{.5}} {{1.0}} {{1e6}} {{0x1p4}} {{1e21}}", "{{true}} {{false}}", "{{nil}}", "{{1i}} {{1+2i}} {{0i}}",
		"{{9223372036854775807}}", "{{18446744073709551615}}", "{{99999999999999999999}}", "{{0xE}}", "{{'e'}}", "{{1e}}", "{{\"\\u00e9\\\"\"}} {{`\\n`}}", "{{''}}", "{{- 3}}", "{{-0}}",
		// Fields.
		"{{.}}", "{{.n}} {{.o.a}} {{.o.d}} {{.l}}", "{{.nope}}", "{{.o.nope}}", "{{.nothing}}", "{{.nothing.x}}", "{{.s.x}}", "{{.n.x}}", "{{.l.x}}", "{{.o.c}}", "{{.n 1}}", "{{1 | .n}}", "{{$.n}}", "{{$}}", "{{$ 1}}", "{{$.n 1}}",
		"{{(.o).a}}", "{{(index .l 3).k}}", "{{(.o.d).x}}", "{{(nil).x}}", "{{nil.x}}", "{{true.x}}", "{{print.x}}", "{{(.o) 1}}", "{{1 | (.o)}}", "{{. 1}}", "{{1 2}}", "{{.o.a.b.c}}", "{{json (.o).d}}",
		// Pipelines and functions.
		"{{1 | print 2 | printf \"%v-%v\" 3}}", "{{print}}", "{{print | len}}", "{{.word | len | printf \"%03d\"}}", "{{nope 1}}", "{{1 | 2}}", "{{1 | nil}}", "{{nil | print}}", "{{print nil}}", "{{len print}}", "{{(print 1) | print}}", "{{| print}}", "{{print |}}",
		"{{call .s}}", "{{if false}}{{call .s 1}}{{end}}", "{{call}}", "{{.s | call}}",
		// Truth.
		"{{range .l}}{{if .}}y{{else}}n{{end}}{{end}}", "{{if .s}}1{{end}}{{if .e}}2{{end}}{{if .z}}3{{end}}{{if .neg}}4{{end}}{{if .f}}5{{end}}{{if .fz}}6{{end}}{{if .big}}7{{end}}{{if .t}}8{{end}}{{if .ff}}9{{end}}{{if .nothing}}a{{end}}{{if .el}}b{{end}}{{if .eo}}c{{end}}{{if .o}}d{{end}}",
		"{{if 0i}}1{{else if 1i}}2{{end}}", "{{if index .word 0}}1{{end}}", "{{if .nope}}{{end}}", "{{if nil}}1{{end}}", "{{if}}{{end}}", "{{if 1}}", "{{else}}", "{{if 1}}{{else}}{{else}}{{end}}", "{{if .e}}a{{else if .z}}b{{else if .n}}c{{else}}d{{end}}", "{{if (and .n .o)}}1{{end}}",
		"{{and}}", "{{and 1}} {{and 1 0 2}} {{or 0 2 3}} {{or 0 .e}}", "{{and .e .nope}}", "{{or .n .nope}}", "{{and .n .nope}}", "{{.n | and}}", "{{.n | and .e}}", "{{.n | or .e}}", "{{.nothing | or .e}}", "{{json (.nothing | or .e)}}", "{{json (and nil 1)}}", "{{json (or nil nil)}}", "{{not 1}} {{not .nothing}} {{not nil}} {{not .el}}", "{{not}}", "{{not 1 2}}", "{{and 1 print}}",
		// with.
		"{{with .o}}{{.a}}{{end}}", "{{with .e}}a{{else}}{{.word}}{{end}}", "{{with $x := .o}}{{$x.a}}{{.b}}{{end}}", "{{with .e}}a{{else with .word}}{{.}}{{else}}b{{end}}", "{{with .e}}a{{else with .z}}b{{else}}c{{end}}", "{{with $x := 1}}{{end}}{{$x}}", "{{with .l}}{{$.n}}{{end}}",
		// Variables and their scopes.
		"{{$x := 1}}{{$x}}{{$x = 2}}{{$x}}", "{{$x}}", "{{$x = 1}}", "{{$x := 1}}{{if 1}}{{$x := 2}}{{$x}}{{end}}{{$x}}", "{{$x := 1}}{{if 1}}{{$x = 2}}{{end}}{{$x}}", "{{if 1}}{{$x := 2}}{{end}}{{$x}}", "{{$x := $x}}", "{{$x := 1}}{{$x := print $x 2}}{{$x}}", "{{$x := .nothing}}{{json $x}}", "{{$ = 3}}{{$}}", "{{$ := .o}}{{$.a}}",
		"{{if $x := .n}}{{$x}}{{else}}{{$x}}{{end}}", "{{if $x := .z}}{{$x}}{{else}}e{{$x}}{{end}}", "{{$x, $y := 1}}", "{{print ($x := 1)}}{{$x}}", "{{and false ($x := 1)}}{{$x}}", "{{and true ($x := 1)}}{{$x}}", "{{$x := 1}}{{range .l}}{{$x = .}}{{end}}{{json $x}}", "{{$x := 1}}{{define \"a\"}}{{$x}}{{end}}", "{{$x := 1 | print 2}}{{$x}}", "{{$o := .o}}{{$o.a}} {{$o.nope}}", "{{$x:=1}}{{$x}}", "{{$x.y := 1}}",
		// range.
		"{{range .l}}{{json .}},{{end}}", "{{range $e := .l}}{{json $e}},{{end}}", "{{range $i, $e := .l}}{{$i}}={{json $e}},{{end}}", "{{range .o}}{{json .}},{{end}}", "{{range $k, $v := .o}}{{$k}}={{json $v}},{{end}}", "{{range .el}}a{{else}}b{{.n}}{{end}}", "{{range .eo}}a{{else}}b{{end}}", "{{range .nothing}}a{{else}}b{{end}}", "{{range nil}}{{end}}",
		"{{range 3}}{{.}}{{end}}", "{{range .n}}{{.}}{{end}}", "{{range $x := 3}}{{$x}}{{end}}", "{{range $i, $x := 3}}{{end}}", "{{range $i, $x := 0}}{{end}}", "{{range .neg}}a{{else}}b{{end}}", "{{range 0}}a{{else}}b{{end}}", "{{range (index .word 0)}}x{{end}}", "{{range .word}}{{end}}", "{{range .f}}{{end}}", "{{range .t}}{{end}}", "{{range .big}}{{end}}", "{{range 1.0}}{{end}}", "{{range 1i}}{{end}}", "{{range 'a'}}x{{end}}",
		"{{$i := 0}}{{$x := 0}}{{range $i, $x = .l}}{{end}}{{$i}}{{json $x}}", "{{$x := 0}}{{range $x = .el}}{{end}}{{json $x}}", "{{$x := 0}}{{range $x = 3}}{{$x}}{{end}}{{$x}}", "{{range $x = .l}}{{end}}", "{{$i := 0}}{{range $i, $n = .l}}{{end}}", "{{range $a, $b, $c := .l}}{{end}}", "{{range $i, .l}}{{end}}",
		"{{range 5}}{{if eq . 3}}{{break}}{{end}}{{.}}{{end}}", "{{range 5}}{{if eq . 3}}{{continue}}{{end}}{{.}}{{end}}", "{{break}}", "{{continue}}", "{{range 3}}{{range 3}}{{if eq . 1}}{{break}}{{end}}{{.}}{{end}};{{end}}", "{{range 2}}{{range 0}}{{else}}a{{break}}b{{end}}c{{end}}", "{{range 2}}{{range 0}}{{else}}a{{continue}}b{{end}}c{{end}}", "{{range 0}}{{else}}{{break}}{{end}}", "{{range 3}}{{$y := .}}{{if 1}}{{break}}{{end}}{{end}}{{$y}}", "{{range 3}}{{with .}}{{continue}}{{end}}a{{end}}", "{{range 3}}{{template \"x\"}}{{end}}{{define \"x\"}}{{break}}{{end}}", "{{break 1}}", "{{range 1}}{{break 1}}{{end}}",
		"{{range .l}}{{$.n}}{{end}}", "{{range $i, $e := (slice .l 0 2)}}{{$i}}{{$e}}{{end}}", "{{$x := 9}}{{range $x := 2}}{{$x}}{{end}}{{$x}}", "{{range .l}}{{end}}{{.n}}",
		// Templates.
		"{{define \"x\"}}[{{.}}]{{end}}{{template \"x\" .n}}", "{{template \"x\"}}{{define \"x\"}}a{{json .}}{{end}}", "{{template \"x\"}}{{define \"x\"}}{{.}}{{end}}", "{{template \"nope\"}}", "{{block \"b\" .o}}{{.a}}{{end}}{{template \"b\" .o}}", "{{define \"x\"}}1{{end}}{{define \"x\"}}2{{end}}{{template \"x\"}}", "{{define \"x\"}} {{end}}{{define \"x\"}}2{{end}}{{template \"x\"}}", "{{define \"x\"}}{{$.a}}{{$}}{{end}}{{template \"x\" .o}}",
		"{{define \"template\"}}hi{{end}}", "{{define \"template\"}}hi{{end}}x", "{{define \"template\"}}{{end}}x", "{{define \"r\"}}{{if .}}{{json .}}{{template \"r\" (slice . 1)}}{{end}}{{end}}{{template \"r\" .l}}", "{{template \"x\" $y := .n}}{{$y}}{{define \"x\"}}{{.}}{{end}}", "{{template .n}}", "{{template print}}", "{{define \"x\"}}{{define \"y\"}}{{end}}{{end}}", "{{if 1}}{{define \"x\"}}{{end}}{{end}}", "{{define \"\"}}e{{end}}{{template \"\"}}", "{{template \"x\" .nope}}{{define \"x\"}}{{end}}", "{{block \"b\"}}{{end}}",
		// Comparisons.
		"{{eq 1 1}} {{eq 1 2}} {{eq 1 2 1}} {{eq .n 3}} {{eq .word \"word\"}} {{eq .t true}} {{eq .f 2.5}} {{eq 1i 1i}}", "{{eq}}", "{{eq 1}}", "{{eq 1 1.0}}", "{{eq 1 \"1\"}}", "{{eq true 1}}", "{{eq .nothing nil}} {{eq .nothing 1}} {{eq 1 nil}} {{eq .o nil}} {{eq nil .l}} {{eq nil nil}}", "{{eq .o .o}}", "{{eq .l .l}}", "{{eq .l .o}}", "{{eq .o 1}}", "{{eq 1 .o}}", "{{eq .big .big}} {{eq .big \"1\"}}", "{{eq (index .word 0) 119}} {{eq 119 (index .word 0)}} {{eq (index .word 0) .n}}", "{{eq 1 2 nil}}", "{{eq nil 1 nil}}", "{{eq 1 1 .o}}",
		"{{ne 1 2}} {{ne \"a\" \"a\"}} {{ne nil .nothing}}", "{{ne 1}}", "{{ne 1 2 3}}", "{{ne 1 \"a\"}}", "{{ne .o .o}}", "{{lt 1 2}} {{lt 2 1}} {{lt \"a\" \"b\"}} {{lt 1.5 2.5}} {{lt .neg 0}}", "{{lt 1 1.5}}", "{{lt true false}}", "{{lt nil 1}}", "{{lt 1 nil}}", "{{lt nil nil}}", "{{lt .l .l}}", "{{lt 1i 2i}}", "{{lt 1}}", "{{lt 1 2 3}}", "{{le 1 1}} {{le 2 1}} {{gt 2 1}} {{gt 1 1}} {{ge 1 1}} {{ge 0 1}} {{le \"a\" \"a\"}} {{ge .f 2.5}}", "{{le true true}}", "{{gt true true}}", "{{ge .o .o}}", "{{lt (index .word 0) 200}} {{lt -1 (index .word 0)}} {{lt (index .word 0) -1}} {{gt 300 (index .word 0)}}", "{{lt .big \"9\"}}", "{{2 | lt 1}} {{1 | eq 1}}",
		// len, index, slice.
		"{{len .s}} {{len .l}} {{len .o}} {{len \"\"}} {{len .big}}", "{{len .n}}", "{{len .nothing}}", "{{len nil}}", "{{len .f}}", "{{len .t}}", "{{len}}", "{{len .l .l}}", "{{index .l 0}} {{index .l 3 \"k\"}} {{index .o \"a\"}} {{index .o \"d\" 1}} {{index .word 0}}", "{{index .l 6}}", "{{index .l -1}}", "{{index .l 99}}", "{{index .l \"a\"}}", "{{index .l nil}}", "{{index .l 1.0}}", "{{index .o 1}}", "{{index .o nil}}", "{{index .o .big}}", "{{index .o \"nope\"}}", "{{json (index .o \"nope\")}}", "{{index .o \"nope\" \"x\"}}", "{{index .n 0}}", "{{index .nothing}}", "{{index nil}}", "{{index .nothing 0}}", "{{index .n}}", "{{index}}", "{{index .word 4}}", "{{index .l 2 0}}", "{{index .l (index .l 0)}}", "{{index .l (index \"\\x01\" 0)}}", "{{index .t 0}}", "{{1 | index .l}}", "{{index .big 0}}",
		"{{slice .word}} {{slice .word 1}} {{slice .word 1 3}} {{slice .l 1 2}} {{slice .l 5}} {{slice .l 6}}", "{{slice .word 1 2 3}}", "{{slice .word 5}}", "{{slice .word 2 1}}", "{{slice .word -1}}", "{{slice .word nil}}", "{{slice .word \"a\"}}", "{{slice .l 1 2 3}}", "{{slice .l 1 3 2}}", "{{slice .l 1 2 3 4}}", "{{slice .l 0 7}}", "{{slice (slice .l 0 1) 0 3}}", "{{slice (slice .l 0 1 1) 0 3}}", "{{slice .o}}", "{{slice .n}}", "{{slice nil}}", "{{slice .nothing 1}}", "{{slice}}", "{{slice .s 1 2 | json}}",
		// Printing.
		"{{print 1 2 \"a\" 3 \"b\" \"c\" true false}}", "{{print .f .m .big .o .l}}", "{{print .n .n}} {{print .s .n}} {{print .l .l}}", "{{println}}{{println 1 \"a\" 2.5}}", "{{print .nothing}}", "{{html .s}} {{html .l}} {{html 1 2}}", "{{js .s}} {{js .o}} {{js \"\\x7f\\u2028\\U0001F600\"}} {{js (slice .s 1 2)}}", "{{urlquery .s}} {{urlquery 1 2}} {{urlquery}} {{js}} {{html}}", "{{html nil}}", "{{.s | html | js | urlquery}}", "{{.m}} {{.f}} {{1e20}} {{1e6}} {{json 1e6}} {{json .m}}",
		"{{printf \"%d %5d|%-5d|%05d %x %X %o %b %c %q %U\" 1 2 3 4 255 255 8 5 97 97 97}}", "{{printf \"%s %v %q %10s|%-10s|%.2s %x\" \"a\" \"b\" \"c\" \"d\" \"e\" \"fgh\" \"i\"}}", "{{printf \"%f %.2f %8.3f %e %g %v %s %G\" .f .f .f .f .f .f .m .f}}", "{{printf \"%f %.2f %8.3f|%-8.1f|%+e %g %v %08.3F %#g % G\" .n .n .n .n .n .n .n .neg .n .z}}", "{{printf \"%f %g\" 3 (index .word 0)}} {{printf \"%f\" (len .word)}}", "{{printf \"%f\" .word}} {{printf \"%f\" .t}}", "{{printf \"%t %v\" true false}}", "{{printf \"%d\" \"a\"}}", "{{printf \"%s\" 1}}", "{{printf \"%d\" .f}}", "{{printf \"%d\"}}", "{{printf \"%\"}}", "{{printf \"%%\"}}", "{{printf \"%z\" 1}}", "{{printf}}", "{{printf 1}}", "{{printf nil}}", "{{printf .n}}", "{{printf .word 1}}", "{{printf .nothing}}", "{{printf .big}}", "{{printf \"%v\" .nothing}}", "{{printf \"%v %v\" .l .o}}", "{{printf \"%é\" 1}}", "{{printf \"% d %+d %#x %#q\" 1 2 3 \"x\"}}", "{{printf \"%v\" (index .word 0)}}", "{{printf \"%c\" (index .word 0)}}", "{{printf \"%s\" (index .word 0)}}", "{{printf \"%5t|%-7v|%07.2f\" true .n .f}}", "{{printf \"%v\" 1i}}", "{{printf \"%x %q %#v\" .f .f .f}}", "{{\"%d\" | printf}}", "{{printf (print \"%\" \"d\") 3}}", "{{printf true}}", "{{printf 1.5 2}}", "{{printf (index .l 1)}}",
		// Ours.
		"{{json .}}", "{{json .nothing}} {{json nil}} {{json .l}}", "{{json}}", "{{json 1 2}}", "{{json (index .word 0)}} {{json 'a'}} {{json 1.5}}", "{{quote .s}} {{quote 1}} {{quote .l}} {{quote .f}}", "{{quote .nothing}}", "{{quote}}", "{{(fromJson .j).a}} {{(fromJson .j).b}}", "{{range fromJson \"[1,2]\"}}{{.}}{{end}}", "{{fromJson \"\"}}", "{{fromJson .nothing}}", "{{json (fromJson \"null\")}}", "{{fromJson 1}} {{fromJson .l}}", "{{fromJson \"[1\"}}", "{{fromJson .j | json | quote}}",
	}
}

// TestLanguageMade holds the same of templates that are made by chance.
func TestLanguageMade(t *testing.T) {
	const all = 6000
	texts := 0
	for seed := range uint64(all) {
		m := maker{Rand: rand.New(rand.NewPCG(seed, 7))}
		s := m.list(3)
		if !differs(s) && compare(t, s, everything()) {
			texts++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d of %d gave a text", texts, all)
	if texts < all/6 {
		t.Errorf("only %d of %d gave a text", texts, all)
	}
}

// maker makes templates.
type maker struct {
	*rand.Rand
	vars   []string
	loops  int
	inside bool // of a define
}

func pick[T any](m *maker, all ...T) T { return all[m.IntN(len(all))] }

// list makes a few nodes. Its variables end with it.
func (m *maker) list(depth int) string {
	var b strings.Builder
	defer func(n int) { m.vars = m.vars[:n] }(len(m.vars))
	for range 1 + m.IntN(4) {
		b.WriteString(m.node(depth))
	}
	return b.String()
}

func (m *maker) node(depth int) string {
	if depth == 0 {
		return pick(m, "t", "{{.}}", "{{"+m.pipe(1)+"}}", " {{- "+m.value(0)+" -}} ")
	}
	declare := func() string {
		name := fmt.Sprintf("$v%d", m.IntN(3))
		m.vars = append(m.vars, name)
		return name
	}
	switch m.IntN(12) {
	case 0:
		v := m.pipe(2)
		return "{{" + declare() + " := " + v + "}}"
	case 1:
		if len(m.vars) > 0 {
			return "{{" + pick(m, m.vars...) + " = " + m.pipe(2) + "}}"
		}
	case 2, 3:
		return "{{if " + m.pipe(2) + "}}" + m.list(depth-1) + pick(m, "", "{{else}}"+m.list(depth-1), "{{else if "+m.pipe(1)+"}}"+m.list(depth-1)) + "{{end}}"
	case 4:
		return "{{with " + m.pipe(1) + "}}" + m.list(depth-1) + pick(m, "", "{{else}}"+m.list(depth-1), "{{else with "+m.value(1)+"}}"+m.list(depth-1)) + "{{end}}"
	case 5, 6:
		over := pick(m, ".l", ".o", ".el", "3", ".n", "$.l", "$.o", m.value(1))
		defer func(n int) { m.vars = m.vars[:n] }(len(m.vars))
		head := over
		switch m.IntN(3) {
		case 0:
			head = declare() + " := " + over
		case 1:
			head = declare() + ", " + declare() + " := " + over
		}
		m.loops++
		body := m.list(depth - 1)
		m.loops--
		return "{{range " + head + "}}" + body + pick(m, "", "{{else}}"+m.list(depth-1)) + "{{end}}"
	case 7:
		if m.loops > 0 {
			return "{{if " + m.pipe(1) + "}}" + pick(m, "{{break}}", "{{continue}}") + "{{end}}"
		}
	case 8:
		if !m.inside && m.loops == 0 {
			name := fmt.Sprint("d", m.IntN(100000))
			inner := maker{Rand: m.Rand, inside: true}
			return pick(m, "{{block ", "{{block ") + fmt.Sprintf("%q %s}}", name, m.value(1)) + inner.list(depth-1) + "{{end}}{{template " + fmt.Sprintf("%q", name) + pick(m, "", " .", " $", " .o") + "}}"
		}
	}
	return m.node(0)
}

// pipe makes a pipeline.
func (m *maker) pipe(depth int) string {
	s := m.command(depth)
	for m.IntN(3) == 0 {
		s += " | " + pick(m, "print", "len", "json", "not", "printf \"%v\"", "index .l", "html", "quote", "eq 1", "or .e", "and .n", "js", "urlquery", "print 1")
	}
	return s
}

// command makes a function with its arguments, or a value.
func (m *maker) command(depth int) string {
	if depth == 0 {
		return m.value(0)
	}
	v := func() string { return m.value(depth - 1) }
	switch m.IntN(12) {
	case 0:
		return pick(m, "eq ", "ne ", "lt ", "le ", "gt ", "ge ") + v() + " " + v()
	case 1:
		return pick(m, "and ", "or ") + v() + " " + v() + pick(m, "", " "+v())
	case 2:
		return pick(m, "not ", "len ", "json ", "quote ") + v()
	case 3:
		return "index " + pick(m, ".l ", ".o ", ".word ", v()+" ") + v()
	case 4:
		return "slice " + pick(m, ".l ", ".word ", v()+" ") + pick(m, "", "0", "1 2", v())
	case 5:
		return pick(m, "print ", "println ", "html ", "js ", "urlquery ") + v() + pick(m, "", " "+v())
	case 6:
		return "printf " + pick(m, `"%v" `, `"%d" `, `"%s|%5v" `, `"%q" `, `"%06.2f" `, `"%x" `, `"%t" `) + v() + pick(m, "", " "+v())
	case 7:
		return "fromJson " + pick(m, ".j", `"[1,{\"a\":2}]"`, v())
	}
	return v()
}

// value makes a value.
func (m *maker) value(depth int) string {
	if depth > 0 && m.IntN(3) == 0 {
		s := "(" + m.pipe(depth) + ")"
		return s + pick(m, "", "", "", ".a", ".k")
	}
	if len(m.vars) > 0 && m.IntN(4) == 0 {
		return pick(m, m.vars...) + pick(m, "", "", "", ".a")
	}
	return pick(m, ".", "$", ".s", ".word", ".e", ".n", ".z", ".f", ".big", ".t", ".nothing", ".l", ".o", ".o.a", ".o.d", ".eo", "$.n", "$.l", "$.o.b", "1", "0", "2.5", `"a"`, `""`, "true", "nil", "'a'", ".nope", "-1", "$.word", "$.f")
}

// FuzzLanguage holds the same of templates that nobody thought of.
func FuzzLanguage(f *testing.F) {
	for _, s := range corners() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !differs(s) {
			compare(t, s, everything())
		}
	})
}

// TestPrintfOfOurs holds what printf makes of what only we have.
func TestPrintfOfOurs(t *testing.T) {
	for s, want := range map[string]string{
		`{{printf "%d %s %v %x" .big .big .big .big}}`:                        "123456789012345678901234567890 123456789012345678901234567890 123456789012345678901234567890 18ee90ff6c373e0ee4e3f0ad2",
		`{{printf "%q %35d" .big .big}}`:                                      `"123456789012345678901234567890"      123456789012345678901234567890`,
		`{{printf "%f %.2f %e %g|%8.1f|%G %F %E" .n .n .n .n .n .neg .z .n}}`: "3.000000 3.00 3.000000e+00 3|     3.0|-2 0.000000 3.000000E+00",
		`{{printf "%d %s %v %x %q" .n .n .n .n .n}}`:                          "3 %!s(int64=3) 3 3 '\\x03'",
		`{{printf "%.0f %.1f %.5e" .big .big .big}}`:                          "123456789012345678901234567890 123456789012345678901234567890.0 1.23457e+29",
		`{{printf "%.0f %.0f" 9007199254740993 .edge}}`:                       "9007199254740993 9223372036854775807",
		`{{printf "%.1f %.1f" (index .word 0) (fromJson "1e0")}}`:             "119.0 1.0",
		`{{printf "%T" 1}}`:                                                   "template: printf: %T is not available",
		`{{printf "%1001d" 1}}`:                                               "template: printf: a width of more than 1000",
		`{{printf "%.1001f" 1.5}}`:                                            "template: printf: a width of more than 1000",
		`{{printf "%1000000000000000000000d" 1}}`:                             "template: printf: a width of more than 1000",
		`{{len (printf "%1000d%.1000f" 1 1.5)}}`:                              "2002",
		`{{slice .word .z 2}}`:                                                "wo",
		`{{slice .big 0 3 | json}}`:                                           `"123"`,
		`{{.f.String}}`:                                                       "template: <.f.String>: can't evaluate field String in a number",
		`{{eq .n 3.0}} {{eq 3.5 3}} {{ne 3 3.5}}`:                             "true false true",
		`{{gt 1 0.5}} {{lt 0.5 1}} {{ge 1 1.5}}`:                              "true true false",
		`{{le 9007199254740993 9007199254740992.0}}`:                          "false",
		`{{lt 9223372036854775807 9.3e18}}`:                                   "true",
		`{{gt -9223372036854775808 -9.3e18}}`:                                 "true",
		`{{eq .n "3"}}`:                                                       "template: <eq .n \"3\">: error calling eq: incompatible types for comparison: an integer and a string",
		`{{gt .larger .large}} {{gt .larger .edge}} {{lt .edge .large}}`:      "true true true",
		`{{le .below -1}} {{lt .large 1}} {{eq 1 .large 2}}`:                  "true false false",
		`{{eq .large .large}} {{ne .large .larger}} {{eq .larger 1e19}}`:      "true true true",
		`{{lt .large 9223372036854775809.0}} {{gt .larger 9.3e18}}`:           "false true",
		`{{lt .below -9.2e18}} {{ge 1e19 .larger}}`:                           "true true",
		`{{eq .large "9223372036854775808"}} {{lt .large "9"}}`:               "true false",
		`{{index .l 9}}`:                                                      "template: <index .l 9>: error calling index: index out of range: 9",
		`{{call .s}}`:                                                         "template: <call .s>: error calling call: no value is a function",
		`{{.o.c}}`:                                                            "template: .o.c has no value",
	} {
		parsed, err := parseTemplate(s)
		if err != nil {
			t.Fatal(s, err)
		}
		data := everything()
		data["edge"], data["large"], data["larger"], data["below"] = int64(math.MaxInt64), digits("9223372036854775808"), digits("10000000000000000000"), digits("-9223372036854775809")
		got, err := parsed.render(data, nil)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", s, got, want)
		}
	}
}

// TestBudget holds that what a rendering may take is counted, so that it does not depend on
// how busy the machine is, and that nothing is for nothing.
func TestBudget(t *testing.T) {
	data := everything()
	data["long"] = strings.Repeat("x", 600_000)
	data["digits"] = digits(strings.Repeat("9", 4096))
	data["numbers"] = "[" + strings.Repeat("1,", 20_000) + "1]"
	wide := map[string]any{}
	for i := range 20_000 {
		wide[fmt.Sprint(i)] = int64(i)
	}
	data["wide"] = wide
	deep := strings.Repeat("{{if 1}}", 150) + "{{template \"x\" .}}" + strings.Repeat("{{end}}", 150)
	for s, want := range map[string]string{
		`{{range 1000000}}{{end}}`:                                  "",
		`{{range 1000001}}{{end}}`:                                  "more than 1000000 turns of range",
		`{{range 900000}}{{if .}}{{end}}{{end}}`:                    "",
		`{{range 1000000}}{{if and . .}}{{end}}{{end}}`:             "steps of a template",
		`{{range 1000000}}{{$x := $}}{{$y := $x}}{{end}}`:           "steps of a template",
		`{{range 1100}}{{range 1000}}{{end}}{{end}}`:                "turns of range",
		`{{range 900000}}{{range $.eo}}{{end}}{{end}}`:              "steps of a template",
		`{{range 100000}}{{$x := json $.wide}}{{end}}`:              "steps of a template",
		`{{range 100000}}{{$x := print $.long}}{{end}}`:             "steps of a template",
		`{{range 100000}}{{$x := html $.long}}{{end}}`:              "steps of a template",
		`{{range 100000}}{{$x := printf "%q" $.long}}{{end}}`:       "steps of a template",
		`{{range 100000}}{{if lt $.long $.long}}{{end}}{{end}}`:     "steps of a template",
		`{{range 100000}}{{if lt $.digits $.digits}}{{end}}{{end}}`: "steps of a template",
		`{{range 100000}}{{$x := fromJson $.numbers}}{{end}}`:       "steps of a template",
		`{{range 100000}}{{$x := index $.o $.long}}{{end}}`:         "steps of a template",
		`{{range 1000}}{{range $.wide}}{{break}}{{end}}{{end}}`:     "steps of a template",
		`{{json (slice .long 0 100)}}{{.long}}{{.long}}`:            "renders more than 1048576 bytes",
		`{{define "x"}}` + deep + `{{end}}{{template "x"}}`:         "nested more than 10000 deep",
		"{{if 1}}{{if 1}}" + strings.Repeat("{{if 1}}", 20) + "{{" + strings.Repeat("(", 9990) + "1" + strings.Repeat(")", 9990) + "}}" + strings.Repeat("{{end}}", 22): "nested more than 10000 deep",
		`{{define "x"}}{{template "x" .}}{{end}}{{template "x" .}}`: "templates within each other more than 100 deep",
	} {
		parsed, err := parseTemplate(s)
		if err != nil {
			t.Fatalf("%.60s %s", s, err)
		}
		_, err = parsed.render(data, nil)
		if told := fmt.Sprint(err); err == nil && want != "" || err != nil && (want == "" || !strings.Contains(told, want)) {
			t.Errorf("%.60s\n got %s\nwant %s", s, told, want)
		}
	}
}

// A large integer beside a text is not read, so that this takes no work.
func TestDigitsBesideATextAreNotRead(t *testing.T) {
	var a, b any = digits(strings.Repeat("9", 4096)), "a text"
	r := &rendering{look: firstLook}
	for _, pair := range [][2]any{{a, b}, {b, a}} {
		if n := testing.AllocsPerRun(10, func() { _, _, _ = r.numbersOf(pair[0], pair[1]) }); n > 0 || r.work > 0 {
			t.Errorf("%v things were made, and %d steps spent", n, r.work)
		}
	}
	r.work = maxWork
	if n := testing.AllocsPerRun(10, func() { _, _, _ = r.numbersOf(a, int64(1)) }); n > 5 {
		t.Errorf("%v things were made when no work was left", n)
	}
}
