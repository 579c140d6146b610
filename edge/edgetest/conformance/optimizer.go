package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/edge/edgetest/peers"
)

// searching starts an edge with the optimizer before a server, and before it what has the
// suite call tools as a client of such an edge has to. end ends that.
func (h *harness) searching(ctx context.Context, weir, server, transport string) (edge *peers.Process, at string, end func(), err error) {
	edge, through, err := peers.StartEdgeWith(ctx, weir, h.dir, peers.Searching(server, transport))
	if err != nil {
		return nil, "", nil, err
	}
	to, err := url.Parse(through)
	if err == nil {
		at, end, err = byCallTool(to)
	}
	if err != nil {
		_ = edge.Stop() // the error that counts is the first
		return nil, "", nil, err
	}
	return edge, at, end, nil
}

// maxAsked bounds a message of the suite, in bytes.
const maxAsked = 16 << 20

// byCallTool serves what an endpoint serves, and passes all on as it comes, but for calls of
// tools: those become calls of call_tool.
func byCallTool(to *url.URL) (at string, end func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host
		// Host and Origin are to be judged as the suite gives them, but for the port.
		_, mine, _ := net.SplitHostPort(ln.Addr().String()) // the address of a listener has a port
		at := func(text string) string { return strings.Replace(text, ":"+mine, ":"+to.Port(), 1) }
		r.Out.Host = at(r.In.Host)
		if origin := r.In.Header.Get("Origin"); origin != "" {
			r.Out.Header.Set("Origin", at(origin))
		}
	}}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, maxAsked))
		if err != nil {
			return // the suite has left
		}
		if r.Method == http.MethodPost {
			body = passedOn(r.Header, body)
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Set("Content-Length", strconv.Itoa(len(body)))
		proxy.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(ln) }() // ends with end
	return "http://" + ln.Addr().String() + to.Path, func() { _ = server.Close() }, nil
}

// passedOn is a message with a call of a tool made one of call_tool, and any other as it is.
func passedOn(head http.Header, body []byte) []byte {
	var m, params map[string]json.RawMessage
	var name string
	if json.Unmarshal(body, &m) != nil || string(m["method"]) != `"tools/call"` || json.Unmarshal(m["params"], &params) != nil || json.Unmarshal(params["name"], &name) != nil {
		return body
	}
	arguments := params["arguments"]
	if arguments == nil {
		arguments = json.RawMessage("{}")
	}
	call := map[string]json.RawMessage{"tool_name": params["name"], "parameters": arguments}
	params["arguments"], _ = json.Marshal(call) // text that was read can be written
	params["name"] = json.RawMessage(`"call_tool"`)
	m["params"], _ = json.Marshal(params)
	if head.Get("Mcp-Name") == name {
		head.Set("Mcp-Name", "call_tool")
	}
	out, err := json.Marshal(m)
	if err != nil {
		return body
	}
	return out
}
