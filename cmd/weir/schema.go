package main

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/edge/v1beta1"
)

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema [KIND]",
		Short: "Print the JSON Schema of the kinds of manifests",
		Long: `Print the JSON Schema (draft 2020-12) of a kind of manifest, for an editor that
completes and checks what you write. Without a kind, print one JSON object that
has the schema of every kind under its name.`,
		Example: `  weir schema VirtualMCPServer > virtualmcpserver.schema.json
  weir schema > schemas.json
  weir schema MCPServerEntry`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%q is one word too many: name one kind, or none for all", args[1])
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, name := range kinds() {
				if len(args) == 0 && strings.HasPrefix(name, begun) {
					names = append(names, name)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				all, err := v1beta1.Schemas()
				if err != nil {
					return err
				}
				text, err := json.Marshal(all)
				if err != nil {
					return err
				}
				return writeJSON(a.out, text)
			}
			if !slices.Contains(kinds(), args[0]) {
				return usagef("no such kind %q%s", args[0], didYouMean(args[0], kinds(), "`weir schema` has them all"))
			}
			text, err := v1beta1.Schema(args[0])
			if err != nil {
				return err
			}
			return writeJSON(a.out, text)
		},
	}
}

func kinds() []string {
	var names []string
	for _, k := range v1beta1.Kinds() {
		names = append(names, k.Name)
	}
	return names
}

// writeJSON writes JSON text with an indent.
func writeJSON(w io.Writer, text []byte) error {
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}
