package plugin

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/sdk/abi"
)

// Others are what answers a guest in place of other parties and of tools. Whoever
// is not named is not granted.
type Others struct {
	HTTP  map[string]Answer   `json:"http,omitempty"`  // by METHOD URL
	Tools map[string]ToolSays `json:"tools,omitempty"` // by the name that clients see
}

// Answer is one to an HTTP request.
type Answer struct {
	Status  uint64            `json:"status"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
	Repeat  int               `json:"repeat,omitempty"` // how often the body stands in the answer; 0 for once
}

// ToolSays is the answer of a tool: one of the two.
type ToolSays struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`
}

// fetch answers an HTTP request as the case says.
func (h *host) fetch(_ context.Context, record []byte) ([]byte, int64) {
	method, url, body, head := "GET", "", "", ""
	r := abi.Reader{B: record}
	for r.Next() {
		switch r.Num {
		case abi.FetchMethod:
			method = string(r.Data)
		case abi.FetchURL:
			url = string(r.Data)
		case abi.FetchBody:
			body = string(r.Data)
		case abi.FetchHeader:
			var name, value string
			l := abi.Reader{B: r.Data}
			for l.Next() {
				if l.Num == abi.HeaderName {
					name = string(l.Data)
				} else {
					value = string(l.Data)
				}
			}
			head += " " + name + ": " + value
		case abi.FetchTimeout:
			head += " (" + line(r.Uint) + " ms)"
		}
	}
	if r.Bad {
		return nil, abi.ErrArgument
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	answer, ok := h.others.HTTP[method+" "+url]
	if !ok {
		return nil, abi.ErrDenied
	}
	h.sent = append(h.sent, strings.TrimSuffix(method+" "+url+head+" "+body, " "))
	b := abi.AppendUint(nil, abi.FetchedStatus, answer.Status)
	for _, name := range slices.Sorted(maps.Keys(answer.Headers)) {
		b = abi.AppendBytes(b, abi.FetchedHeader, abi.AppendString(abi.AppendString(nil, abi.HeaderName, strings.ToLower(name)), abi.HeaderValue, answer.Headers[name]))
	}
	return abi.AppendString(b, abi.FetchedBody, strings.Repeat(answer.Body, max(answer.Repeat, 1))), 0
}

// tool answers a call of a tool as the case says.
func (h *host) tool(_ context.Context, record []byte) ([]byte, int64) {
	name, arguments := "", "{}"
	r := abi.Reader{B: record}
	for r.Next() {
		switch r.Num {
		case abi.ToolName:
			name = string(r.Data)
		case abi.ToolArguments:
			arguments = string(r.Data)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	says, ok := h.others.Tools[name]
	switch {
	case r.Bad || mcp.Valid([]byte(arguments)) != nil:
		return nil, abi.ErrArgument
	case !ok:
		return nil, abi.ErrDenied
	}
	h.sent = append(h.sent, name+" "+arguments)
	if says.Error != nil {
		return abi.AppendBytes(nil, abi.ToolError, says.Error), 0
	}
	return abi.AppendBytes(nil, abi.ToolResult, says.Result), 0
}

// emit keeps what a guest tells of.
func (h *host) emit(_ context.Context, _ abi.Hook, name string, data []byte) int64 {
	if len(data) > 0 && mcp.Valid(data) != nil {
		return abi.ErrArgument
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, name+": "+string(data))
	return 0
}
