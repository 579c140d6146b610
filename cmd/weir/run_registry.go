package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/registries"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/envfile"
	"github.com/weir-edge/weir/edge/registry"
	"github.com/weir-edge/weir/edge/workload"
)

// entry finds what a word names in the registry, and has what it needs given or asked for. A
// word that names nothing there is left to be read as something else.
func (a *app) entry(ctx context.Context, cmd *cobra.Command, x *runFlags) error {
	if !registries.MayBeEntry(x.Server) {
		return nil
	}
	_, here := a.program(x.Server)

	// 1. The entry.
	r, err := a.registries().Open(ctx, cmd, false)
	if err != nil {
		if here == nil && ctx.Err() == nil {
			return nil // a program of this machine, which stands behind --
		}
		if there, failed := x.HasImage(x.Server); failed == nil && there {
			return nil
		}
		return registries.Problem(err)
	}
	e, err := r.Find(x.Server)
	if known := new(registry.Error); errors.As(err, &known) && known.Kind == registry.NotFound && (here == nil || strings.Contains(x.Server, "/") && !known.Near) {
		return nil // a program of this machine, or an image
	}
	if known := new(registry.Error); errors.As(err, &known) && known.Kind == registry.NotFound {
		if there, err := x.HasImage(x.Server); err == nil && there {
			return nil
		}
	}
	if err != nil {
		return registries.Problem(err)
	}
	rules := a.registries().Rules(ctx, r)
	form, err := e.Choose(rules)
	if err != nil {
		return registries.Problem(err)
	}
	a.remark(cmd, chosen(e, form, rules))

	// 2. What it needs.
	given, err := x.given()
	if err != nil {
		return err
	}
	start, missing, err := form.Fill(e, given, nil, rules)
	if len(missing) > 0 {
		var asked map[string]string
		if asked, err = a.ask(ctx, e, missing); err != nil {
			return err
		}
		start, _, err = form.Fill(e, given, asked, rules)
	}
	if err != nil {
		return registries.Problem(err)
	}
	x.Entry = start
	return nil
}

// chosen says which of the ways to start an entry is taken, where there are several, and what
// is to be known of it.
func chosen(e *registry.Entry, form *registry.Form, rules registry.Rules) (notes []workload.Note) {
	var others []string
	for _, f := range e.Forms(rules) {
		if f.Field != form.Field {
			others = append(others, f.Type+" "+f.Text)
		}
	}
	text := e.Name + " is started as " + form.Text
	if form.Type == "remote" {
		text = e.Name + " is a server elsewhere: " + form.Text
	}
	if len(others) > 0 {
		text += "; the entry also names " + strings.Join(others, ", ")
	}
	notes = append(notes, workload.Note{Text: text})
	if e.Status == "deprecated" {
		notes = append(notes, workload.Note{Text: e.Name + " is deprecated, says the registry"})
	}
	return notes
}

// given is what the flags say of what an entry may need.
func (x *runFlags) given() (registry.Given, error) {
	variables := map[string]string{}
	for _, path := range []string{x.EnvFile, x.EnvFileDir} {
		if _, err := os.Stat(path); path == "" || err != nil {
			continue // told when the flags are read
		}
		of, err := envfile.Read(path)
		if err != nil {
			return registry.Given{}, usagef("%s", err)
		}
		for _, text := range of {
			name, value, _ := strings.Cut(text, "=")
			variables[name] = value
		}
	}
	for _, text := range x.Env { // which win over files
		name, value, _ := strings.Cut(text, "=")
		variables[name] = value
	}
	for _, text := range x.Secrets {
		if _, target, ok := strings.Cut(text, ",target="); ok {
			variables[target] = "" // it is read when the program starts
		}
	}
	headers := map[string]bool{}
	for _, text := range slices.Concat(x.RemoteForwardHeaders, x.RemoteForwardHeadersSecret) {
		name, _, _ := strings.Cut(text, "=")
		headers[strings.ToLower(name)] = true
	}
	if name := x.CredentialHeader(); name != "" {
		headers[strings.ToLower(name)] = true
	}
	return registry.Given{
		Args:        len(x.Args) > 0,
		Port:        x.TargetPort,
		Environment: func(name string) (string, bool) { value, ok := variables[name]; return value, ok },
		Header:      func(name string) bool { return headers[strings.ToLower(name)] },
	}, nil
}

// ask asks for what an entry needs. Where there is nobody to ask, the error names all of it.
func (a *app) ask(ctx context.Context, e *registry.Entry, missing []registry.Missing) (map[string]string, error) {
	if !terminal(a.in) {
		var names, how []string
		for _, m := range missing {
			name := m.Label
			if m.Description != "" {
				name += " (" + m.Description + ")"
			}
			names = append(names, name)
			if !slices.Contains(how, m.How) {
				how = append(how, m.How)
			}
		}
		return nil, &workload.Error{Code: workload.CodeInvalid, Message: e.Name + " needs " + strings.Join(names, ", ") + ", and there is no terminal to ask at", Next: "give " + strings.Join(how, ", ")}
	}
	asked := map[string]string{}
	for _, m := range missing {
		value, err := a.askFor(ctx, m)
		if err != nil {
			return nil, err
		}
		asked[m.ID] = value
	}
	return asked, nil
}

// askFor asks for one value until it is one.
func (a *app) askFor(ctx context.Context, m registry.Missing) (string, error) {
	if m.Description != "" {
		fmt.Fprintln(a.err, a.paint(a.err, dim, m.Description))
	}
	prompt := m.Label
	if len(m.Choices) > 0 {
		prompt += " (" + edge.Brief(registry.Plain(strings.Join(m.Choices, ", "))) + ")"
	}
	const tries = 3
	for try := 1; ; try++ {
		var (
			text string
			err  error
		)
		if m.Secret {
			var unseen edge.Secret
			unseen, _, err = a.secrets().AskUnseen(ctx, prompt+": ")
			text = string(unseen)
		} else {
			text, err = a.askLine(ctx, prompt+": ")
		}
		if err != nil {
			return "", err
		}
		wrong := m.Check(text)
		if wrong == nil {
			return text, nil
		}
		if try == tries {
			return "", &workload.Error{Code: workload.CodeInvalid, Message: wrong.Error(), Next: "give " + m.How}
		}
		fmt.Fprintln(a.err, wrong)
	}
}

// askLine asks for a line on the terminal.
func (a *app) askLine(ctx context.Context, prompt string) (string, error) {
	fmt.Fprint(a.err, prompt)
	type answer struct {
		text string
		err  error
	}
	answered := make(chan answer, 1)
	go func() { // ends with a line, or with the process
		// A byte at a time: what follows may be for who asks next.
		var line []byte
		one := make([]byte, 1)
		for {
			n, err := a.in.Read(one)
			if n == 0 && err != nil {
				answered <- answer{"", fmt.Errorf("the terminal: %w", err)}
				return
			}
			if n > 0 && (one[0] == '\n' || len(line) > 64<<10) {
				answered <- answer{strings.TrimSuffix(string(line), "\r"), nil}
				return
			}
			line = append(line, one[:n]...)
		}
	}()
	select {
	case got := <-answered:
		return got.text, got.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
