package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"
)

// asServer is the argument with which this program is an MCP server on standard streams, of
// one thread, that lends itself to what is done to processes.
const asServer = "as-stdio-server"

// play serves until the end of stdin. Its tools: pid says who it is, work takes a number of
// milliseconds, eat takes all memory that it can get.
func play() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Name      string         `json:"name"`
				Arguments map[string]int `json:"arguments"`
				Meta      struct {
					Token json.RawMessage `json:"progressToken"`
				} `json:"_meta"`
			} `json:"params"`
		}
		if json.Unmarshal(in.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		result := "{}"
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"played","version":"1"}}`
		case "ping":
		case "tools/list":
			result = `{"tools":[{"name":"pid","inputSchema":{"type":"object"}},{"name":"work","inputSchema":{"type":"object"}},{"name":"eat","inputSchema":{"type":"object"}}]}`
		case "tools/call":
			switch m.Params.Name {
			case "work":
				work(time.Duration(m.Params.Arguments["ms"])*time.Millisecond, m.Params.Meta.Token)
			case "eat":
				eat()
			}
			result = `{"content":[{"type":"text","text":"` + strconv.Itoa(os.Getpid()) + `"}]}`
		default:
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`+"\n", m.ID)
			continue
		}
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
	}
}

// work reads nothing for a while, and tells of its progress where somebody wants to know.
func work(length time.Duration, token json.RawMessage) {
	const step = 5 * time.Second
	for done := 1; length > 0; done++ {
		time.Sleep(min(step, length))
		if length -= step; token != nil {
			fmt.Printf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`+"\n", token, done)
		}
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
