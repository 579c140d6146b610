package peers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/weir-edge/weir/edge/edgetest/peers"
)

// script returns a client that is one of the programs in clients/.
func script(name string) func(context.Context, bench, string, plan) (seen, error) {
	return func(ctx context.Context, b bench, url string, p plan) (seen, error) {
		out, err := peers.Run(peers.Command(ctx, b.Node, filepath.Join(b.Dir(), "clients", name), url, encode(p)))
		if err != nil {
			return seen{}, fmt.Errorf("%s: %w; before that it saw %s", name, err, out)
		}
		var s seen
		for line := range bytes.Lines(out) { // each tells one thing
			if err := json.Unmarshal(line, &s); err != nil {
				return seen{}, fmt.Errorf("%s: not JSON: %q: %w", name, line, err)
			}
		}
		return s, nil
	}
}

// runInspector runs the inspector's command line once for each step, and so
// connects for each.
func runInspector(ctx context.Context, b bench, url string, p plan) (seen, error) {
	transport := "http"
	if p.Transport == "sse" {
		transport = "sse"
	}
	step := func(result any, method ...string) error {
		cmd := peers.Command(ctx, b.Node, append([]string{b.Inspector(), "--cli",
			"--server-url", url, "--transport", transport, "--protocol-era", p.Mode, "--format", "json", "--method"}, method...)...)
		cmd.Env = append(cmd.Env, "HOME="+b.home) // where it keeps what it knows of servers
		out, err := peers.Run(cmd)
		if err != nil {
			return fmt.Errorf("inspector: %s: %w", method[0], err)
		}
		envelope := struct {
			Result any `json:"result"`
		}{result}
		if err := json.Unmarshal(out, &envelope); err != nil {
			return fmt.Errorf("inspector: %s: not JSON: %q: %w", method[0], out, err)
		}
		return nil
	}
	var (
		tools   struct{ Tools []struct{ Name string } }
		call    struct{ Content []struct{ Text string } }
		lists   struct{ Resources []struct{ URI string } }
		prompts struct{ Prompts []struct{ Name string } }
	)
	for _, s := range []struct {
		result any
		method []string
	}{
		{&tools, []string{"tools/list"}},
		{&call, []string{"tools/call", "--tool-name", p.Call.Name, "--tool-args-json", encode(p.Call.Arguments)}},
		{&lists, []string{"resources/list"}},
		{&prompts, []string{"prompts/list"}},
	} {
		if err := step(s.result, s.method...); err != nil {
			return seen{}, err
		}
	}
	var s seen
	for _, tool := range tools.Tools {
		s.Tools = append(s.Tools, tool.Name)
	}
	for _, content := range call.Content {
		s.Call += content.Text
	}
	for _, resource := range lists.Resources {
		s.Resources = append(s.Resources, resource.URI)
	}
	for _, prompt := range prompts.Prompts {
		s.Prompts = append(s.Prompts, prompt.Name)
	}
	return s, nil
}
