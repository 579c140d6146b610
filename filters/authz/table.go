package authz

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge"
)

// Question is a question about a decision, as people ask it.
type Question struct {
	Server     string         `json:"server,omitempty"`
	Subject    string         `json:"subject"`
	Claims     map[string]any `json:"claims,omitempty"`
	Attributes map[string]any `json:"attributes,omitempty"` // that filters set, by their names without attr_
	Tool       string         `json:"tool,omitempty"`       // one of tool, prompt and resource, by its advertised name or URI
	Prompt     string         `json:"prompt,omitempty"`
	Resource   string         `json:"resource,omitempty"`

	// Backend and OriginalName say where the thing comes from. OriginalName is
	// the advertised name when empty.
	Backend      string `json:"backend,omitempty"`
	OriginalName string `json:"originalName,omitempty"`

	ReadOnlyHint    *bool `json:"readOnlyHint,omitempty"`
	DestructiveHint *bool `json:"destructiveHint,omitempty"`
	IdempotentHint  *bool `json:"idempotentHint,omitempty"`
	OpenWorldHint   *bool `json:"openWorldHint,omitempty"`

	Arguments map[string]any `json:"arguments,omitempty"`
	Listed    bool           `json:"listed,omitempty"` // whether a list shows it, rather than whether it may be called
}

// ask turns the question into one for a judge.
func (q *Question) ask() (ask, error) {
	a := ask{server: q.Server, open: q.Listed}
	t := &a.thing
	given := 0
	for thing, name := range map[edge.Thing]string{edge.Tool: q.Tool, edge.Prompt: q.Prompt, edge.Resource: q.Resource} {
		if name != "" {
			t.Thing, t.Name, t.Original = thing, name, name
			given++
		}
	}
	if given != 1 {
		return a, errors.New("one of tool, prompt and resource must be given")
	}
	if q.OriginalName != "" {
		t.Original = q.OriginalName
	}
	t.Backend = q.Backend
	t.ReadOnly, t.Destructive, t.Idempotent, t.OpenWorld = q.ReadOnlyHint, q.DestructiveHint, q.IdempotentHint, q.OpenWorldHint
	if q.Arguments != nil {
		text, err := jsonOf(q.Arguments)
		if err != nil {
			return a, fmt.Errorf("arguments: %w", err)
		}
		a.arguments = text
	}
	return a, nil
}

// attributes are those of the question as programs set them.
func (q *Question) attributes() (said edge.Attributes, err error) {
	for name, value := range q.Attributes {
		text, err := jsonOf(value)
		if err != nil {
			return nil, fmt.Errorf("attributes: %s: %w", name, err)
		}
		said = said.Set(name, string(text))
	}
	return said, nil
}

// Explain decides a question and says why. It keeps nothing and touches
// nothing. An error says that the question is none.
func (p *Policies) Explain(q *Question) (*Explanation, error) {
	a, err := q.ask()
	if err != nil {
		return nil, err
	}
	j := newCedarJudge(p)
	said, err := q.attributes()
	if err != nil {
		return nil, err
	}
	who := p.principalOf(&edge.Identity{Subject: q.Subject}, q.Claims, said)
	return bothWays(&a, func(a *ask) *Explanation { return j.judge(context.Background(), who, a) }), nil
}

// Table is who may do what, as expected.
type Table struct {
	Server     string               `json:"server,omitempty"` // of cases that name none
	Principals map[string]Principal `json:"principals"`
	Cases      []Case               `json:"cases"`
}

// Principal is somebody whom a table names.
type Principal struct {
	Subject string         `json:"subject"` // the table's name for it when empty
	Claims  map[string]any `json:"claims,omitempty"`

	Attributes map[string]any `json:"attributes,omitempty"` // that filters set
}

// Case is a row of a table. The question's subject, claims and attributes are
// those of As.
type Case struct {
	Name   string `json:"name,omitempty"`
	As     string `json:"as"`
	Expect string `json:"expect"` // allow or deny
	Question
}

// Verdict is how a case came out.
type Verdict struct {
	Case
	Passed      bool
	Explanation *Explanation
}

// maxTable is how large a table may be, in bytes.
const maxTable = 1 << 20

// ParseTable reads a table from YAML or JSON. The error tells of every case
// that is none.
func ParseTable(text []byte) (*Table, error) {
	if len(text) > maxTable {
		return nil, fmt.Errorf("table: more than %d bytes", maxTable)
	}
	raw, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("table: %w", err)
	}
	t := new(Table)
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	d.DisallowUnknownFields()
	if err := d.Decode(t); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) { // which speaks of types of Go
			return nil, fmt.Errorf("table: %s: a value of another type belongs here", cmp.Or(strings.Replace(wrong.Field, "Question.", "", 1), "the document"))
		}
		return nil, fmt.Errorf("table: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	var wrong []error
	if len(t.Cases) == 0 {
		wrong = append(wrong, errors.New("table: no cases"))
	}
	for i := range t.Cases {
		c := &t.Cases[i]
		fail := func(format string, args ...any) {
			wrong = append(wrong, fmt.Errorf("case %d: "+format, append([]any{i}, args...)...))
		}
		who, ok := t.Principals[c.As]
		if !ok {
			fail("as: no principal %q", c.As)
		}
		if c.Expect != "allow" && c.Expect != "deny" {
			fail("expect: must be allow or deny, not %q", c.Expect)
		}
		if c.Subject != "" || c.Claims != nil || c.Attributes != nil {
			fail("subject, claims and attributes belong to principals")
		}
		if _, err := c.ask(); err != nil {
			fail("%w", err)
		}
		c.Claims, c.Attributes = who.Claims, who.Attributes
		if c.Subject = who.Subject; c.Subject == "" {
			c.Subject = c.As
		}
		if c.Server == "" {
			c.Server = t.Server
		}
	}
	return t, errors.Join(wrong...)
}

// Test decides every case of a table that ParseTable returned. The second
// result reports whether all of them came out as expected.
func (p *Policies) Test(t *Table) ([]Verdict, bool) {
	passed := true
	verdicts := make([]Verdict, len(t.Cases))
	for i := range t.Cases {
		c := &t.Cases[i]
		e, err := p.Explain(&c.Question)
		if err != nil {
			e = deny(ReasonUnknown, Fault{What: err.Error()})
		}
		verdicts[i] = Verdict{Case: *c, Explanation: e, Passed: e.Allowed == (c.Expect == "allow")}
		passed = passed && verdicts[i].Passed
	}
	return verdicts, passed
}
