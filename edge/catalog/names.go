package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Lengths of the names of tools, in characters.
const (
	maxName  = 128 // MCP 2026-07-28, server/tools, tool names
	longName = 64  // what the interfaces of some models take
	keptName = 119 // of a name that is too long: with "_" and 8 digits it has 128
)

// fit returns the name under which a tool can be shown: what is not of
// [A-Za-z0-9_.-] becomes "_", and of a name that is too long the end becomes a
// digest of the whole of it.
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

// Whole returns the name of a tool that clients do not see: what workflows call
// it by, and policies and records know it by.
func Whole(workload, tool string) string { return workload + "." + tool }

// clip shortens what a stranger chose the length of, for a text that people read.
func clip(s string) string {
	const most = 160
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
