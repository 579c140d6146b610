package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Lengths of the names of tools, in characters.
const (
	maxName  = 128 // MCP 2026-07-28, server/tools, tool names
	longName = 64  // the limit of some model APIs
	keptName = 119 // kept of a longer name: with "_" and 8 digits it has 128
)

// fit returns the name under which a tool can be shown: characters outside
// [A-Za-z0-9_.-] become "_", and the end of a name that is too long is replaced by
// a digest of the whole name.
func fit(name string) string {
	shown := strings.Map(func(r rune) rune {
		if r < 0x80 && alphanumeric(byte(r)) || r == '_' || r == '.' || r == '-' {
			return r
		}
		return '_'
	}, name)
	if len(shown) <= maxName {
		return shown
	}
	sum := sha256.Sum256([]byte(name))
	return shown[:keptName] + "_" + hex.EncodeToString(sum[:4])
}

// Reserved reports whether a name is one of the edge's own tools: find_tool and
// call_tool of the optimizer, execute_tool_script of code mode.
func Reserved(name string) bool {
	return name == "find_tool" || name == "call_tool" || name == "execute_tool_script"
}

// Whole returns the whole name of a tool, by which workflows, policies and records
// refer to one that clients do not see.
func Whole(workload, tool string) string { return workload + "." + tool }

// clip shortens a name of any length for a message.
func clip(s string) string {
	const most = 160
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
