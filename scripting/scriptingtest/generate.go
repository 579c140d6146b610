package scriptingtest

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Generate makes a program by chance: the same for the same seed. It ends, by a value or by
// an error, and uses neither tools nor data.
func Generate(seed uint64) string {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 7)), vars: []string{"a", "b", "c", "d", "s", "t"}}
	g.long()
	g.line("a = %d", g.IntN(20)-5)
	g.line("b = [%s, %s, %s]", g.scalar(), g.scalar(), g.scalar())
	g.line("c = {%q: %s, %q: %s, 3: %s}", g.word(), g.scalar(), g.word()+"x", g.scalar(), g.scalar())
	g.line("d = (%s, %s)", g.scalar(), g.scalar())
	g.line("s = %q", g.word()+" "+g.word())
	g.line("t = set([%d, %d, %q])", g.IntN(4), g.IntN(4), g.word())
	g.line("def f(x, y = %s, *rest, **named):", g.scalar())
	g.indent++
	g.long()
	g.infunc = true
	g.line("a, b, c, d, s, t = 1, [x], {'y': y}, rest, str(x)[:9], set(['q'])")
	g.statements(2)
	g.line("return %s", g.expr(2, 'x'))
	g.infunc = false
	g.indent--
	for range 2 + g.IntN(6) {
		g.statements(1 + g.IntN(3))
	}
	g.line("return repr([a, b, c, d, s, [x for x in t], f(s)])")
	return g.String()
}

type generator struct {
	*rand.Rand
	strings.Builder
	vars   []string
	indent int
	loops  int
	inner  int // number of the next loop variable
	infunc bool
}

func (g *generator) line(format string, args ...any) {
	g.WriteString(strings.Repeat("  ", g.indent))
	fmt.Fprintf(g, format+"\n", args...)
}

// long makes the code of a function longer than 128 bytes. The interpreter fills the short
// addresses of jumps in shorter code with instructions that do nothing and count as steps, so
// that steps can be compared between two ways to compile only where no address is short.
func (g *generator) long() {
	g.line(strings.Repeat("u = 1; ", 36) + "u = 2")
}

func (g *generator) word() string {
	return []string{"", "a", "ab", "abc", "x,y,z", "Weir", "größe", "line\nline", "{}", "%s", "0", "12"}[g.IntN(12)]
}

func (g *generator) scalar() string {
	switch g.IntN(7) {
	case 0:
		return fmt.Sprint(g.IntN(10))
	case 1:
		return fmt.Sprint(-g.IntN(1000))
	case 2:
		return fmt.Sprintf("%d.%d", g.IntN(9), g.IntN(9))
	case 3:
		return []string{"True", "False", "None"}[g.IntN(3)]
	case 4:
		return "123456789012345678901234567890"
	}
	return fmt.Sprintf("%q", g.word())
}

func (g *generator) variable() string { return g.vars[g.IntN(len(g.vars))] }

func (g *generator) statements(n int) {
	for range n {
		g.statement()
	}
}

func (g *generator) block() {
	g.indent++
	if g.indent > 5 {
		g.line("pass")
	} else {
		g.statements(1 + g.IntN(2))
	}
	g.indent--
}

// statement writes one statement. Variables keep their types, most of the time.
func (g *generator) statement() {
	if g.IntN(200) == 0 {
		g.line("%s = %s", g.variable(), g.expr(3, "abcdst"[g.IntN(6)]))
		return
	}
	switch g.IntN(12) {
	case 0, 1, 2:
		name := "abcdst"[g.IntN(6)]
		g.line("%c = %s", name, g.expr(3, name))
	case 3:
		g.line("%s", []string{
			"a += 1", "b += [a]", "s += 'z'", "d += (a,)", "c |= {'k': a}", "t |= set([1])", "a *= 2", "s *= 2", "b *= 2", "a //= 2", "a %= 7",
			"b += d", "a <<= 1", "t -= set([1])", "s %= ()", "a ^= 5", "a &= 7", "c['n'] = 1; c['n'] += 2; c['n'] %= 2", "b = [a]; b[0] <<= 1",
		}[g.IntN(19)])
		g.line("a %%= 1000; b = b[:6]; s = s[:9].replace('%%', 'p'); d = d[-3:]")
	case 4:
		g.line("if %s:", g.condition())
		g.block()
		if g.IntN(2) == 0 {
			g.line("else:")
			g.block()
		}
	case 5, 6:
		if g.loops > 1 {
			g.line("pass")
			return
		}
		g.inner++
		g.loops++
		if g.IntN(2) == 0 {
			g.line("for i%d in %s:", g.inner, g.iterable())
		} else {
			g.line("n%d = 0", g.inner)
			g.line("while n%d < %d:", g.inner, 1+g.IntN(4))
			g.line("  n%d += 1", g.inner)
		}
		g.block()
		g.loops--
	case 7:
		g.line("b.append(%s)", g.expr(2, 'x'))
	case 8:
		g.line("c[%s] = %s", g.expr(1, 'h'), g.expr(2, 'x'))
	case 9:
		g.line("print(%s, %s)", g.expr(2, 'x'), g.expr(1, 'x'))
	case 10:
		g.line("b = [0, 1]; b[%d], c[%q] = %s, %s", g.IntN(2), g.word(), g.expr(1, 'x'), g.expr(1, 'a'))
	case 11:
		g.line("%s", []string{"c.setdefault('l', []); t.add(" + g.expr(1, 'h') + ")", "t.discard(" + g.expr(1, 'h') + ")", "b.insert(0, " + g.expr(1, 'x') + ")", "c.update([(" + g.expr(1, 'h') + ", 1)])", "b.extend(d)"}[g.IntN(5)])
	}
}

func (g *generator) operator() string {
	return []string{"+", "+", "-", "*", "|", "&", "^"}[g.IntN(7)]
}

func (g *generator) iterable() string {
	return []string{"range(3)", "[1, 'x', None]", "list(c)", "d", "s[:5].elems()", "sorted(c.keys(), key = str)", "enumerate(d)", "zip(d, d)", "c.items()", "reversed(b[:4])"}[g.IntN(10)]
}

func (g *generator) condition() string {
	switch g.IntN(7) {
	case 0:
		return fmt.Sprintf("%s in %s", g.expr(1, 'h'), []string{"b", "c", "d", "t"}[g.IntN(4)])
	case 1:
		return fmt.Sprintf("%s not in %s", g.expr(1, 'h'), []string{"b", "c", "d", "t"}[g.IntN(4)])
	case 2:
		return fmt.Sprintf("%s == %s", g.expr(1, 'x'), g.expr(1, 'x'))
	case 3:
		return fmt.Sprintf("not (%s)", g.condition())
	case 4:
		return fmt.Sprintf("%s != %s and %s", g.expr(1, 'x'), g.expr(1, 'x'), g.condition())
	case 5:
		return fmt.Sprintf("%s <= %s", g.expr(1, 's'), g.expr(1, 's'))
	}
	return fmt.Sprintf("(%s) or %s < %d", g.condition(), g.expr(1, 'a'), g.IntN(5))
}

// expr makes an expression of a kind: that of the variable a, b, c, d, s or t, h for what
// hashes, x for anything. One in 400 is of another kind, so that there are errors.
func (g *generator) expr(depth int, kind byte) string {
	if g.IntN(400) == 0 {
		kind = "abcdst"[g.IntN(6)]
	}
	switch kind {
	case 'x':
		kind = "abcdst"[g.IntN(6)]
		if g.IntN(4) == 0 {
			return g.scalar()
		}
	case 'h':
		if g.IntN(3) == 0 {
			return fmt.Sprintf("(%s, %s)", g.expr(0, 'a'), g.expr(0, 's'))
		}
		kind = "as"[g.IntN(2)]
	}
	if depth == 0 {
		switch {
		case g.IntN(2) == 0:
			return string(kind)
		case kind == 'a':
			return fmt.Sprint(g.IntN(20))
		case kind == 's':
			return fmt.Sprintf("%q", g.word())
		}
		return string(kind)
	}
	forms := map[byte][]string{
		'a': {
			"(?a ?O ?a)", "(?a) % ?N", "(?a) // ?N", "len(?b[:3])", "len(str(?x))", "hash(?s)", "max(?a, 2, 5)", "int(str(?a))", "(lambda x: x + x)(?a)",
			"(?a if ?C else ?a)", "len([x for x in ?b if type(x) == 'int'])", "abs(?a << 3)", "min(?a, len(d))", "-(?a)",
		},
		'b': {
			"[?x, ?x]", "([?x] + [1] + list(?d))", "sorted([?a, ?a])", "sorted([?x, ?x], key = str, reverse = True)", "[(x, ?x) for x in ?I if ?C]", "?s.split(',')",
			"b[?N:]", "list(?t)", "c.values()", "list(zip(?d, [1, 2]))", "[x for x in range(?N)] * 2", "list(enumerate(?d))", "?s.splitlines()", "[?x for x in ?I for y in d if ?C]",
		},
		'c': {"{?W: ?x}", "{str(x): ?x for x in ?I}", "dict(?c, z = ?x)", "dict([(?h, ?x)])", "(?c | {1: ?x})", "{?h: ?x, 'w': 1}"},
		'd': {"(?x, ?x)", "tuple(?b)", "((?x,) + (1, 2))", "d[:2]", "(() + (3,) * 2)", "((?x,) * 2)", "tuple(reversed(?d))"},
		's': {
			"str(?x)[:40]", "repr(?s)[:20]", "?W.join([str(x) for x in ?I])[:30]", "?s.replace(?W, ?W)[:30]", "'<{}> {}'.format(?x, ?a)", "('%s-%r' % (?a, ?x))", "(?W + ?W + str(?a) + ?W)",
			"getattr(?s, 'upper')()", "?s.title()", "(?s + ?s)[:50]", "(?s * 2)[:50]", "?s.strip('a ')", "?s.partition('a')[0]", "'{0}{0}{k}'.format(?a, k = ?x)[:60]", "type(?x)", "?F",
		},
		't': {"set([?h, ?h])", "(?t | set([?h]))", "(?t & set([1, 2]))", "?t.union([?h])", "(?t - set([?h]))", "(?t ^ set([3]))"},
	}[kind]
	form := forms[g.IntN(len(forms))]
	var b strings.Builder
	for i := 0; i < len(form); i++ {
		if form[i] != '?' {
			b.WriteByte(form[i])
			continue
		}
		i++
		switch c := form[i]; c {
		case 'O':
			b.WriteString(g.operator())
		case 'N':
			fmt.Fprint(&b, 1+g.IntN(9))
		case 'W':
			fmt.Fprintf(&b, "%q", g.word())
		case 'C':
			b.WriteString(g.condition())
		case 'I':
			b.WriteString(g.iterable())
		case 'F':
			if g.infunc {
				b.WriteString("s")
			} else {
				b.WriteString("str(f(" + g.expr(depth-1, 'x') + "))[:30]")
			}
		default:
			b.WriteString(g.expr(depth-1, c))
		}
	}
	return b.String()
}
