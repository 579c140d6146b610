package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/near"
)

// DidYouMean ends an error about a name that is not known.
func DidYouMean(name string, known []string, otherwise string) string {
	if _, hint := near.Hint(name, known); hint != "" {
		return ": " + hint
	}
	return ": " + otherwise
}

// MustRegister makes a flag complete to fixed values, or to nothing.
func MustRegister(cmd *cobra.Command, flag string, values []string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag was added in the line before
	}
}

// NoArgs wants a command line of flags alone.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.Flags().Lookup("config") != nil {
		return Usagef("%q is one word too many: did you mean -c %s?", args[0], args[0])
	}
	return Usagef("%q is one word too many: %s takes flags only", args[0], cmd.CommandPath())
}

// AddFormat adds --format, of which the first one is the default.
func AddFormat(cmd *cobra.Command, formats ...string) {
	cmd.Flags().String("format", formats[0], "`FORMAT` to print: "+strings.Join(formats, ", ")+"; with json errors are JSON too")
	MustRegister(cmd, "format", formats)
	args := cmd.Args
	cmd.Args = func(cmd *cobra.Command, words []string) error {
		if given := FormatOf(cmd); !slices.Contains(formats, given) {
			return Usagef("--format %q: give one of %s", edge.Brief(given), strings.Join(formats, ", "))
		}
		if args == nil {
			return nil
		}
		return args(cmd, words)
	}
}

// FormatOf is what --format says; "" for a command without it.
func FormatOf(cmd *cobra.Command) string {
	f := cmd.Flags().Lookup("format")
	if f == nil {
		return ""
	}
	return f.Value.String()
}

// WantsJSON reports whether a command prints for programs.
func WantsJSON(cmd *cobra.Command) bool { return FormatOf(cmd) == "json" }
