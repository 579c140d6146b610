package audit

import (
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// Type is what a record is about.
type Type uint8

// The types of records.
const (
	Initialize Type = iota
	SSEConnection
	ToolCall
	ToolsList
	ResourceRead
	ResourcesList
	PromptGet
	PromptsList
	Notification
	Ping
	Logging
	Completion
	RootsListChanged
	Request     // of a message of any other method
	HTTPRequest // of a request that held no message, or was turned away at the door
	WorkflowStarted
	WorkflowCompleted
	WorkflowFailed
	WorkflowTimedOut
	StepStarted
	StepCompleted
	StepFailed
	StepSkipped
	Told           // of what a program among the filters told of
	CredentialMade // of an attempt to get a credential for a backend
	Egress         // of a connection out of the sandbox of a local server, made or refused
	types
)

// Types returns the names of all types, as eventTypes has them.
func Types() []string {
	names := make([]string, types)
	for t := range types {
		names[t] = t.String()
	}
	return names
}

// String returns the name of a type.
func (t Type) String() string {
	return [types]string{
		"mcp_initialize", "sse_connection", "mcp_tool_call", "mcp_tools_list", "mcp_resource_read", "mcp_resources_list",
		"mcp_prompt_get", "mcp_prompts_list", "mcp_notification", "mcp_ping", "mcp_logging", "mcp_completion",
		"mcp_roots_list_changed", "mcp_request", "http_request", "vmcp_workflow_started", "vmcp_workflow_completed",
		"vmcp_workflow_failed", "vmcp_workflow_timed_out", "vmcp_workflow_step_started", "vmcp_workflow_step_completed",
		"vmcp_workflow_step_failed", "vmcp_workflow_step_skipped",
		"filter_event", "credential_exchange", "egress",
	}[t]
}

// typeOf is the type of the record of a message.
func typeOf(m *mcp.Message) Type {
	switch m.Method {
	case "tools/call":
		return ToolCall
	case "tools/list":
		return ToolsList
	case "resources/read":
		return ResourceRead
	case "resources/list":
		return ResourcesList
	case "prompts/get":
		return PromptGet
	case "prompts/list":
		return PromptsList
	case "initialize":
		return Initialize
	case "ping":
		return Ping
	case "logging/setLevel":
		return Logging
	case "completion/complete":
		return Completion
	case "notifications/roots/list_changed":
		return RootsListChanged
	}
	if strings.HasPrefix(m.Method, "notifications/") {
		return Notification
	}
	return Request
}

// Outcome is what came of an exchange.
type Outcome uint8

// The outcomes.
const (
	Success Outcome = iota
	Failure
	Error
	Denied
	ApplicationError
)

// String returns the name of an outcome.
func (o Outcome) String() string {
	return [...]string{"success", "failure", "error", "denied", "application_error"}[o]
}

// outcomeOf is what came of an exchange that the edge answers with an error of
// a kind. It is the same for clients of both eras, although a legacy client may
// see status 200: who may not is denied, what the client can mend is a failure,
// and what it cannot is an error.
func outcomeOf(k edge.Kind) Outcome {
	switch k {
	case edge.Unauthenticated, edge.Denied, edge.Forbidden:
		return Denied
	case edge.Internal, edge.Overload, edge.Unavailable, edge.Timeout:
		return Error
	}
	return Failure
}

// word is the name of a kind in records.
func word(k edge.Kind) string {
	switch k {
	case edge.Internal:
		return "internal"
	case edge.Malformed:
		return "malformed"
	case edge.Invalid:
		return "invalid"
	case edge.Params:
		return "params"
	case edge.NotFound, edge.NoServer:
		return "not_found"
	case edge.NoMethod:
		return "no_method"
	case edge.NoSession:
		return "no_session"
	case edge.Mismatch:
		return "mismatch"
	case edge.Capability:
		return "capability"
	case edge.Version:
		return "version"
	case edge.Forbidden:
		return "forbidden"
	case edge.TooLarge:
		return "too_large"
	case edge.MediaType:
		return "media_type"
	case edge.NotAcceptable:
		return "not_acceptable"
	case edge.MethodNotAllowed:
		return "method_not_allowed"
	case edge.Overload:
		return "overload"
	case edge.Unavailable:
		return "unavailable"
	case edge.Timeout:
		return "timeout"
	case edge.Gone:
		return "gone"
	case edge.Unauthenticated:
		return "unauthenticated"
	case edge.Denied:
		return "denied"
	case edge.Limited:
		return "limited"
	}
	return "internal"
}
