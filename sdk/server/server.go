// Package server makes an MCP server of functions. It speaks on standard input and output, one
// message a line (2025-11-25, basic/transports, stdio), and needs nothing but the standard
// library: built for GOOS=wasip1 and GOARCH=wasm it is a module that `weir run` starts, and
// built for any other system an ordinary program.
//
// Clients of newer revisions reach it as well, by way of the edge. What it does not know are
// questions to the client, prompts and resources: for those use the official Go SDK, which
// can be built for wasip1, too.
package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
)

// revision is what the server speaks when a client asks for what it does not know.
const revision = "2025-11-25"

var revisions = []string{revision, "2025-06-18", "2025-03-26", "2024-11-05"}

// maxMessage is how long a line may be, in bytes.
const maxMessage = 16 << 20

// Tool is a function that clients may call.
type Tool struct {
	Name        string
	Description string

	// Schema is the JSON Schema of its arguments, an object; "" for one without arguments.
	Schema string

	// Call is called with the arguments as the client sent them, for one client at a time
	// or several. The error is for the model that asked: it may try again.
	Call func(arguments json.RawMessage) (text string, err error)
}

// Server is an MCP server.
type Server struct {
	Name, Version string
	Instructions  string // for the model; "" for none
	Tools         []Tool
}

// message is what a client sends, with the parameters of all methods that are known: to read
// them with the rest costs a call less than to read them after it.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params *params         `json:"params"`
}

type params struct {
	Revision  string          `json:"protocolVersion"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// fault is an error of JSON-RPC.
type fault struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

type answer struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *fault          `json:"error,omitempty"`
}

// line is the answer as it is sent, without its end.
func (a answer) line() ([]byte, error) {
	a.Version = "2.0"
	return json.Marshal(a)
}

type described struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"inputSchema"`
}

// Run serves standard input and output until their end. It fails where a tool is described
// wrongly, or where nobody takes an answer.
func (s *Server) Run() error { return s.Serve(os.Stdin, os.Stdout) }

// Main is Run for a program that does nothing else: an error ends it with code 1.
func (s *Server) Main() {
	if err := s.Run(); err != nil {
		fmt.Fprintln(os.Stderr, s.Name+":", err)
		os.Exit(1)
	}
}

// Serve serves one client on other streams. Calls are answered as they end, so that a slow
// one holds up no other.
func (s *Server) Serve(in io.Reader, out io.Writer) error {
	// 1. What there is.
	tools := map[string]Tool{}
	list := []described{}
	for _, t := range s.Tools {
		if t.Schema == "" {
			t.Schema = `{"type":"object"}`
		}
		switch _, twice := tools[t.Name]; {
		case t.Name == "" || t.Call == nil || twice:
			return fmt.Errorf("tool %q: it has no name or no function, or is there twice", t.Name)
		case !json.Valid([]byte(t.Schema)):
			return fmt.Errorf("tool %q: its schema is no JSON", t.Name)
		}
		tools[t.Name] = t
		list = append(list, described{t.Name, t.Description, json.RawMessage(t.Schema)})
	}
	// 2. The client, a line at a time.
	var writing sync.Mutex
	var failed error
	say := func(line []byte, err error) {
		writing.Lock()
		defer writing.Unlock()
		if err == nil {
			_, err = out.Write(append(line, '\n'))
		}
		failed = errors.Join(failed, err)
	}
	var calls sync.WaitGroup
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 4096), maxMessage)
	for lines.Scan() {
		var m message
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			var wrong *json.UnmarshalTypeError // but for which the message is read
			if !errors.As(err, &wrong) || !strings.HasPrefix(wrong.Field, "params") {
				say(answer{ID: json.RawMessage("null"), Error: &fault{-32700, "that is no JSON of a message"}}.line())
				continue
			}
			m.Params = nil
		}
		if m.ID == nil || m.Method == "" {
			continue // a notification, or an answer that nobody waits for
		}
		if m.Method != "tools/call" {
			r, err := s.answer(m, list)
			say(answer{ID: m.ID, Result: r, Error: err}.line())
			continue
		}
		calls.Add(1)
		go func() {
			defer calls.Done()
			say(call(m, tools))
		}()
	}
	calls.Wait()
	writing.Lock()
	defer writing.Unlock()
	return errors.Join(lines.Err(), failed)
}

// answer answers what is no call.
func (s *Server) answer(m message, list []described) (any, *fault) {
	switch m.Method {
	case "initialize":
		if m.Params == nil {
			return nil, &fault{-32602, "initialize without parameters"}
		}
		spoken := revision
		if slices.Contains(revisions, m.Params.Revision) {
			spoken = m.Params.Revision
		}
		r := map[string]any{
			"protocolVersion": spoken, "capabilities": map[string]any{"tools": map[string]any{}},
			"serverInfo": map[string]string{"name": s.Name, "version": s.Version},
		}
		if s.Instructions != "" {
			r["instructions"] = s.Instructions
		}
		return r, nil
	case "ping":
		return struct{}{}, nil
	case "tools/list":
		return map[string]any{"tools": list}, nil
	}
	return nil, &fault{-32601, "there is no method " + m.Method}
}

// call is the line that answers a call.
func call(m message, tools map[string]Tool) ([]byte, error) {
	refuse := func(format string, args ...any) ([]byte, error) {
		return answer{ID: m.ID, Error: &fault{-32602, fmt.Sprintf(format, args...)}}.line()
	}
	if m.Params == nil {
		return refuse("tools/call without parameters")
	}
	t, ok := tools[m.Params.Name]
	if !ok {
		return refuse("there is no tool %s", m.Params.Name)
	}
	arguments := m.Params.Arguments
	if arguments == nil {
		arguments = json.RawMessage("{}")
	}
	text, failed := t.Call(arguments)
	if failed != nil {
		text = failed.Error()
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return nil, err
	}
	// The line is put together here: reflection costs a module many times what it costs a program.
	line := make([]byte, 0, len(quoted)+len(m.ID)+128)
	line = append(append(line, `{"jsonrpc":"2.0","id":`...), m.ID...)
	line = append(append(line, `,"result":{"content":[{"type":"text","text":`...), quoted...)
	line = append(line, "}]"...)
	if failed != nil {
		line = append(line, `,"isError":true`...)
	}
	return append(line, "}}"...), nil
}
