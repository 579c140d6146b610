package authz

import "testing"

// TestPermits: a set whose scopes leave a tool out permits it to nobody; conditions, and what
// is wrong, count as a yes.
func TestPermits(t *testing.T) {
	for policy, want := range map[string]bool{
		`permit(principal, action, resource);`:                                                        true,
		`permit(principal, action == Action::"call_tool", resource == Tool::"run");`:                  true,
		`permit(principal, action == Action::"call_tool", resource in MCP::"main");`:                  true,
		`permit(principal, action == Action::"call_tool", resource is Tool in MCP::"main");`:          true,
		`permit(principal, action in [Action::"get_prompt", Action::"call_tool"], resource is Tool);`: true,
		`permit(principal, action, resource) when { resource.name == "other" };`:                      true,
		`permit(principal, action == Action::"call_tool", resource == Tool::"other");`:                false,
		`permit(principal, action == Action::"get_prompt", resource);`:                                false,
		`permit(principal, action, resource in MCP::"another");`:                                      false,
		`permit(principal, action, resource in Backend::"files");`:                                    false,
		`permit(principal, action, resource is Prompt);`:                                              false,
		`forbid(principal, action, resource == Tool::"run");`:                                         false,
		`permit(principal`: true,
	} {
		if got := Permits(Spec{Policies: []string{policy}}, "main", "run"); got != want {
			t.Errorf("%s: %v", policy, got)
		}
	}
}
