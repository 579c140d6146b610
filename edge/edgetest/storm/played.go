package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// asServer is the argument with which this program is an MCP server on standard streams, of
// one thread, that lends itself to what is done to processes. asHTTP is the same server over
// HTTP, at the port that MCP_PORT says.
const (
	asServer = "as-stdio-server"
	asHTTP   = "as-http-server"
)

// play serves until the end of stdin. Its tools: pid says who it is, work takes a number of
// milliseconds, eat takes all memory that it can get, and mark writes a text to the file ran
// of its home before it works.
func play() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		if answer := played(in.Bytes()); answer != "" {
			fmt.Println(answer)
		}
	}
}

// playHTTP serves until it is ended.
func playHTTP() {
	err := http.ListenAndServe("127.0.0.1:"+os.Getenv("MCP_PORT"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if r.Method != http.MethodPost || err != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		answer := played(text)
		if answer == "" {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer) // a client that is gone wants nothing
	}))
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// played is what the server answers to a message; "" for nothing.
func played(text []byte) string {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Name      string `json:"name"`
			Arguments struct {
				MS   int    `json:"ms"`
				Text string `json:"text"`
			} `json:"arguments"`
		} `json:"params"`
	}
	if json.Unmarshal(text, &m) != nil || m.ID == nil {
		return ""
	}
	result := "{}"
	switch m.Method {
	case "initialize":
		result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"played","version":"1"}}`
	case "ping":
	case "tools/list":
		result = `{"tools":[{"name":"pid","inputSchema":{"type":"object"}},{"name":"work","inputSchema":{"type":"object"}},{"name":"eat","inputSchema":{"type":"object"}},{"name":"mark","inputSchema":{"type":"object"}}]}`
	case "tools/call":
		switch m.Params.Name {
		case "work":
			time.Sleep(time.Duration(m.Params.Arguments.MS) * time.Millisecond)
		case "mark":
			mark(m.Params.Arguments.Text)
			time.Sleep(time.Duration(m.Params.Arguments.MS) * time.Millisecond)
		case "eat":
			eat()
		}
		result = `{"content":[{"type":"text","text":"` + strconv.Itoa(os.Getpid()) + `"}]}`
	default:
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, m.ID)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// mark writes a line to the file ran of the server's home.
func mark(text string) {
	f, err := os.OpenFile(filepath.Join(os.Getenv("HOME"), "ran"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, text)
		_ = f.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// eat takes 512 MiB, slowly enough for somebody to see it, and keeps them.
func eat() {
	var all [][]byte
	for range 512 {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		all = append(all, b)
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(time.Minute)
	fmt.Fprintln(os.Stderr, len(all))
}
