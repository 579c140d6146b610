package main

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/plugin"
	"github.com/weir-edge/weir/edge/v1beta1"
)

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema [KIND]",
		Short: "Print the JSON Schema of the kinds of manifests",
		Long: `Print the JSON Schema (draft 2020-12) of a kind of manifest, for an editor that
completes and checks what you write. Without a kind, print one JSON object that
has the schema of every kind under its name. A kind goes by its short names, too,
such as vmcp.

"fixtures" and "plugin" stand for the files fixtures.yaml and plugin.yaml of a
guest.`,
		Example: `  weir schema VirtualMCPServer > virtualmcpserver.schema.json
  weir schema > schemas.json
  weir schema vmcp
  weir schema fixtures > fixtures.schema.json
  weir schema plugin > plugin.schema.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%q is one word too many: name one kind, or none for all", args[1])
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, name := range append(kinds(), plugin.SchemaNames()...) {
				if len(args) == 0 && strings.HasPrefix(name, begun) {
					names = append(names, name)
				}
			}
			for _, k := range v1beta1.Kinds() {
				for _, short := range k.ShortNames {
					if len(args) == 0 && begun != "" && strings.HasPrefix(short, begun) {
						names = append(names, short+"\t"+k.Name)
					}
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
				return cli.WriteJSON(a.out, text)
			}
			if k, ok := v1beta1.KindCalled(args[0]); ok {
				args[0] = k.Name
			}
			known := append(kinds(), plugin.SchemaNames()...)
			if !slices.Contains(known, args[0]) {
				var short []string
				for _, k := range v1beta1.Kinds() {
					short = append(short, k.ShortNames...)
				}
				return usagef("no such kind %q%s", args[0], didYouMean(args[0], append(known, short...), "`weir schema` has them all"))
			}
			of := v1beta1.Schema
			if slices.Contains(plugin.SchemaNames(), args[0]) {
				of = plugin.Schema
			}
			text, err := of(args[0])
			if err != nil {
				return err
			}
			return cli.WriteJSON(a.out, text)
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
