package workflow

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/template/parse"
	"time"

	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/scripting"
)

// The bounds of a template and of one rendering of it. What a rendering takes is counted,
// so that the same template over the same data always ends alike: each part of a template
// that is evaluated is a step, as are a turn of a range, a name that is looked up, and 4 bytes
// of a text that are made, escaped or read; what is dearer is several. maxWork steps take
// about 100 ms at most. The clock is a second guard, for a machine that is much slower or has
// no time.
const (
	maxTemplate = 64 << 10 // bytes of text
	maxRendered = 1 << 20  // bytes
	maxTurns    = 1_000_000
	maxWork     = 3_000_000
	maxTime     = 5 * time.Second
	maxDepth    = 100    // templates within templates
	maxNested   = 10_000 // actions and parentheses within each other
)

// text is a template: the language of Go's text/template, with json, quote and fromJson.
// What is missing is an error, and so is to print nothing; objects and arrays are printed
// as JSON. It is immutable, and may be rendered many times at once.
//
// Only the parser is the package's own. Its evaluator finds methods by their names, for
// which the linker would have to keep every method of the program.
type text struct {
	plain string                 // where there is nothing to render
	trees map[string]*parse.Tree // by the names of templates; mainTree is the text itself
	known map[string]function
	reads []readOf

	declared map[string]any // the parameters, by their names

	workflow bool // it may read what is under .workflow: it says so, or takes all there is
	all      bool // it reads .steps as a whole
}

// mainTree is the name of what is not within a define.
const mainTree = "template"

// parseTemplate parses a template of at most 64 KiB.
func parseTemplate(s string) (*text, error) {
	if len(s) > maxTemplate {
		return nil, fmt.Errorf("longer than %d bytes", maxTemplate)
	}
	if !strings.Contains(s, "{{") {
		return &text{plain: s}, nil
	}
	known, names := functions(), map[string]any{}
	for name := range known {
		names[name] = true // the parser wants to know that they are there
	}
	trees, err := parse.Parse(mainTree, s, "", "", names)
	if err != nil {
		return nil, errors.New(parseCause(err))
	}
	t := &text{trees: trees, known: known, workflow: strings.Contains(s, "workflow") || takesRoot.MatchString(s)}
	v1beta1.TemplateReads(trees, mainTree, func(chain []string) { t.reads = append(t.reads, chain) })
	t.all = slices.ContainsFunc(t.reads, func(r readOf) bool { return r.at(0) == "steps" && r.at(1) == "" })
	return t, nil
}

// takesRoot is where a template may take its root as a whole: a dot before no name, or $.
var takesRoot = regexp.MustCompile(`\.([^a-zA-Z_]|$)|\$`)

// parseCause takes the position out of an error of the parser, which writes
// template: NAME:LINE: CAUSE.
func parseCause(err error) string {
	parts := strings.SplitN(err.Error(), ": ", 3)
	return scripting.Clean(parts[len(parts)-1])
}

// misprint is an error of rendering that is told as it is.
type misprint struct{ message string }

func (m *misprint) Error() string { return m.message }

func misprinted(format string, args ...any) error {
	return &misprint{fmt.Sprintf(format, args...)}
}

// wrongAt is an error of a part of a template.
func wrongAt(n parse.Node, format string, args ...any) error {
	return misprinted("<%s>: %s", n, fmt.Sprintf(format, args...))
}

// render renders the template over data, which is made of what templates read. pause is asked
// every few milliseconds, and says how long it took; nil for nobody.
func (t *text) render(data map[string]any, pause func() (time.Duration, error)) (string, error) {
	if t.trees == nil {
		return t.plain, nil
	}
	r := &rendering{text: t, began: time.Now(), look: firstLook, pause: pause}
	r.params, _ = data["params"].(map[string]any)
	f := frame{rendering: r, vars: []variable{{"$", data}}}
	if _, err := f.walk(data, t.trees[mainTree].Root); err != nil {
		return "", fmt.Errorf("template: %s", scripting.Clean(err.Error()))
	}
	return r.out.String(), nil
}

// rendering is the state of one rendering.
type rendering struct {
	text   *text
	params map[string]any
	out    strings.Builder
	began  time.Time
	work   int // of maxWork
	look   int // how much work there is when the clock is looked at
	pause  func() (time.Duration, error)
	turns  int // of range
	depth  int // of templates
	nested int // of actions and parentheses
}

// firstLook is the work before the clock is looked at, and between two looks.
const firstLook = 1 << 16

// spend counts work before it is done.
func (r *rendering) spend(n int) error {
	r.work += n
	if r.work < r.look && r.work <= maxWork {
		return nil
	}
	if r.work > maxWork {
		return misprinted("needs more than %d steps of a template", maxWork)
	}
	r.look = r.work + firstLook
	if r.pause != nil {
		waited, err := r.pause()
		if err != nil {
			return err
		}
		r.began = r.began.Add(waited)
	}
	if time.Since(r.began) > maxTime {
		return misprinted("takes longer than %s", maxTime)
	}
	return nil
}

// spendText counts the work on a number of bytes.
func (r *rendering) spendText(bytes int) error { return r.spend(bytes / 4) }

// write takes what is printed.
func (r *rendering) write(s string) error {
	if r.out.Len()+len(s) > maxRendered {
		return misprinted("renders more than %d bytes", maxRendered)
	}
	if err := r.spendText(len(s)); err != nil {
		return err
	}
	r.out.WriteString(s)
	return nil
}

// enter goes one action or parenthesis deeper; leave comes back.
func (r *rendering) enter() error {
	if r.nested++; r.nested > maxNested {
		return misprinted("nested more than %d deep", maxNested)
	}
	return nil
}

func (r *rendering) leave() { r.nested-- }

// printed is the text of a value.
func (r *rendering) printed(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", misprinted("nothing has no text")
	case string:
		return v, nil
	case digits:
		return string(v), nil
	case map[string]any, []any:
		return r.json(v)
	}
	return fmt.Sprint(v), nil
}

// json is the JSON text of a value.
func (r *rendering) json(v any) (string, error) {
	size, err := r.weighed(v)
	if err != nil {
		return "", err
	}
	return bounded(string(appendData(make([]byte, 0, size), v)))
}

// weighed counts the work on the text of a value, and says about how long it is.
func (r *rendering) weighed(v any) (int, error) {
	size := weigh(v, 2*maxRendered)
	if size > 2*maxRendered {
		return 0, misprinted("renders more than %d bytes", maxRendered)
	}
	return size, r.spend(size) // names are sorted
}

// bounded refuses a text that no rendering could hold.
func bounded(s string) (string, error) {
	if len(s) > maxRendered {
		return "", misprinted("renders more than %d bytes", maxRendered)
	}
	return s, nil
}

// readOf is one chain of names that a template reads from its root, such as
// steps, a, output.
type readOf []string

// at returns one name of the chain; "" beyond its end.
func (r readOf) at(i int) string {
	if i < len(r) {
		return r[i]
	}
	return ""
}
