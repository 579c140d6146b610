package mcp

// The revisions of the protocol, oldest first.
const (
	V2024 = "2024-11-05" // HTTP with SSE
	V2503 = "2025-03-26" // streamable HTTP, batches
	V2506 = "2025-06-18" // no batches, version header
	V2511 = "2025-11-25" // the last revision with sessions
	V2607 = "2026-07-28" // stateless
)

// Versions returns the revisions that the edge speaks, newest first.
func Versions() []string { return []string{V2607, V2511, V2506, V2503, V2024} }

// Era is one of the two wire protocols that share the name MCP.
type Era uint8

// Legacy is every revision up to 2025-11-25: initialize, sessions, requests
// from server to client. Modern is 2026-07-28: stateless, each request says
// everything, a server asks by answering input_required.
const (
	Legacy Era = iota
	Modern
)

func (e Era) String() string {
	if e == Modern {
		return "modern"
	}
	return "legacy"
}

// LegacyVersion reports whether v is a revision of the legacy era that the
// edge speaks.
func LegacyVersion(v string) bool {
	return v == V2511 || v == V2506 || v == V2503 || v == V2024
}

// Keys of _meta that belong to the protocol (2026-07-28, basic, _meta).
const (
	MetaVersion      = "io.modelcontextprotocol/protocolVersion"
	MetaClientInfo   = "io.modelcontextprotocol/clientInfo"
	MetaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	MetaLogLevel     = "io.modelcontextprotocol/logLevel"
	MetaServerInfo   = "io.modelcontextprotocol/serverInfo"
	MetaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// Names of HTTP headers, in the case in which they are written.
const (
	HeaderSession     = "Mcp-Session-Id"
	HeaderVersion     = "MCP-Protocol-Version"
	HeaderMethod      = "Mcp-Method"
	HeaderName        = "Mcp-Name"
	HeaderParam       = "Mcp-Param-" // followed by a name of its own
	HeaderLastEventID = "Last-Event-ID"
)

// Method says what the edge has to know of a method that clients call.
type Method struct {
	Known       bool
	Legacy      bool   // exists in the legacy era
	Modern      bool   // exists in the modern era
	Target      string // the member of params that names what is asked for; mirrored in Mcp-Name
	Cacheable   bool   // modern results carry ttlMs and cacheScope
	Interactive bool   // a modern result may be input_required
}

// MethodOf returns what is known of a method; the zero Method for one that no
// revision defines.
func MethodOf(name string) Method {
	switch name {
	case "tools/call", "prompts/get":
		return Method{Known: true, Legacy: true, Modern: true, Target: "name", Interactive: true}
	case "resources/read":
		return Method{Known: true, Legacy: true, Modern: true, Target: "uri", Cacheable: true, Interactive: true}
	case "tools/list", "prompts/list", "resources/list", "resources/templates/list":
		return Method{Known: true, Legacy: true, Modern: true, Cacheable: true}
	case "completion/complete":
		return Method{Known: true, Legacy: true, Modern: true}
	case "server/discover":
		return Method{Known: true, Modern: true, Cacheable: true}
	case "subscriptions/listen":
		return Method{Known: true, Modern: true}
	case "tasks/get", "tasks/cancel":
		return Method{Known: true, Legacy: true, Modern: true, Target: "taskId"}
	case "tasks/update":
		return Method{Known: true, Modern: true, Target: "taskId"}
	case "initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "tasks/list", "tasks/result":
		return Method{Known: true, Legacy: true}
	}
	return Method{}
}

// In reports whether a client of the era may call the method. A method that
// no revision defines may be one that client and server agreed on.
func (m Method) In(e Era) bool {
	return !m.Known || m.Legacy && e == Legacy || m.Modern && e == Modern
}
