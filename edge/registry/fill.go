package registry

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/edge"
)

// Given is what the user says of a server besides the name of its entry.
type Given struct {
	Args        bool                                      // arguments of its program: those of the entry are not used
	Port        int                                       // where its program listens; 0 for what the entry says
	Environment func(name string) (value string, ok bool) // a variable; "" for the value of a secret
	Header      func(name string) bool                    // a header
}

// Value is a value that an entry gives, or that was asked for.
type Value struct {
	Name, Value string
	Secret      bool
}

// Start is all that it takes to start what an entry describes.
type Start struct {
	Name    string // of the entry
	Digest  string
	Image   string   // of a container; "" for others
	Command []string // of this machine, or the arguments of the image; nil for a server at a URL
	URL     string
	Private bool // the URL may lead to a private address

	Transport string // stdio, streamable-http or sse
	Port      int    // of a command that speaks HTTP; 0 for none
	Env       []Value
	Headers   []Value
	Secrets   []string // names of variables and headers that are secrets, and that the user gives
	Profile   []byte   // JSON of a permission profile; nil for none

	// Signer is who has to have signed the image; nil where the entry does not say.
	Signer *Provenance
}

// IsSecret reports whether the entry calls what the user gives by a name a secret; none does of nil.
func (s *Start) IsSecret(name string) bool {
	return s != nil && slices.ContainsFunc(s.Secrets, func(secret string) bool { return strings.EqualFold(secret, name) })
}

// Missing is a value that has to come from the user.
type Missing struct {
	ID          string // by which Fill takes it
	Label       string // what is asked for: a name of a variable, an argument, a header
	Description string
	Choices     []string
	Format      string
	Secret      bool
	How         string // what gives it on a command line
}

// Check says why a text is no value of what is missing; nil where it is one.
func (m *Missing) Check(text string) error {
	switch {
	case text == "":
		return fmt.Errorf("%s: it is empty", m.Label)
	case len(text) > maxValue:
		return fmt.Errorf("%s: it has more than %d bytes", m.Label, maxValue)
	case strings.ContainsAny(text, "\x00\r\n"):
		return fmt.Errorf("%s: it is not one line of text", m.Label)
	}
	return m.fits(text)
}

// fits is Check for the choices and the format alone.
func (m *Missing) fits(text string) error {
	if len(m.Choices) > 0 && !slices.Contains(m.Choices, text) {
		return fmt.Errorf("%s: give one of %s", m.Label, Plain(strings.Join(m.Choices, ", ")))
	}
	switch m.Format {
	case "number":
		if _, err := strconv.ParseFloat(text, 64); err != nil {
			return fmt.Errorf("%s: give a number", m.Label)
		}
	case "boolean":
		if text != "true" && text != "false" {
			return fmt.Errorf("%s: give true or false", m.Label)
		}
	}
	return nil
}

// filler fills in the inputs of a form.
type filler struct {
	asked   map[string]string
	missing []Missing
	used    map[string]Input // values of inputs of a program, by the names that its URL may have for them
}

// use notes the value that an input of a program has.
func (fill *filler) use(in Input, value string) {
	for _, name := range []string{in.Name, strings.TrimLeft(in.Name, "-"), in.ValueHint} {
		if name != "" && value != "" {
			fill.used[name] = Input{Value: &value}
		}
	}
}

// Fill fills in the inputs of a form of an entry: fixed values, defaults, and those that were
// asked for, by the ID of what was missing. It returns all that is missing at once, and then
// no Start. An error is an *Error.
func (f *Form) Fill(e *Entry, given Given, asked map[string]string, rules Rules) (*Start, []Missing, error) {
	if f.Err != nil {
		return nil, nil, f.Err
	}
	header := func(name string) (string, bool) { return "", given.Header != nil && given.Header(name) }
	s := &Start{Name: e.Name, Digest: e.Digest(), Command: slices.Clone(f.command), Transport: f.transport, Profile: f.profile, Signer: f.signer}
	fill := &filler{asked: asked, used: map[string]Input{}}

	// 1. The words of a command.
	if f.command != nil && !given.Args {
		for i, in := range f.args {
			words, err := fill.argument(fmt.Sprintf("%s.packageArguments[%d]", f.Field, i), in)
			if err != nil {
				return nil, nil, err
			}
			s.Command = append(s.Command, words...)
		}
	}

	// 2. The environment, and headers.
	for _, list := range []struct {
		field  string
		inputs []Input
		given  func(string) (string, bool)
		to     *[]Value
		how    func(in *Input) string
	}{
		{"environmentVariables", f.env, given.Environment, &s.Env, func(in *Input) string {
			if in.secret() {
				return "--secret NAME,target=" + in.Name
			}
			return "-e " + in.Name + "=VALUE"
		}},
		{"headers", f.headers, header, &s.Headers, func(in *Input) string {
			if strings.EqualFold(in.Name, "Authorization") {
				return "--remote-auth-bearer-token-file FILE"
			}
			if in.secret() {
				return "--remote-forward-headers-secret " + in.Name + "=SECRET"
			}
			return "--remote-forward-headers " + in.Name + "=VALUE"
		}},
	} {
		for i, in := range list.inputs {
			if list.given != nil {
				if value, ok := list.given(in.Name); ok {
					fill.use(in, value)
					if in.secret() {
						s.Secrets = append(s.Secrets, in.Name)
					}
					continue
				}
			}
			at := fmt.Sprintf("%s.%s[%d]", f.Field, list.field, i)
			value, ok, secret := fill.value(at, in.Name, list.how(&in), in)
			if !ok {
				continue
			}
			if strings.ContainsAny(value, "\x00\r\n") {
				return nil, nil, refused(at, "%s: its value is not one line of text", Plain(in.Name))
			}
			fill.use(in, value)
			*list.to = append(*list.to, Value{in.Name, value, secret})
		}
	}

	// 3. Where it is.
	if f.url != "" {
		if err := f.place(s, fill, given, rules); err != nil {
			return nil, nil, err
		}
	}
	if len(fill.missing) > 0 {
		return nil, fill.missing, nil
	}
	if f.Type == "oci" {
		s.Image, s.Command = s.Command[0], s.Command[1:]
	}
	return s, nil, nil
}

// place finds the URL of a remote, or the port of a program.
func (f *Form) place(s *Start, fill *filler, given Given, rules Rules) error {
	if f.command != nil {
		return f.listens(s, fill, given.Port)
	}
	missing := len(fill.missing)
	text, complete, _ := fill.template(f.Field+".url", "weir run URL", f.url, f.variables)
	if len(fill.missing) > missing {
		return nil
	}
	if !complete || strings.ContainsAny(text, "{}") {
		return refused(f.Field+".url", "%s names a variable that the entry does not describe, or gives no value", shown(f.url))
	}
	if err := f.judgeURL(text, rules.Source); err != nil {
		return err
	}
	s.URL, s.Private = text, f.private
	return nil
}

// listens finds the port of a program. The variables of its URL are inputs of the program, and
// have the values that these have.
func (f *Form) listens(s *Start, fill *filler, given int) (err error) {
	at := f.Field + ".transport.url"
	text, _, _ := fill.template(at, "", f.url, fill.used)
	if given > 0 { // and what else was to be it
		text = placePattern.ReplaceAllLiteralString(text, strconv.Itoa(given))
	}
	switch {
	case !strings.ContainsAny(text, "{}"):
	case len(fill.missing) > 0: // one of which it may be
		return nil
	default:
		return &Error{Kind: Invalid, Field: at, Message: shown(f.url) + " names a variable to which neither the entry nor you give a value", Next: "say where it listens: --target-port PORT"}
	}
	if s.Port, err = portOf(text, f.transport, given); err != nil {
		return later(at, "start it yourself: weir run --transport "+f.transport+" --target-port PORT -- COMMAND", "%s %s", shown(f.url), err)
	}
	return nil
}

// argument is one argument of a program, as words of its command line. No shell reads them.
func (fill *filler) argument(at string, in Input) ([]string, error) {
	label := in.Name
	if in.secret() && (in.Value != nil || in.Default != "" || in.IsRequired) {
		e := refused(at, "%s: everybody on this machine sees the arguments of a program, and this one is a secret", Plain(cmp.Or(in.Name, in.ValueHint)))
		e.Next = "where that does not matter, give all arguments yourself, after --"
		return nil, e
	}
	switch in.Type {
	case "named":
		if in.Name == "" {
			return nil, refused(at+".name", "a named argument has one")
		}
		if in.Value == nil && in.Default == "" && in.ValueHint == "" && in.Placeholder == "" && len(in.Choices) == 0 && (in.Format == "" || in.Format == "boolean") && !in.IsSecret {
			// A switch: the user's to turn on, where the entry does not.
			if in.IsRequired {
				return []string{in.Name}, nil
			}
			return nil, nil
		}
	case "positional", "":
		label = in.ValueHint
		if label == "" {
			label = "an argument"
		}
	default:
		return nil, refused(at+".type", "%s is neither positional nor named", shown(in.Type))
	}
	value, ok, _ := fill.value(at, label, "the arguments after --", in)
	if ok {
		fill.use(in, value)
	}
	switch {
	case !ok:
		return nil, nil
	case strings.ContainsRune(value, 0):
		return nil, refused(at, "%s: its value holds a NUL byte", Plain(label))
	case in.Type == "named" && value == "":
		return []string{in.Name}, nil
	case in.Type == "named":
		return []string{in.Name, value}, nil
	}
	return []string{value}, nil
}

// secret reports whether an input, or one of its variables, is a secret.
func (in *Input) secret() bool {
	if in.IsSecret {
		return true
	}
	for _, v := range in.Variables {
		if v.IsSecret {
			return true
		}
	}
	return false
}

// value is the value of an input; ok is false where it has none, which is noted where it
// needs one.
func (fill *filler) value(at, label, how string, in Input) (value string, ok, secret bool) {
	if in.Value != nil {
		value, ok, secret = fill.template(at, how, *in.Value, in.Variables)
		return value, ok, secret || in.IsSecret
	}
	if text, is := fill.asked[at]; is {
		return text, true, in.IsSecret
	}
	if in.Default != "" && in.fits() {
		return in.Default, true, in.IsSecret
	}
	if in.IsRequired || in.Default != "" {
		fill.need(at, label, how, in)
	}
	return "", false, in.IsSecret
}

// fits reports whether the default of an input is what its own choices and format allow. One
// that is not is asked for, as if the entry required it and named none.
func (in *Input) fits() bool {
	return (&Missing{Choices: in.Choices, Format: in.Format}).fits(in.Default) == nil
}

func (fill *filler) need(id, label, how string, in Input) {
	fill.missing = append(fill.missing, Missing{
		ID: id, Label: Plain(label), Description: edge.Brief(Plain(in.Description)), Choices: in.Choices, Format: in.Format, Secret: in.IsSecret, How: how,
	})
}

// placePattern is a place in a value that a variable fills. A $ before it is nothing special.
var placePattern = regexp.MustCompile(`\{[A-Za-z_][A-Za-z0-9_.-]*\}`)

// template fills the variables of a value in. What is no variable of it stays as it is. ok is
// false where a variable has no value: it is noted where one is required.
func (fill *filler) template(at, how, text string, variables map[string]Input) (value string, ok, secret bool) {
	ok = true
	value = placePattern.ReplaceAllStringFunc(text, func(place string) string {
		name := place[1 : len(place)-1]
		in, known := variables[name]
		if !known {
			return place
		}
		secret = secret || in.IsSecret
		switch answer, asked := fill.asked[at+"."+name]; {
		case in.Value != nil:
			return *in.Value
		case asked:
			return answer
		case in.Default != "" && in.fits():
			return in.Default
		case in.IsRequired, in.Default != "":
			if !slices.ContainsFunc(fill.missing, func(m Missing) bool { return m.ID == at+"."+name }) {
				fill.need(at+"."+name, name, how, in)
			}
		}
		ok = false
		return place
	})
	if len(value) > 4*maxValue {
		return "", false, secret
	}
	return value, ok, secret
}

// Described is an input of a form, for people.
type Described struct {
	Kind        string // argument, environment, header, or variable of one of these or of the URL
	Name        string
	Description string
	Default     string
	Required    bool
	Secret      bool
}

// Inputs are what a form takes from its user: not what is fixed.
func (f *Form) Inputs() (all []Described) {
	add := func(kind, name string, in Input) {
		if in.Value != nil {
			return
		}
		all = append(all, Described{kind, edge.Brief(Plain(name)), edge.Brief(Plain(in.Description)), Plain(in.Default), in.IsRequired, in.IsSecret})
	}
	variables := func(of map[string]Input) {
		for _, name := range slices.Sorted(maps.Keys(of)) {
			add("variable", name, of[name])
		}
	}
	for _, list := range []struct {
		kind   string
		inputs []Input
	}{{"argument", f.args}, {"environment", f.env}, {"header", f.headers}} {
		for _, in := range list.inputs {
			add(list.kind, cmp.Or(in.Name, in.ValueHint), in)
			variables(in.Variables)
		}
	}
	variables(f.variables)
	return all
}
