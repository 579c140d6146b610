package edgetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// Message is a JSON-RPC message taken apart by encoding/json. The raw members
// hold exactly the bytes that were sent.
type Message struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *Fault
}

// Fault is the error member of a message.
type Fault struct {
	Code    int
	Message string
	Data    json.RawMessage
}

// Parse takes a message apart; the test fails when it is not one.
func Parse(t testing.TB, text []byte) Message {
	t.Helper()
	m, err := parse(text)
	if err != nil {
		t.Fatalf("not a message: %v: %q", err, text)
	}
	return m
}

func parse(text []byte) (Message, error) {
	var m Message
	err := json.Unmarshal(text, &m)
	return m, err
}

// Member walks down JSON objects by names and returns the value there as it is
// written; "" when there is none.
func Member(text string, path ...string) string {
	for _, name := range path {
		var members map[string]json.RawMessage
		if json.Unmarshal([]byte(text), &members) != nil {
			return ""
		}
		text = string(members[name])
	}
	return text
}

// Names of _meta that a modern request carries.
const (
	metaVersion = "io.modelcontextprotocol/protocolVersion"
	metaCaps    = "io.modelcontextprotocol/clientCapabilities"
	metaInfo    = "io.modelcontextprotocol/clientInfo"
	// LogLevel is the _meta member with which a modern client asks for log
	// messages.
	LogLevel = "io.modelcontextprotocol/logLevel"
)

// The revisions whose names the tests need most.
const (
	ModernVersion = "2026-07-28"
	LegacyVersion = "2025-11-25"
)

// Meta is the _meta of a modern request, with the members in more before the
// end: Meta(`"progressToken":1`).
func Meta(more ...string) string {
	members := append([]string{
		`"` + metaVersion + `":"` + ModernVersion + `"`,
		`"` + metaInfo + `":{"name":"edgetest","version":"1"}`,
	}, more...)
	if !strings.Contains(strings.Join(more, ""), metaCaps) {
		members = append(members, `"`+metaCaps+`":{}`)
	}
	return "{" + strings.Join(members, ",") + "}"
}

// Capabilities is the _meta member that declares what a modern client can do.
func Capabilities(object string) string { return `"` + metaCaps + `":` + object }

// withMeta puts _meta at the end of params, which is JSON text of an object or
// empty.
func withMeta(params, meta string) string {
	params = strings.TrimSpace(params)
	if params == "" || params == "{}" {
		return `{"_meta":` + meta + `}`
	}
	return params[:len(params)-1] + `,"_meta":` + meta + `}`
}

// request is the text of a request, or of a notification when id is empty.
// Empty params are left out.
func request(id, method, params string) string {
	text := `{"jsonrpc":"2.0",`
	if id != "" {
		text += `"id":` + id + `,`
	}
	text += fmt.Sprintf(`"method":%q`, method)
	if params != "" {
		text += `,"params":` + params
	}
	return text + `}`
}

// target returns what Mcp-Name says for a request: the tool, prompt, URI or
// task that it is about; false when it is about none.
func target(method, params string) (string, bool) {
	name := map[string]string{
		"tools/call": "name", "prompts/get": "name", "resources/read": "uri",
		"tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId",
	}[method]
	if name == "" {
		return "", false
	}
	var members map[string]json.RawMessage
	var value string
	if json.Unmarshal([]byte(params), &members) != nil || json.Unmarshal(members[name], &value) != nil {
		return "", false
	}
	return value, true
}
