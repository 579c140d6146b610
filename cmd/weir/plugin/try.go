package plugin

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/show"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/guest"
	"github.com/weir-edge/weir/wasm"
)

func (a *commands) pluginTestCommand() *cobra.Command {
	var fixtures, only string
	cmd := &cobra.Command{
		Use:   "test [DIR|FILE]",
		Short: "Ask a guest the cases of fixtures",
		Long: `Ask a guest the cases of fixtures.yaml, as an edge would: it is metered, has the
grants and the configuration that the file gives, and sees of an input what it
subscribed to. What it answers is judged as the edge judges it: what the edge
would answer with 503 fails, in the words of its log. Differences are printed, and
the exit code is 1 then.

A case has a name, a hook, an input, and the ops that must come back; or an error
that it must end with; or asked: false. config, grants, keys and isolation at the
top are for all cases that have none. "weir schema fixtures" has every field.

Each case is asked of a guest of its own, with an empty store: a failure has no
consequences for others. after names cases that the same guest is asked before.
The guest of a directory is built first; FILE is a module or a script.`,
		Example: `  weir plugin test
  weir plugin test admins-only --run delete
  weir schema fixtures > fixtures.schema.json
  weir plugin test other.wasm --fixtures cases.yaml
  weir plugin test other.star --fixtures cases.yaml`,
		Args: oneDir,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withProgram(cmd.Context(), args, fixtures, func(p *Program, f *Fixtures, file string) error {
				f = f.Only(only)
				if len(f.Cases) == 0 {
					return cli.Usagef("no case of %s has %q in its name", file, only)
				}
				failed := 0
				for _, o := range RunProgram(cmd.Context(), p, f) {
					if o.Passed() {
						fmt.Fprintf(a.Out, "ok    %s\n", edge.Clean(o.Case.Name))
						continue
					}
					failed++
					fmt.Fprintf(a.Out, "FAIL  %s\n", edge.Clean(o.Case.Name))
					for _, line := range o.Got {
						fmt.Fprintf(a.Out, "      %s\n", edge.Clean(line))
					}
				}
				_, err := fmt.Fprintf(a.Out, "%d passed, %d failed\n", len(f.Cases)-failed, failed)
				if failed > 0 {
					return cli.Said(cli.ExitFault)
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&fixtures, "fixtures", "", "`FILE` with the cases (default DIR/fixtures.yaml)")
	cmd.Flags().StringVar(&only, "run", "", "ask only cases with `TEXT` in their names")
	return cmd
}

func (a *commands) pluginBenchCommand() *cobra.Command {
	var fixtures, set string
	var each time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "bench [DIR|FILE]",
		Short: "Measure what a guest costs",
		Long: `Measure what a guest costs: each case of fixtures.yaml is asked again and again,
and its time (the least of five rounds), fuel, memory, input and output are
printed, each with its share of the limit of one call. Fuel is the same on every
machine. The limits are those that a filter has unless it sets others (50 million
fuel and 5 ms of a processor a call); --limits takes those that yours sets. The fuel
of a script counts steps, and it has no memory of its own.

Then the case with the longest text of each hook is asked with texts of 1 KiB to
1,000 KiB: its longest string in the result, the arguments or the event, said
again and again. Where a limit is met, the size at which it is met first is
looked for, to a tenth.

In JSON, times are nanoseconds, sizes are bytes, and a share of 1 is all of the
limit.`,
		Example: `  weir plugin bench
  weir plugin bench admins-only --time 2s --limits '{timeout: 20ms, memory: 8Mi}'
  weir plugin bench other.wasm --fixtures cases.yaml --json`,
		Args: oneDir,
		RunE: func(cmd *cobra.Command, args []string) error {
			if each <= 0 || each > time.Minute {
				return cli.Usagef("--time: %v: more than 0 and at most 1m", each)
			}
			limits, err := limitsOf(set)
			if err != nil {
				return err
			}
			return a.withProgram(cmd.Context(), args, fixtures, func(p *Program, f *Fixtures, file string) error {
				b, err := MeasureProgram(cmd.Context(), p, f, limits, each)
				if err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
				if asJSON {
					text, err := json.Marshal(b)
					if err != nil {
						return err
					}
					return cli.WriteJSON(a.Out, text)
				}
				return a.writeBench(b)
			})
		},
	}
	cmd.Flags().StringVar(&fixtures, "fixtures", "", "`FILE` with the cases (default DIR/fixtures.yaml)")
	cmd.Flags().StringVar(&set, "limits", "", "`LIMITS` of the filter, as its manifest has them under spec.limits")
	cmd.Flags().DurationVar(&each, "time", 300*time.Millisecond, "about how long each case, and each size, is measured")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// limitsOf reads the limits of a filter as a manifest has them.
func limitsOf(text string) (wasm.Limits, error) {
	filter := v1beta1.EdgeFilter{Spec: v1beta1.EdgeFilterSpec{Limits: &v1beta1.FilterLimits{}}}
	if err := source.Decode("--limits", []byte(text), filter.Spec.Limits).Err(); err != nil {
		return wasm.Limits{}, cli.Usagef("%v", err)
	}
	for _, wrong := range filter.Validate() {
		if strings.HasPrefix(wrong.Field, "spec.limits") {
			return wasm.Limits{}, cli.Usagef("--limits: %v", wrong)
		}
	}
	s := guest.FromObject(&filter, nil, "", nil)
	if s.Isolation != "" || s.Instances != 0 {
		return wasm.Limits{}, cli.Usagef("--limits: isolation stands in the fixtures, and one instance is measured: leave both out")
	}
	return wasm.Limits{Timeout: s.Timeout, Fuel: s.Fuel, Memory: uint64(s.Memory), Output: uint64(s.Output)}, nil
}

// writeBench prints what a guest costs, for people.
func (a *commands) writeBench(b *Bench) error {
	l := &b.Limits
	memory := ""
	if l.Memory > 0 {
		memory = size(l.Memory) + " of memory, "
	}
	fmt.Fprintf(a.Out, "The limits of a call: %v of a processor, %d fuel, %s%s of input, %s of output.\n\n", l.Time, l.Fuel, memory, size(l.Input), size(l.Output))
	costs := func(c *Cost, s *Share) []string {
		all := []string{size(c.Input) + share(s.Input), digits(c.Time) + share(s.Time), fmt.Sprint(c.Fuel) + share(s.Fuel), size(c.Output) + share(s.Output)}
		if l.Memory > 0 {
			all = slices.Insert(all, 3, size(c.Memory)+share(s.Memory))
		}
		return all
	}
	titles := []string{"INPUT", "TIME", "FUEL", "OUTPUT"}
	if l.Memory > 0 {
		titles = slices.Insert(titles, 3, "MEMORY")
	}
	rows := [][]string{append([]string{"HOOK", "CASE"}, titles...)}
	for i := range b.Cases {
		f := &b.Cases[i]
		rows = append(rows, append([]string{f.Hook, edge.Clean(f.Case)}, costs(&f.Cost, &f.Share)...))
	}
	if err := show.Table(a.Out, rows); err != nil {
		return err
	}
	for _, s := range b.Sweeps {
		fmt.Fprintf(a.Out, "\n%s, %s, with longer texts:\n", s.Hook, edge.Clean(s.Case))
		rows := [][]string{append([]string{"TEXT"}, titles...)}
		for i := range s.Sizes {
			n := &s.Sizes[i]
			row := []string{size(uint64(n.Text)), edge.Clean(n.Failed)}
			if n.Failed == "" {
				row = append(row[:1], costs(&n.Cost, &n.Share)...)
			}
			rows = append(rows, row)
		}
		if err := show.Table(a.Out, rows); err != nil {
			return err
		}
		if s.Met == "" {
			fmt.Fprintln(a.Out, "No limit is met.")
		} else {
			fmt.Fprintf(a.Out, "The first limit that is met: %s, at about %s of text.\n", s.Met, size(uint64(s.Text)))
		}
	}
	return nil
}

// share is how much something is of its limit, for people.
func share(s float64) string {
	switch percent := 100 * s; {
	case percent == 0:
		return ""
	case percent < 0.1:
		return " (<0.1%)"
	case percent < 10:
		return fmt.Sprintf(" (%.1f%%)", percent)
	default:
		return fmt.Sprintf(" (%.0f%%)", percent)
	}
}

// digits is a time to three digits.
func digits(d time.Duration) string {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit).String()
}
