package mcp

import "strings"

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

// Method says what the edge has to know of a method.
type Method struct {
	Known       bool
	Legacy      bool   // clients send it in the legacy era
	Modern      bool   // clients send it in the modern era
	Target      string // the member of params that names what is asked for; mirrored in Mcp-Name
	Cacheable   bool   // modern results carry ttlMs and cacheScope
	Interactive bool   // a modern result may be input_required
}

// Methods returns the names of all methods that a revision defines, those that
// only servers send among them (the schemas of 2025-11-25 and 2026-07-28).
func Methods() []string {
	return []string{
		"tools/call", "prompts/get", "resources/read",
		"tools/list", "prompts/list", "resources/list", "resources/templates/list",
		"completion/complete", "server/discover", "subscriptions/listen",
		"tasks/get", "tasks/cancel", "tasks/update", "tasks/list", "tasks/result",
		"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe",
		"sampling/createMessage", "roots/list", "elicitation/create",
		"notifications/initialized", "notifications/cancelled", "notifications/progress",
		"notifications/roots/list_changed", "notifications/tasks/status",
		"notifications/message", "notifications/resources/updated", "notifications/resources/list_changed",
		"notifications/tools/list_changed", "notifications/prompts/list_changed",
		"notifications/elicitation/complete", "notifications/subscriptions/acknowledged", "notifications/tasks",
	}
}

// MethodOf returns what is known of a method; the zero Method for one that no
// revision defines. What only servers send is known and in no era.
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
	case "sampling/createMessage", "roots/list", "elicitation/create":
		return Method{Known: true}
	case "notifications/cancelled", "notifications/progress", "notifications/roots/list_changed":
		return Method{Known: true, Legacy: true, Modern: true}
	case "notifications/initialized", "notifications/tasks/status":
		return Method{Known: true, Legacy: true}
	case "notifications/message", "notifications/resources/updated", "notifications/resources/list_changed",
		"notifications/tools/list_changed", "notifications/prompts/list_changed",
		"notifications/elicitation/complete", "notifications/subscriptions/acknowledged", "notifications/tasks":
		return Method{Known: true}
	}
	return Method{}
}

// In reports whether a client of the era may call the method. A method that
// no revision defines may be one that client and server agreed on.
func (m Method) In(e Era) bool {
	return !m.Known || m.Legacy && e == Legacy || m.Modern && e == Modern
}

// Notifies reports whether a method is that of a notification, by its name: so
// begin those of all revisions, and no others.
func Notifies(method string) bool { return strings.HasPrefix(method, "notifications/") }

// CheckID holds a message of a client to what it may be at all: a request has an
// id, and only notifications have none. A server that is sent a request without
// an id may do what it says all the same, and nobody would have judged it. The
// error is an *EnvelopeError.
func (m *Message) CheckID() error {
	switch {
	case m.Kind == Request && Notifies(m.Method):
		return &EnvelopeError{"a notification has no id"}
	case m.Kind == Notification && !Notifies(m.Method):
		return &EnvelopeError{"a request without an id; only notifications have none"}
	}
	return nil
}

// Resembles reports whether a method that no revision defines is one that a
// reader who ignores case, or what stands around a name, would take for one.
func Resembles(name string) bool {
	bare := strings.TrimFunc(name, func(r rune) bool { return r <= ' ' || r == '/' || r == 0x7f || r > 0x7e })
	for _, m := range Methods() {
		if strings.EqualFold(bare, m) {
			return true
		}
	}
	return false
}
