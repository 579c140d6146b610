package registries

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/show"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/registry"
)

// found is one entry, for programs.
type found struct {
	Name        string   `json:"name"`
	Title       string   `json:"title,omitempty"`
	Description string   `json:"description,omitempty"`
	Version     string   `json:"version,omitempty"`
	Status      string   `json:"status"`
	Runs        string   `json:"runs,omitempty"` // npm, pypi, oci, remote: what it is started as; "" for what is not started
	Tags        []string `json:"tags,omitempty"`
	Tools       []string `json:"tools,omitempty"`
}

// Width of descriptions in tables, in characters, and how many entries a search shows.
const (
	maxDescription = 70
	usualFound     = 20
)

func (a *Commands) list() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List all entries of the registry",
		Long: `List all entries of the registry: the name of each, its version, what it is started as
(npm and pypi by package runners of this machine, oci in a container, remote at a URL; -
for what is not supported yet, or refused), and what it is.`,
		Example: `  weir registry list
  weir registry list --format json`,
		Args:              cli.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd, func(r *registry.Registry) error {
				if err := a.table(cmd, r, r.Entries); err != nil || cli.WantsJSON(cmd) {
					return err
				}
				a.leftOut(cmd, r)
				return nil
			})
		},
	}
	cli.AddFormat(cmd, "text", "json")
	return cmd
}

// Search is `weir search`.
func (a *Commands) Search() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "search WORD...",
		Short: "Search the registry of MCP servers",
		Long: `Search the registry for entries in which all words occur, without regard to case: in
their names, titles, tags, descriptions and the names of their tools. The best come
first. "weir registry info NAME" shows one, "weir run NAME" runs it.`,
		Example: `  weir search files
  weir search github issues
  weir search weather --limit 0 --format json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("give a word to search for; `weir registry list` shows all entries")
			}
			for _, word := range args {
				if strings.TrimSpace(word) == "" {
					return cli.Usagef("an empty word is in everything: give one to search for")
				}
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, words []string) error {
			if limit < 0 {
				return cli.Usagef("--limit %d: give how many to show, 0 for all", limit)
			}
			return a.with(cmd, func(r *registry.Registry) error {
				all := r.Search(words...)
				shown := all
				if limit > 0 && len(all) > limit {
					shown = all[:limit]
				}
				if len(all) == 0 && !cli.WantsJSON(cmd) {
					fmt.Fprintf(a.Err, "Nothing in the registry %s has %s: `weir registry list` shows what there is.\n", r.Source, edge.Brief(strings.Join(words, " and ")))
					return nil
				}
				if err := a.table(cmd, r, shown); err != nil || cli.WantsJSON(cmd) {
					return err
				}
				if n := len(all) - len(shown); n > 0 {
					fmt.Fprintf(a.Err, "%s not shown: --limit 0 shows all.\n", more(n))
				}
				return nil
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", usualFound, "show at most `N`; 0 for all")
	cli.MustRegister(cmd, "limit", nil)
	cli.AddFormat(cmd, "text", "json")
	return cmd
}

func more(n int) string {
	if n == 1 {
		return "1 entry is"
	}
	return fmt.Sprintf("%d entries are", n)
}

// table shows entries.
func (a *Commands) table(cmd *cobra.Command, r *registry.Registry, entries []*registry.Entry) error {
	if cli.WantsJSON(cmd) {
		all := make([]found, 0, len(entries))
		for _, e := range entries {
			all = append(all, found{e.Name, e.Title, e.Description, e.Version, e.Status, runs(e, r), plain(e.Tags()), plain(e.Tools())})
		}
		return cli.PrintJSON(a.Out, all, "  ")
	}
	rows := [][]string{{"NAME", "VERSION", "RUNS AS", "DESCRIPTION"}}
	for _, e := range entries {
		text := e.Description
		if text == "" {
			text = e.Title
		}
		if e.Status == "deprecated" {
			text = "(deprecated) " + text
		}
		rows = append(rows, []string{e.Name, dash(e.Version), dash(runs(e, r)), cut(text, maxDescription)})
	}
	return show.Table(a.Out, rows)
}

// runs is what an entry is started as; "" for what is not started.
func runs(e *registry.Entry, r *registry.Registry) string {
	form, err := e.Choose(rules(r))
	if err != nil {
		return ""
	}
	return form.Type
}

// leftOut says what of the registry is not shown.
func (a *Commands) leftOut(cmd *cobra.Command, r *registry.Registry) {
	if len(r.Entries) == 0 {
		fmt.Fprintf(a.Err, "The registry %s has no entries.\n", r.Source)
	}
	if r.LeftOut > 0 {
		a.note(cmd, "%s of the registry cannot be right, the first: %s", edge.Count(r.LeftOut, "server"), r.Reasons[0])
	}
}

func plain(texts []string) (all []string) {
	for _, t := range texts {
		all = append(all, registry.Plain(t))
	}
	return all
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return cut(text, 32)
}

// cut cuts a text to so many characters.
func cut(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// line writes a name and what it has.
func line(w io.Writer, name, value string) {
	if value != "" {
		fmt.Fprintf(w, "%-13s%s\n", name+":", value)
	}
}
