package source

import (
	"reflect"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/webhook"
)

// OpenWith is Open with files of webhooks that every server of the set is to
// ask: each a webhook.File, or an MCPWebhookConfig. A webhook of a later file
// takes the place of one of the same name.
func OpenWith(path string, webhooks ...string) *Result { return Open(path, Webhooks(webhooks...)) }

// Webhooks has every server of the set ask the webhooks of files, too.
func Webhooks(files ...string) Option { return func(s *Set) { s.addWebhooks(files) } }

// OpenDefaultWith is OpenDefault with files of webhooks.
func OpenDefaultWith(demoURL string, webhooks ...string) *Result {
	s := Default(demoURL)
	s.addWebhooks(webhooks)
	return s.Compile()
}

// addWebhooks reads files of webhooks into the set.
func (s *Set) addWebhooks(files []string) {
	var all webhook.Spec
	for _, name := range files {
		data, err := readAll(name)
		if err != nil {
			s.unreadable(name, err)
			continue
		}
		documents := readFile(name, data, maxDocuments)
		if len(documents) == 0 {
			s.wrongWebhooks(name, &document{root: &node{line: 1}}, []*field.Error{{Type: field.ErrorTypeRequired, Detail: "the file holds no webhooks"}})
		}
		for _, d := range documents {
			spec, wrong := webhooksOf(d)
			s.wrongWebhooks(name, d, wrong)
			all = all.With(spec)
		}
	}
	if len(files) == 0 {
		return
	}
	if _, wrong := webhook.Parse(all); len(wrong) > 0 && len(s.findings) == 0 {
		// Each file is sound by itself: together they are too many.
		s.wrongWebhooks(files[len(files)-1], &document{root: &node{line: 1}}, wrong)
	}
	s.Webhooks = &all
}

// webhooksOf decodes one document of webhooks and says what is wrong with it.
func webhooksOf(d *document) (spec webhook.Spec, wrong field.ErrorList) {
	switch {
	case d.root == nil:
		return spec, nil
	case d.root.kind != mapping:
		d.fault(d.root, "", compile.ReasonWrongType, "webhooks are a mapping with the lists validating and mutating, not %s", d.root.describe())
		return spec, nil
	case !d.root.has("kind"):
		f := webhook.File{}
		dec := &decoder{doc: d, kind: reflect.TypeOf(f)}
		dec.decode(d.root, reflect.ValueOf(&f).Elem(), "")
		spec, wrong = f.Spec()
	case d.root.get("kind").str() != "MCPWebhookConfig":
		d.fault(d.root.get("kind"), "kind", compile.ReasonUnknownKind, "%s is not read here: write an MCPWebhookConfig, or the lists validating and mutating", quoted(d.root.get("kind")))
		return spec, nil
	default:
		o := (&Set{}).manifest(d)
		c, ok := o.Value.(*v1beta1.MCPWebhookConfig)
		if !ok {
			return spec, nil // what it lacks was said
		}
		spec = webhook.FromKind("", field.NewPath("spec"), c.Spec)
	}
	if len(d.faults) > 0 {
		return spec, nil // what is missing may be what is misspelt
	}
	_, more := webhook.Parse(spec)
	return spec, append(wrong, more...)
}

// wrongWebhooks notes what is wrong with a document of webhooks.
func (s *Set) wrongWebhooks(file string, d *document, wrong field.ErrorList) {
	note := func(line, column int, path, reason, message string) {
		s.findings = append(s.findings, Finding{
			File: file, Line: line, Column: column,
			Finding: compile.Finding{Index: -1, Path: path, Reason: reason, Message: message},
		})
	}
	for _, f := range d.faults {
		note(f.line, f.column, f.path, f.reason, f.message)
	}
	for _, e := range wrong {
		line, column := d.root.at(e.Field)
		note(line, column, e.Field, compile.ReasonInvalid, compile.Describe(e))
	}
}
