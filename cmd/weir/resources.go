package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/client"
	"github.com/weir-edge/weir/cmd/weir/show"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

func (a *app) resourcesCommand() *cobra.Command {
	return a.listing(&cobra.Command{
		Use:   "resources [URL]",
		Short: "List the resources of an MCP server",
		Long: `List the resources of an MCP server: the URI of each, its name and the first line
of what it says about itself. Templates come last: fill in what stands between
braces in their URIs, and "weir read" reads the outcome.

` + remoteHelp + `

With --json the results of resources/list and then of resources/templates/list
are printed as the server sent them, one for each page.`,
		Example: `  weir resources
  weir resources http://127.0.0.1:4483/mcp
  weir resources --json`,
	}, (*client.Client).Resources, func(_ *client.Client, pages [][]byte) error {
		var rows [][]string
		for _, of := range resourceLists() {
			things, uris := listed(pages, of.kind, of.uri)
			for i, thing := range things {
				rows = append(rows, []string{show.FirstLine(uris[i]), show.FirstLine(mcp.String(mcp.Lookup(thing, "name"))), show.FirstLine(mcp.String(mcp.Lookup(thing, "description")))})
			}
		}
		return a.table(rows, "resources")
	})
}

// resourceLists are the members of pages that hold resources and templates, and
// the member of each thing that it is read by.
func resourceLists() []struct{ kind, uri string } {
	return []struct{ kind, uri string }{{"resources", "uri"}, {"resourceTemplates", "uriTemplate"}}
}

func (a *app) readCommand() *cobra.Command {
	var r *remote
	var asJSON bool
	var file string
	cmd := &cobra.Command{
		Use:   "read [URL] URI",
		Short: "Read a resource of an MCP server",
		Long: `Read a resource of an MCP server. Its bytes go to standard output as they are,
text and binary; a terminal gets text alone, and a line about what is binary.
"weir resources" lists what there is.

` + remoteHelp + `

With --json the result is printed as the server sent it, byte for byte.

Exit codes: 4 the server answered with an error, 5 no talking to the server.`,
		Example: `  weir read demo://weather/oslo
  weir read http://127.0.0.1:4483/mcp file:///logo.png -o logo.png
  weir read file:///notes.txt > notes.txt`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usagef("give the URI of a resource: `weir resources` lists what there is")
			case len(args) == 2 && !isURL(args[0]):
				return usagef("%q is not a URL: write `weir read URL %s`", args[0], args[1])
			case len(args) > 2:
				return usagef("%q is one word too many: one URI is enough", args[2])
			case asJSON && file != "":
				return usagef("--json prints the result, and --output saves what is in it: leave one out")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			target, uri := homeURL(), args[len(args)-1]
			if len(args) == 2 {
				target = args[0]
			}
			return a.with(cmd, r, target, func(ctx context.Context, c *client.Client) error {
				result, err := c.Read(ctx, uri)
				if err != nil {
					return r.unknown(ctx, err, uri, c.Resources, "resources", "uri")
				}
				if asJSON {
					_, err := fmt.Fprintf(a.out, "%s\n", result)
					return err
				}
				return a.showContents(mcp.Elements(mcp.Lookup(result, "contents")), file)
			})
		},
	}
	r = a.addRemoteFlags(cmd)
	cmd.Flags().StringVarP(&file, "output", "o", "", "`FILE` to write the resource to, in place of standard output")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as the server sent it")
	return cmd
}

// showContents writes the contents of a resource to a file, if one is named, or
// to standard output.
func (a *app) showContents(contents [][]byte, file string) error {
	var all []byte
	for _, content := range contents {
		said, is := mcp.LookupTwo(content, "text", "blob")
		if is == nil {
			text := mcp.String(said)
			if file == "" && terminal(a.out) {
				text = show.Line(edge.Clean(text))
			}
			all = append(all, text...)
			continue
		}
		data, err := base64.StdEncoding.DecodeString(mcp.String(is))
		if err != nil {
			return &client.ProtocolError{Method: "resources/read", Message: "the server sent a blob that is not base64: " + err.Error(), Next: "report this to whoever runs the server"}
		}
		if file == "" && terminal(a.out) {
			kind := show.FirstLine(mcp.String(mcp.Lookup(content, "mimeType")))
			if kind == "" {
				kind = "binary"
			}
			data = []byte(a.paint(a.out, dim, fmt.Sprintf("[%s, %d bytes: -o FILE saves it]", kind, len(data))) + "\n")
		}
		all = append(all, data...)
	}
	if file == "" {
		_, err := a.out.Write(all)
		return err
	}
	if err := cli.WriteFile(file, all, 0o666); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	_, err := io.WriteString(a.err, a.paint(a.err, advice, fmt.Sprintf("%d bytes are in %s.", len(all), file))+"\n")
	return err
}
