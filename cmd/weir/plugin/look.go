package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/show"
	"github.com/weir-edge/weir/edge"
)

func (a *commands) pluginInspectCommand() *cobra.Command {
	var config string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inspect [DIR|FILE]",
		Short: "Say what a module or a script is and what it wants",
		Long: `Say what a module is and what it wants: its digest, the hooks that it asks to be
asked at and of which messages, the host functions that it imports and the grants
that these stand behind, and what it says of itself (plugin.yaml), with the schema
of its configuration.

The module is checked as the edge does, and started, in the sandbox of the edge
and with all grants, with the configuration of plugin.yaml or that of --config.
When it refuses to start, its subscriptions are not known. Of a script likewise: what
it imports are the functions that it calls which stand behind grants.`,
		Example: `  weir plugin inspect admins-only.wasm
  weir plugin inspect admins-only.wasm --config '{"group":"admin"}'
  weir plugin inspect --json`,
		Args: oneDir,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.targetOf(cmd.Context(), dirOf(args))
			if err != nil {
				return err
			}
			if config == "" && t.project != nil {
				config = string(t.project.Config)
			}
			if config = strings.TrimSpace(config); config != "" && (config[0] != '{' || !json.Valid([]byte(config))) {
				return cli.Usagef("--config: it is no JSON object")
			}
			r, err := Inspect(cmd.Context(), t.module, CacheDir(), config)
			if err != nil {
				return err
			}
			if r.Manifest == nil && t.project != nil {
				r.Manifest = &t.project.Manifest
			}
			if asJSON {
				text, err := json.Marshal(r)
				if err != nil {
					return err
				}
				return cli.WriteJSON(a.Out, text)
			}
			return a.writeReport(r)
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "`JSON` to start the module with")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *commands) writeReport(r *Report) error {
	list := func(names []string, none string) string {
		if len(names) == 0 {
			return none
		}
		return edge.Clean(strings.Join(names, " "))
	}
	kind, script := "module", IsScript(r.File)
	if script {
		kind = "script"
	}
	rows := [][]string{{kind, edge.Clean(r.File)}, {"sha256", r.Digest}, {"size", size(uint64(r.Size))}}
	if !script {
		rows = append(rows, []string{"memory", size(r.Memory)})
	}
	if m := r.Manifest; m != nil {
		rows = append(rows, []string{"name", edge.Clean(m.Name + " " + m.Version)})
		if m.Description != "" {
			rows = append(rows, []string{"description", show.FirstLine(m.Description)})
		}
		if m.License != "" {
			rows = append(rows, []string{"license", show.FirstLine(m.License)})
		}
		for _, g := range m.Grants {
			if !slices.Contains(r.Grants, g) {
				r.Grants = append(r.Grants, g)
			}
		}
	}
	imports, wasi := []string{}, 0
	for _, name := range r.Imports {
		if script || strings.HasPrefix(name, "weir_v1.") {
			imports = append(imports, name)
		} else {
			wasi++
		}
	}
	if wasi > 0 {
		imports = append(imports, fmt.Sprintf("and %d of WASI, which find no files, environment or sockets", wasi))
	}
	rows = append(rows, []string{"imports", list(imports, "none")}, []string{"grants", list(r.Grants, "none")})
	if r.Manifest != nil && len(r.Manifest.OptionalGrants) > 0 {
		rows = append(rows, []string{"optional", list(r.Manifest.OptionalGrants, "none")})
	}
	if err := show.Table(a.Out, rows); err != nil {
		return err
	}
	if !r.Started {
		fmt.Fprintf(a.Out, "\nIt does not start: %s\n", strings.Join(strings.Fields(edge.Clean(r.Refused)), " "))
		fmt.Fprintf(a.Out, "It has functions for: %s\n", list(r.Functions, "no hook"))
	} else {
		rows = [][]string{{"HOOK", "OF", "SEES"}}
		for _, s := range r.Subscriptions {
			rows = append(rows, []string{s.Hook, edge.Clean(of(s)), edge.Clean(sees(s))})
		}
		fmt.Fprintln(a.Out)
		if err := show.Table(a.Out, rows); err != nil {
			return err
		}
	}
	if schema := r.Manifest.Schema(); schema != "" {
		fmt.Fprintf(a.Out, "\nconfig:\n%s\n", edge.Clean(schema))
	}
	return nil
}

// of says which messages a subscription is for.
func of(s Subscription) string {
	var parts []string
	for _, list := range []struct {
		name  string
		globs []string
	}{{"methods", s.Methods}, {"tools", s.Tools}, {"backends", s.Backends}} {
		if len(list.globs) > 0 {
			parts = append(parts, list.name+" "+strings.Join(list.globs, ","))
		}
	}
	if len(parts) == 0 {
		return "everything"
	}
	return strings.Join(parts, "; ")
}

// sees says what of a message a guest is shown.
func sees(s Subscription) string {
	var parts []string
	if len(s.Fields) > 0 {
		parts = append(parts, fmt.Sprintf("fields %v", s.Fields))
	} else {
		parts = append(parts, "all fields")
	}
	if s.Blocking {
		parts = append(parts, "waits for others")
	}
	if s.Hold {
		parts = append(parts, "holds what precedes")
	}
	if s.CacheMillis > 0 {
		parts = append(parts, fmt.Sprintf("kept %v", time.Duration(s.CacheMillis)*time.Millisecond))
	}
	if len(s.Headers) > 0 {
		parts = append(parts, "headers "+strings.Join(s.Headers, ","))
	}
	if len(s.Pointers) > 0 {
		parts = append(parts, "values "+strings.Join(s.Pointers, ","))
	}
	if len(s.Claims) > 0 {
		parts = append(parts, "claims "+strings.Join(s.Claims, ","))
	}
	if s.VariesBy != "" {
		parts = append(parts, "varies by "+s.VariesBy)
	}
	return strings.Join(parts, "; ")
}

func (a *commands) pluginPackCommand() *cobra.Command {
	var out, module, manifest string
	cmd := &cobra.Command{
		Use:   "pack [DIR]",
		Short: "Finish a module and print the EdgeFilter for it",
		Long: `Finish a module: build it, see that it starts with the configuration and the grants
of plugin.yaml and passes fixtures.yaml, and put what plugin.yaml says into it (the
custom section weir.manifest, JSON). The EdgeFilter with which an edge runs it is
printed, or with --manifest written to a file; its path is relative to that file, or to
the one that the output is redirected to, else to the directory that the command runs
in. Its digest keeps any other module from being loaded in its place.`,
		Example: `  weir plugin pack
  weir plugin pack admins-only -o build/admins-only.wasm --manifest manifests/filter.yaml
  weir plugin pack admins-only > filter.yaml`,
		Args: oneDir,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, dir := cmd.Context(), dirOf(args)
			project, err := ReadProject(dir)
			if err != nil {
				return err
			}
			if module == "" {
				if module, err = a.buildPlugin(ctx, dir, ""); err != nil {
					return err
				}
			}
			if err := a.mustPass(ctx, dir, module, project); err != nil {
				return err
			}
			packed, err := Pack(ctx, project, module, CacheDir())
			if err != nil {
				return err
			}
			if out == "" && !IsScript(module) {
				out = project.Name + ".wasm"
			}
			if out != "" {
				if err := os.WriteFile(out, packed.Module, 0o644); err != nil {
					return err
				}
			} else {
				out = module // a script stays where it is
			}
			fmt.Fprintf(a.Err, "%s: packed (%s, sha256 %s)\n", out, size(uint64(len(packed.Module))), packed.Digest)
			to := cmp.Or(manifest, WrittenTo(a.Out), "-") // the last stands for a file where the command runs
			path, err := Beside(to, out)
			if err != nil {
				return err
			}
			text, err := packed.EdgeFilter(project, path)
			if err != nil {
				return err
			}
			if manifest != "" {
				return os.WriteFile(manifest, text, 0o644)
			}
			_, err = a.Out.Write(text)
			return err
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "`FILE` of the packed module (default NAME.wasm)")
	cmd.Flags().StringVar(&manifest, "manifest", "", "write the EdgeFilter to this `FILE` instead of printing it")
	cmd.Flags().StringVar(&module, "module", "", "take this `FILE` instead of building one")
	return cmd
}

// mustPass runs the fixtures beside the sources, where there are any.
func (a *commands) mustPass(ctx context.Context, dir, module string, project *Project) error {
	t := &target{module: module, dir: dir, project: project}
	f, file, err := t.fixturesOf("")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	p, err := Load(ctx, module, CacheDir())
	if err != nil {
		return err
	}
	defer p.Close()
	for _, o := range RunProgram(ctx, p, f) {
		if !o.Passed() {
			return fmt.Errorf("%s: %s: %s: `weir plugin test` says more", file, o.Case.Name, o.Got[0])
		}
	}
	return nil
}

// size writes a number of bytes.
func size(n uint64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
