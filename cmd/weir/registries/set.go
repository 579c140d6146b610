package registries

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/image"
	"github.com/weir-edge/weir/edge/registry"
	"github.com/weir-edge/weir/edge/workload"
)

// read is what reading a registry came to, for programs.
type read struct {
	Source  string `json:"source"`
	Entries int    `json:"entries"`
	LeftOut int    `json:"leftOut"`
}

// told says what reading a registry came to.
func (a *Commands) told(cmd *cobra.Command, r *registry.Registry) error {
	if cli.WantsJSON(cmd) {
		return cli.PrintJSON(a.Out, read{r.Source.String(), len(r.Entries), r.LeftOut}, "")
	}
	_, err := fmt.Fprintf(a.Out, "%s has %s\n", r.Source, edge.Count(len(r.Entries), "server"))
	a.leftOut(cmd, r)
	return err
}

func (a *Commands) update() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "update",
		Short: "Read the registry again, however new what is kept of it is",
		Long: `Read the registry again, however new what is kept of it is. Where it cannot be read,
what is kept stays, and the exit code is 1.

Where images are verified, by rules of yours (image-policy.yaml) or by what entries say of
their signers, the roots of trust of Sigstore are renewed, too: trusted_root.json. One that
you made is left as it is.`,
		Example: `  weir registry update
  weir registry update --format json`,
		Args:              cli.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := cli.UntilSignal(cmd)
			defer stop()
			r, err := a.Open(ctx, cmd, true)
			if err != nil {
				return cli.Interrupted(ctx, Problem(err))
			}
			if err := away(r); err != nil {
				return err
			}
			if err := a.told(cmd, r); err != nil {
				return err
			}
			return cli.Interrupted(ctx, a.renew(ctx, cmd, r))
		},
	}
	cli.AddFormat(cmd, "text", "json")
	return cmd
}

// renew renews the roots of trust by which images are verified, where some are.
func (a *Commands) renew(ctx context.Context, cmd *cobra.Command, r *registry.Registry) error {
	paths, err := a.Paths()
	if err != nil {
		return err
	}
	reach, err := a.Reach()
	if err != nil {
		return err
	}
	images := &image.Images{PolicyFile: filepath.Join(paths.Config, image.PolicyFile), RootsFile: filepath.Join(paths.Config, image.RootsFile), CAs: reach.CAs}
	if !images.Wanted() && !slices.ContainsFunc(r.Entries, func(e *registry.Entry) bool {
		return slices.ContainsFunc(e.Packages, func(p registry.Package) bool { return p.Extra.Provenance != nil })
	}) {
		return nil
	}
	got, err := images.Renew(ctx, filepath.Join(paths.Data, "roots"))
	switch {
	case errors.Is(err, image.ErrOwn):
		a.note(cmd, "the roots of trust are not renewed: %v", err)
	case err != nil:
		return &workload.Error{Code: workload.CodeFault, Message: fmt.Sprintf("the roots of trust cannot be renewed (%v): those that are there stay", err), Next: "`weir registry update` again, when their repository answers"}
	case got.Changed:
		a.note(cmd, "the roots of trust are new, from %s", got.Mirror)
	default:
		a.note(cmd, "the roots of trust are those of %s", got.Mirror)
	}
	return nil
}

func (a *Commands) set() *cobra.Command {
	var private bool
	cmd := &cobra.Command{
		Use:   "set SOURCE",
		Short: "Choose the registry that names are looked up in",
		Long: `Choose the registry that names are looked up in: a file, a directory of server.json
files, the URL of such a file (its path ends in .json), or the URL of a registry with
the API v0.1. A URL is of https, or of this machine. It is read first: one that cannot
be read is not chosen.

Its entries lead to servers on the public internet alone, by https, and to images of
registries there, unless --allow-private lets them lead to private addresses, too.`,
		Example: `  weir registry set https://registry.example.com
  weir registry set ./servers.json
  weir registry set --allow-private https://registry.corp.example/servers.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usagef("give one registry: an https URL, a file or a directory; `weir registry unset` goes back to the usual one")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := cli.UntilSignal(cmd)
			defer stop()
			dir, err := os.Getwd()
			if err != nil {
				return err
			}
			source, err := registry.ParseSource(args[0], dir)
			if err != nil {
				return Problem(err)
			}
			source.AllowPrivate = private
			paths, err := a.Paths()
			if err != nil {
				return err
			}
			r, err := a.open(ctx, cmd, paths, source, true)
			if err != nil {
				return cli.Interrupted(ctx, Problem(err))
			}
			if err := away(r); err != nil {
				return err
			}
			if err := choose(paths, &source); err != nil {
				return err
			}
			return a.told(cmd, r)
		},
	}
	cmd.Flags().BoolVar(&private, "allow-private", false, "its entries may lead to private addresses, and there by http")
	cli.AddFormat(cmd, "text", "json")
	return cmd
}

func (a *Commands) unset() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unset",
		Short: "Go back to the usual registry",
		Long:  `Go back to the usual registry, ` + registry.Default + `.`,
		Example: `  weir registry unset
  weir registry unset --format json`,
		Args:              cli.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			paths, err := a.Paths()
			if err != nil {
				return err
			}
			if err := choose(paths, nil); err != nil {
				return err
			}
			source, _, err := Chosen(paths)
			if err != nil {
				return err
			}
			if cli.WantsJSON(cmd) {
				return cli.PrintJSON(a.Out, map[string]string{"source": source.String()}, "")
			}
			_, err = fmt.Fprintf(a.Out, "the registry is %s\n", source)
			return err
		},
	}
	cli.AddFormat(cmd, "text", "json")
	return cmd
}
