// Command tools-per-team is a guest that shows a vendor's tools to each team
// under the names and with the descriptions that the team works with.
package main

import (
	"errors"

	weir "github.com/weir-edge/weir/sdk"
)

func main() {}

// tool is how a team sees a tool of the vendor.
type tool struct{ name, description string }

// teams are in the order of the configuration: the first that somebody is in
// counts.
var teams []team

type team struct {
	group string
	tools map[string]tool // by the backend's name
	only  bool            // other tools are not shown
}

func init() {
	weir.OnInit(func(s *weir.Setup) error {
		teams = nil
		for t := range s.Config.Get("teams").Array() {
			one := team{group: t.Get("group").Text(), tools: map[string]tool{}, only: t.Get("only").IsTrue()}
			if one.group == "" {
				return errors.New("teams: a team without a group")
			}
			for name, seen := range t.Get("tools").Object() {
				one.tools[name.Text()] = tool{seen.Get("name").Text(), seen.Get("description").Text()}
			}
			teams = append(teams, one)
		}
		if len(teams) == 0 {
			return errors.New("teams: there are none")
		}
		return nil
	})
	weir.OnTools(show, weir.VariesBy(weir.ByGroups))
}

func show(c *weir.Catalog) {
	for _, t := range teams {
		if !c.Principal().InGroup(t.group) {
			continue
		}
		for item := range c.Items() {
			seen, known := t.tools[item.Name().String()]
			if !known && t.only {
				item.Hide()
			}
			if seen.name != "" {
				item.Rename(seen.name)
			}
			if seen.description != "" {
				item.Describe(seen.description)
			}
		}
		return
	}
}
