// Command definition-pin is a guest that knows what the definitions of tools
// were when somebody read them. A tool whose description or schemas have changed
// since, which is how a backend slips instructions to a model, is hidden and
// reported until somebody has read it again.
package main

import (
	"encoding/hex"
	"errors"

	weir "github.com/weir-edge/weir/sdk"
)

func main() {}

var (
	pins      map[string]pin // by backend/tool
	strangers bool           // tools without a pin are shown
	warnOnly  bool           // changed tools are shown, too
	counted   bool
)

// pin is what parts of a definition had for their SHA-256, in hexadecimal.
type pin struct{ description, schema string }

func init() {
	weir.OnInit(func(s *weir.Setup) error {
		pins, strangers, warnOnly, counted = map[string]pin{}, s.Config.Get("unknown").Is("show"), s.Config.Get("changed").Is("warn"), s.Granted("metrics")
		for name, p := range s.Config.Get("pins").Object() {
			one := pin{p.Get("description").Text(), p.Get("schema").Text()}
			if len(one.description) != 64 || len(one.schema) != 64 {
				return errors.New("pins: " + name.Text() + ": description and schema are SHA-256 in hexadecimal, as the log has them")
			}
			pins[name.Text()] = one
		}
		return nil
	})
	weir.OnTools(compare)
}

func compare(c *weir.Catalog) {
	for tool := range c.Items() {
		name := tool.Backend().String() + "/" + tool.Name().String()
		now := pin{
			sum(tool.JSON().Get("title"), tool.JSON().Get("description"), tool.JSON().Get("annotations")),
			sum(tool.JSON().Get("inputSchema"), tool.JSON().Get("outputSchema")),
		}
		known, pinned := pins[name]
		hide := false
		switch {
		case !pinned:
			hide = !strangers
			weir.Info(name + ` is not pinned; to pin it: "` + name + `": {description: ` + now.description + ", schema: " + now.schema + "}")
		case known.description != now.description:
			hide = !warnOnly
			report(name, "description", known.description, now.description)
		}
		if pinned && known.schema != now.schema {
			hide = hide || !warnOnly
			report(name, "schema", known.schema, now.schema)
		}
		if hide {
			tool.Hide()
		}
	}
}

func report(name, what, was, is string) {
	weir.Warn("the " + what + " of " + name + " has changed: pinned " + was + ", now " + is)
	if counted {
		_ = weir.Count("changed_definitions", 1) // the name is right
	}
}

// sum is the SHA-256 of JSON texts as they came. Absent ones count as empty.
func sum(parts ...weir.Value) string {
	var all []byte
	for _, p := range parts {
		all = append(append(all, p.View().Bytes()...), '\n')
	}
	digest := weir.SHA256(all)
	return hex.EncodeToString(digest[:])
}
