package mcp

// LogLevel reports whether s is a level (RFC 5424 §6.2.1, by the names of MCP).
func LogLevel(s string) bool {
	switch s {
	case "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency":
		return true
	}
	return false
}
