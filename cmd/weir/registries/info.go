package registries

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/registry"
)

func (a *Commands) info() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "info [NAME]",
		Short: "Show an entry of the registry, or the registry itself",
		Long: `Show an entry of the registry: what it is, how it is started and why not in another
way, what it needs, what it may reach, and who signs it. Without a name the registry
itself is shown: where it is, how many entries it has, and how old what is kept of it
is. NAME may be the last part of a name where only one entry has it.`,
		Example: `  weir registry info
  weir registry info io.github.example/files
  weir registry info files --format json`,
		Args:              oneEntry,
		ValidArgsFunction: a.Complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, func(r *registry.Registry) error {
				if len(args) == 0 {
					return a.showRegistry(cmd, r)
				}
				e, err := r.Find(args[0])
				if err != nil {
					return err
				}
				return a.showEntry(cmd, r, e)
			})
		},
	}
	cli.AddFormat(cmd, "text", "json")
	return cmd
}

// about is a registry, for programs.
type about struct {
	Source       string     `json:"source"`
	Format       string     `json:"format"`
	Entries      int        `json:"entries"`
	LeftOut      int        `json:"leftOut"`
	Reasons      []string   `json:"reasons,omitempty"`
	Older        int        `json:"olderVersions"`
	Deleted      int        `json:"deleted"`
	Fetched      *time.Time `json:"fetched,omitempty"`
	Stale        string     `json:"stale,omitempty"`
	AllowPrivate bool       `json:"allowPrivate"`
}

func (a *Commands) showRegistry(cmd *cobra.Command, r *registry.Registry) error {
	if cli.WantsJSON(cmd) {
		o := about{Source: r.Source.String(), Format: r.Format, Entries: len(r.Entries), LeftOut: r.LeftOut, Reasons: r.Reasons, Older: r.Older, Deleted: r.Deleted, AllowPrivate: r.Source.AllowPrivate}
		if !r.Fetched.IsZero() {
			o.Fetched = &r.Fetched
		}
		if r.Stale != nil {
			o.Stale = edge.Brief(r.Stale.Error())
		}
		return cli.PrintJSON(a.Out, o, "  ")
	}
	line(a.Out, "registry", r.Source.String())
	line(a.Out, "format", r.Format)
	line(a.Out, "entries", fmt.Sprint(len(r.Entries)))
	for _, n := range []struct {
		n    int
		what string
	}{{r.LeftOut, "that cannot be right"}, {r.Older, "of older versions"}, {r.Deleted, "that were deleted"}} {
		if n.n > 0 {
			line(a.Out, "left out", fmt.Sprintf("%d %s", n.n, n.what))
		}
	}
	for _, reason := range r.Reasons {
		fmt.Fprintln(a.Out, "  "+reason)
	}
	if !r.Fetched.IsZero() {
		line(a.Out, "read", age(time.Since(r.Fetched))+" ago")
	}
	if r.Source.AllowPrivate {
		line(a.Out, "may lead to", "private addresses, too")
	}
	return nil
}

// way is a way to start an entry, for programs.
type way struct {
	Field string `json:"field"`
	Type  string `json:"type"`
	Text  string `json:"text"`
	Runs  bool   `json:"runs"`
	Why   string `json:"why,omitempty"` // it is not started
}

func (a *Commands) showEntry(cmd *cobra.Command, r *registry.Registry, e *registry.Entry) error {
	rules := a.Rules(cmd.Context(), r)
	forms := e.Forms(rules)
	if cli.WantsJSON(cmd) {
		all := struct {
			Name   string          `json:"name"`
			Digest string          `json:"digest"`
			Ways   []way           `json:"ways"`
			Server json.RawMessage `json:"server"`
		}{Name: e.Name, Digest: e.Digest(), Ways: []way{}, Server: e.Text}
		for _, f := range forms {
			w := way{Field: f.Field, Type: f.Type, Text: f.Text, Runs: f.Err == nil}
			if f.Err != nil {
				w.Why = f.Err.Error()
			}
			all.Ways = append(all.Ways, w)
		}
		return cli.PrintJSON(a.Out, all, "  ")
	}
	line(a.Out, "name", e.Name)
	line(a.Out, "title", e.Title)
	line(a.Out, "version", e.Version)
	line(a.Out, "status", e.Status)
	line(a.Out, "description", edge.Cut(e.Description, 1000))
	line(a.Out, "source code", e.Repository)
	line(a.Out, "website", e.Website)
	line(a.Out, "tags", edge.Cut(strings.Join(plain(e.Tags()), ", "), 500))
	line(a.Out, "tools", edge.Cut(strings.Join(plain(e.Tools()), ", "), 2000))
	line(a.Out, "digest", e.Digest())
	for i := range e.Packages {
		a.showExtra(&e.Packages[i].Extra)
	}
	for i := range e.Remotes {
		a.showExtra(&e.Remotes[i].Extra)
	}
	for _, f := range forms {
		fmt.Fprintf(a.Out, "\n%s: %s\n", f.Type, f.Text)
		if f.Err != nil {
			fmt.Fprintln(a.Out, "  "+f.Err.Error())
			continue
		}
		for _, in := range f.Inputs() {
			fmt.Fprintln(a.Out, "  "+describe(in))
		}
	}
	form, err := e.Choose(rules)
	if err != nil {
		if known := new(registry.Error); errors.As(err, &known) && known.Next != "" {
			fmt.Fprintf(a.Out, "\nIt is not started: %s\n", known.Next)
		}
		return nil
	}
	fmt.Fprintf(a.Out, "\n%s runs it, as %s.\n", a.Paint(a.Out, cli.Advice, "weir run "+e.Name), form.Text)
	return nil
}

// showExtra shows what is said of permissions, signers and logins.
func (a *Commands) showExtra(x *registry.Extra) {
	line(a.Out, "tier", edge.Brief(registry.Plain(x.Tier)))
	if len(x.OAuth) > 0 && string(x.OAuth) != "null" {
		line(a.Out, "login", "it wants one, which `weir run` makes when the server asks for it")
	}
	if len(x.Permissions) > 0 {
		line(a.Out, "permissions", edge.Cut(registry.Plain(string(x.Permissions)), 1000))
	}
	if p := x.Provenance; p != nil {
		line(a.Out, "signed by", edge.Brief(registry.Plain(p.SignerIdentity)))
		line(a.Out, "built from", edge.Brief(registry.Plain(p.RepositoryURI)))
	}
}

// describe is an input on one line.
func describe(in registry.Described) string {
	var marks []string
	for _, m := range []struct {
		is   bool
		text string
	}{{in.Required, "required"}, {in.Secret, "secret"}} {
		if m.is {
			marks = append(marks, m.text)
		}
	}
	text := in.Kind + " " + in.Name
	if len(marks) > 0 {
		text += " (" + strings.Join(marks, ", ") + ")"
	}
	if in.Default != "" {
		text += ", else " + edge.Brief(in.Default)
	}
	if in.Description != "" {
		text += ": " + in.Description
	}
	return text
}
