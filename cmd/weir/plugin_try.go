package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/plugin"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/wasm"
)

func (a *app) pluginTestCommand() *cobra.Command {
	var fixtures, only string
	cmd := &cobra.Command{
		Use:   "test [DIR|MODULE]",
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
The guest of a directory is built first.`,
		Example: `  weir plugin test
  weir plugin test admins-only --run delete
  weir schema fixtures > fixtures.schema.json
  weir plugin test other.wasm --fixtures cases.yaml`,
		Args: oneDir,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withModule(cmd.Context(), args, fixtures, func(m *wasm.Module, f *plugin.Fixtures, file string) error {
				f = f.Only(only)
				if len(f.Cases) == 0 {
					return usagef("no case of %s has %q in its name", file, only)
				}
				failed := 0
				for _, o := range plugin.Run(cmd.Context(), m, f) {
					if o.Passed() {
						fmt.Fprintf(a.out, "ok    %s\n", edge.Clean(o.Case.Name))
						continue
					}
					failed++
					fmt.Fprintf(a.out, "FAIL  %s\n", edge.Clean(o.Case.Name))
					for _, line := range o.Got {
						fmt.Fprintf(a.out, "      %s\n", edge.Clean(line))
					}
				}
				fmt.Fprintf(a.out, "%d passed, %d failed\n", len(f.Cases)-failed, failed)
				if failed > 0 {
					return &saidError{exitFault}
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&fixtures, "fixtures", "", "`FILE` with the cases (default DIR/fixtures.yaml)")
	cmd.Flags().StringVar(&only, "run", "", "ask only cases with `TEXT` in their names")
	return cmd
}

func (a *app) pluginBenchCommand() *cobra.Command {
	var fixtures string
	var each time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "bench [DIR|MODULE]",
		Short: "Measure what a guest costs",
		Long: `Measure what a guest costs: each case of fixtures.yaml is asked again and again,
and its time (the least of five rounds), fuel and memory are printed. Fuel is the
same on every machine; a filter's limits (50 million fuel and 5 ms a call, unless
set otherwise) can be chosen by it.`,
		Example: `  weir plugin bench
  weir plugin bench admins-only --time 2s
  weir plugin bench other.wasm --fixtures cases.yaml --json`,
		Args: oneDir,
		RunE: func(cmd *cobra.Command, args []string) error {
			if each <= 0 || each > time.Minute {
				return usagef("--time: %v: more than 0 and at most 1m", each)
			}
			return a.withModule(cmd.Context(), args, fixtures, func(m *wasm.Module, f *plugin.Fixtures, file string) error {
				figures, err := plugin.Measure(cmd.Context(), m, f, each)
				if err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
				if asJSON {
					text, err := json.Marshal(figures)
					if err != nil {
						return err
					}
					return writeJSON(a.out, text)
				}
				rows := [][]string{{"HOOK", "CASE", "INPUT", "TIME", "FUEL", "MEMORY"}}
				for _, f := range figures {
					rows = append(rows, []string{f.Hook, edge.Clean(f.Case), size(uint64(f.Bytes)), f.Time.String(), fmt.Sprint(f.Fuel), size(f.Memory)})
				}
				return writeTable(a.out, rows)
			})
		},
	}
	cmd.Flags().StringVar(&fixtures, "fixtures", "", "`FILE` with the cases (default DIR/fixtures.yaml)")
	cmd.Flags().DurationVar(&each, "time", 300*time.Millisecond, "about how long each case is measured")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
