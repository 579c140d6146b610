// Package abi holds what the host of guest modules and the authors of SDKs
// must agree on: names of exports and imports, hooks, grants, error codes and
// the field numbers of the records that pass between them. wasm/ABI.md says
// what they mean.
//
// It imports nothing, allocates nothing but what it returns, and compiles with
// every Go toolchain that a guest may be built with.
package abi

// Version is what weir_abi returns: the major version in the upper 16 bits,
// the minor in the lower ones. The host accepts its own major version with any
// minor version up to its own.
const Version = Major<<16 | Minor

// The version in parts.
const (
	Major = 1
	Minor = 1
)

// ImportModule is the module that host functions are imported from.
const ImportModule = "weir_v1"

// Exports of a guest. Those of hooks are Hook.Export.
const (
	ExportMemory     = "memory"
	ExportABI        = "weir_abi"    // () -> i32
	ExportBuffer     = "weir_buf"    // (min i32) -> i32
	ExportInit       = "weir_init"   // (len i32) -> i64
	ExportInitialize = "_initialize" // () -> (); called first, where there is one
)

// Hook is a place in the life of a message where a guest is asked.
type Hook uint8

// The hooks.
const (
	OnHTTPRequest Hook = iota
	Authenticate
	MapIdentity
	OverrideTools
	OverridePrompts
	OverrideResources
	OnCallRequest
	OutgoingAuth
	OnUpstreamRequest
	OnCallResponse
	OnMessage
	OnHTTPResponse
	OnSessionStart
	OnSessionEnd
	OnEvent
	OnNotification // since 1.1
	OnQuestion     // since 1.1
	Hooks          // how many there are
)

var names = [Hooks]string{
	"on_http_request", "authenticate", "map_identity", "override_tools", "override_prompts",
	"override_resources", "on_call_request", "outgoing_auth", "on_upstream_request",
	"on_call_response", "on_message", "on_http_response", "on_session_start", "on_session_end", "on_event",
	"on_notification", "on_question",
}

// String is the name of the hook, as subscriptions and manifests write it.
func (h Hook) String() string {
	if h >= Hooks {
		return "unknown"
	}
	return names[h]
}

// Export is the name of the function that a guest exports for the hook, of
// type (len i32) -> i64.
func (h Hook) Export() string { return "weir_" + h.String() }

// Identity says that the hook decides who somebody is or which credential is
// used. A guest that fails in such a hook is never passed over.
func (h Hook) Identity() bool { return h == Authenticate || h == MapIdentity || h == OutgoingAuth }

// MayBlock says that a guest may wait for others at the hook, with http_call or
// call_tool, when it subscribes to it as one that does.
func (h Hook) MayBlock() bool {
	switch h {
	case Authenticate, MapIdentity, OnCallRequest, OutgoingAuth, OnCallResponse, OnMessage, OnSessionStart, OnEvent, OnNotification, OnQuestion:
		return true
	}
	return false
}

// HookNamed returns the hook of a name.
func HookNamed(name string) (Hook, bool) {
	for i, n := range names {
		if n == name {
			return Hook(i), true
		}
	}
	return 0, false
}

// Grants that host functions stand behind, as InitRequest lists them.
const (
	GrantRandom   = "random"
	GrantKV       = "kv"
	GrantMetrics  = "metrics"
	GrantKeys     = "keys"
	GrantIdentity = "identity"

	GrantCredentials = "credentials"
	GrantHTTP        = "http"
	GrantTools       = "tools"
	GrantEvents      = "events"
	GrantClaims      = "claims"
)

// What host functions return below zero.
const (
	ErrNotFound    = -1
	ErrDenied      = -2
	ErrLimit       = -3
	ErrArgument    = -4
	ErrUnavailable = -5

	// Of http_call, since 1.1: why there is no answer. Guests made for 1.0 get
	// ErrUnavailable for each.
	ErrTimeout = -6
	ErrRefused = -7
	ErrName    = -8
	ErrTLS     = -9
)

// Levels of log, from the least to the most important.
const (
	LevelDebug = iota
	LevelInfo
	LevelWarn
	LevelError
)

// Kinds of metric.
const (
	MetricCounter = iota // delta is added
	MetricGauge          // delta is the value
)

// Fields of InitRequest, the record that weir_init receives.
const (
	InitConfig  = 1 // bytes: JSON text of the configuration; absent for none
	InitGrant   = 2 // string, repeated
	InitName    = 3 // string: of the filter, for log lines
	InitVersion = 4 // uint64: Version of the host
)

// Fields of InitResult, the record that weir_init returns. An error and
// subscriptions do not go together.
const (
	InitSubscription = 1 // Subscription, repeated
	InitError        = 2 // string: why the configuration cannot be used
)

// Fields of Subscription: what the guest wants to be asked about. Globs know *
// for any characters; no glob at all matches everything.
const (
	SubHook        = 1 // string: name of a hook
	SubMethod      = 2 // string, repeated: globs of methods, for on_message
	SubTool        = 3 // string, repeated: globs of tools by the names that clients see
	SubBackend     = 4 // string, repeated: globs of backends
	SubField       = 5 // uint64, repeated: fields of the record that the guest reads; none for all
	SubHeader      = 6 // string, repeated: names of headers that the record shall hold
	SubPointer     = 7 // string, repeated: JSON pointers into the arguments or the result
	SubVariesBy    = 8 // uint64: what the answer of a hook that is cached depends on, besides its input
	SubInlineLimit = 9 // uint64: size above which arguments are left out; 0 for the host's limit

	SubCache    = 10 // uint64: milliseconds for which an answer of outgoing_auth holds; 0 for asking each time
	SubBlocking = 11 // uint64: 1 when the guest calls http_call or call_tool there
	SubHold     = 12 // uint64: 1 when what precedes an answer waits for what the guest says of that, in on_call_response and on_message; since 1.1
	SubClaim    = 13 // string, repeated: JSON pointers into the verified claims, in on_call_request and outgoing_auth; since 1.1
)

// Values of SubVariesBy.
const (
	VariesByNone = iota
	VariesByTenant
	VariesByGroups
	VariesBySubject
)

// Fields of CallRequest, CallResponse, MessageRequest and the other records
// that a hook receives. One numbering serves all of them; each hook fills what
// it has.
const (
	CallTool      = 1  // string: name that the client sees
	CallBackend   = 2  // string
	CallSession   = 3  // string: an opaque key of the session; absent without one
	CallMethod    = 4  // string
	CallRequestID = 5  // bytes: JSON text of the id
	CallPrincipal = 6  // Principal
	CallHeader    = 7  // Header, repeated
	CallArguments = 8  // bytes: JSON text; absent when not asked for or above the inline limit
	CallSelected  = 9  // bytes, repeated: JSON texts for the pointers of the subscription, in their order; empty where there is nothing
	CallNow       = 10 // uint64: milliseconds since 1970 UTC
	CallResult    = 11 // bytes: JSON text of the result, in responses
	CallError     = 12 // bytes: JSON text of the error object, in responses
	CallItem      = 13 // Item, repeated: in override hooks
	CallClaims    = 14 // bytes: JSON text of the verified claims, in map_identity
	CallCarry     = 15 // bytes: what the guest left with set_carry in the request
	CallStatus    = 16 // uint64: HTTP status, in on_http_response
	CallPath      = 17 // string: path of the HTTP request, in http hooks
	CallIssuer    = 18 // string, in map_identity
	CallEvent     = 19 // bytes: JSON text of the event, in on_event
	CallFrom      = 20 // uint64: who sent it, FromClient or FromServer, in on_notification and on_question; since 1.1
	CallAttr      = 25 // Attr, repeated: what programs say of the principal; since 1.1
	CallClaim     = 26 // bytes, repeated: JSON texts for the claims of the subscription, in their order; empty where there is none; since 1.1
)

// Values of CallFrom.
const (
	FromClient = 1
	FromServer = 2
)

// Fields of Principal.
const (
	PrincipalSubject = 1
	PrincipalTenant  = 2
	PrincipalGroup   = 3 // repeated
	PrincipalRole    = 4 // repeated
	PrincipalScope   = 5 // repeated
	PrincipalIssuer  = 6
)

// Fields of Header.
const (
	HeaderName  = 1
	HeaderValue = 2
)

// Fields of Attr.
const (
	AttrName = 1 // string
	AttrJSON = 2 // bytes: JSON text
)

// Fields of Item: a tool, prompt or resource of a backend.
const (
	ItemName    = 1 // string: the backend's
	ItemBackend = 2 // string
	ItemJSON    = 3 // bytes: its JSON text
)

// OpsOp is the only field of Ops, the record that a hook returns: an Op,
// repeated. No record at all means that nothing changes.
const OpsOp = 1

// Fields of Op. Each Op has exactly one of them, a record with the fields of
// OpArg.
const (
	OpSetArg        = 1  // pointer, raw
	OpDelArg        = 2  // pointer
	OpSetArguments  = 3  // raw
	OpSetTool       = 4  // name
	OpSetBackend    = 5  // name
	OpSetHeader     = 6  // name, text
	OpDelHeader     = 7  // name
	OpRespond       = 8  // raw: a result
	OpDeny          = 9  // code, text, raw: data
	OpSetAttr       = 10 // name, raw
	OpSetCarry      = 11 // raw: bytes of any kind
	OpLogField      = 12 // name, text
	OpPatchResult   = 13 // pointer, raw
	OpDropContent   = 14 // index
	OpRedact        = 15 // pointer, text: what stands in its place
	OpRename        = 16 // item, name
	OpDescribe      = 17 // item, text
	OpHide          = 18 // item
	OpAnnotate      = 19 // item, name, raw
	OpSetSchema     = 20 // item, raw
	OpPinArg        = 21 // item, pointer, raw
	OpHideArg       = 22 // item, pointer
	OpUseCredential = 23 // name
	OpSetPrincipal  = 24 // raw: a Principal record
	OpChallenge     = 25 // text: WWW-Authenticate
	OpPatchItem     = 26 // item, pointer, raw
)

// Fields of what an Op holds.
const (
	ArgPointer = 1 // string: a JSON pointer (RFC 6901)
	ArgRaw     = 2 // bytes: JSON text unless the Op says otherwise
	ArgName    = 3 // string
	ArgText    = 4 // string
	ArgCode    = 5 // uint64: one of the codes of a denial
	ArgIndex   = 6 // uint64
	ArgItem    = 7 // uint64: index of the Item in the input
)

// Codes of a denial.
const (
	DenyForbidden       = 0
	DenyUnauthenticated = 1
	DenyInvalid         = 2
	DenyLimited         = 3
	DenyNotFound        = 4
)

// Fields of a request of http_call. Headers are records of HeaderName and
// HeaderValue.
const (
	FetchMethod  = 1 // string: GET when absent
	FetchURL     = 2 // string
	FetchHeader  = 3 // repeated
	FetchBody    = 4 // bytes
	FetchTimeout = 5 // uint64: milliseconds; 0 for the host's limit
)

// Fields of the answer to it.
const (
	FetchedStatus = 1 // uint64
	FetchedHeader = 2 // repeated; names in small letters
	FetchedBody   = 3 // bytes
)

// Fields of a request of call_tool.
const (
	ToolName      = 1 // string: name that clients see
	ToolArguments = 2 // bytes: JSON text of an object; absent for none
)

// Fields of the answer to it: one of the two.
const (
	ToolResult = 1 // bytes: JSON text of the result
	ToolError  = 2 // bytes: JSON text of an error object
)
