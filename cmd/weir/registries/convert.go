package registries

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/registry"
)

func (a *Commands) convert() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "convert FILE|-",
		Short: "Make the reference's format of a registry of another one",
		Long: `Make the reference's format of a registry of another one: of its older flat format, of a
server.json, or of a page of the registry API. Each entry has to be right: the first
that is not is named, and nothing is written. Nothing of an entry is lost: what the
format has no word for stands in its _meta.`,
		Example: `  weir registry convert registry.json > upstream.json
  weir registry convert registry.json -o upstream.json
  curl -s https://example.com/registry.json | weir registry convert -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usagef("give one file, or - for standard input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := a.input(args[0])
			if err != nil {
				return err
			}
			made, entries, leftOut, err := registry.Convert(text, time.Now())
			if err != nil {
				return Problem(err)
			}
			if len(leftOut) > 0 {
				a.note(cmd, "left out: %s", edge.Brief(strings.Join(leftOut, ", ")))
			}
			if output == "" {
				_, err = cli.PlainJSON(a.Out).Write(made)
				return err
			}
			if err := cli.WriteFile(output, made, 0o644); err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.Out, "%s has %s\n", edge.Brief(output), edge.Count(entries, "server"))
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "write to `FILE` in place of standard output")
	if err := cmd.MarkFlagFilename("output", "json"); err != nil {
		panic(err) // the flag was added in the line before
	}
	return cmd
}

// input reads a file, or standard input.
func (a *Commands) input(name string) ([]byte, error) {
	in := a.In
	if name != "-" {
		f, err := edge.OpenFile(name)
		if err != nil {
			return nil, cli.Usagef("%s", edge.Brief(err.Error()))
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, registry.MaxBytes+1)) // more is too large anyway
	if err == nil && name == "-" && len(text) == 0 {
		err = errNone
	}
	return text, err
}
