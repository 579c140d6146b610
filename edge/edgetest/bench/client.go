package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// client is one MCP client on one connection that stays open. It is used by
// one goroutine at a time.
type client struct {
	conn   net.Conn
	reader *bufio.Reader
	host   string
	era    era

	prefix  string // of the tools that it calls; empty for none
	session string // of a legacy client that has been initialized
	token   string // that modern requests carry; empty for none
	answer  answer
	calls   map[string]*call // by tool
}

// handshakeLimit bounds what a client does before and after its calls.
const handshakeLimit = 10 * time.Second

// dial connects a client. Clients with different numbers come from different
// addresses of the loopback network, as clients of different machines would,
// so that a limit per client address does not take them all for one.
func dial(ctx context.Context, addr string, e era, number int) (*client, error) {
	d := net.Dialer{Timeout: handshakeLimit, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+number%200))}}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &client{conn: conn, reader: bufio.NewReaderSize(conn, 16<<10), host: addr, era: e}, nil
}

// open does what a client does before its first call: a legacy one begins a
// session, a modern one nothing.
func (c *client) open() error {
	if c.era == legacy {
		session, err := c.initialize()
		if err != nil {
			return err
		}
		c.session = session
	}
	c.calls = map[string]*call{"echo": c.prepare("echo"), "slow": c.prepare("slow")}
	return nil
}

// close ends the session of a legacy client, and the connection.
func (c *client) close() error {
	defer c.conn.Close()
	if c.era != legacy || c.session == "" {
		return nil
	}
	c.deadline(handshakeLimit)
	if err := c.exchange(c.request("DELETE", c.session, "")); err != nil {
		return fmt.Errorf("DELETE: %w", err)
	}
	if c.answer.status/100 != 2 && c.answer.status != 405 {
		return fmt.Errorf("DELETE: status %d", c.answer.status)
	}
	return nil
}

// initialize begins a session (2025-11-25, "Lifecycle") and returns its id.
func (c *client) initialize() (session string, err error) {
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + legacyVersion + `","capabilities":{},"clientInfo":{"name":"weir-bench","version":"1"}}}`
	const ready = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	c.deadline(handshakeLimit)
	if err := c.exchange(c.request("POST", "", hello)); err != nil {
		return "", fmt.Errorf("initialize: %w", err)
	}
	text, err := c.answer.message()
	if err != nil || c.answer.status != 200 || !bytes.Contains(text, []byte(`"protocolVersion":"`+legacyVersion+`"`)) {
		return "", fmt.Errorf("initialize: status %d: %.300s", c.answer.status, c.answer.body)
	}
	if session = string(c.answer.session); session == "" {
		return "", errors.New("initialize: no Mcp-Session-Id")
	}
	if err := c.exchange(c.request("POST", session, ready)); err != nil {
		return "", fmt.Errorf("notifications/initialized: %w", err)
	}
	if c.answer.status != 202 {
		return "", fmt.Errorf("notifications/initialized: status %d: %.300s", c.answer.status, c.answer.body)
	}
	return session, nil
}

// ping reports whether a session still runs.
func (c *client) ping(session string) (bool, error) {
	c.deadline(handshakeLimit)
	if err := c.exchange(c.request("POST", session, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)); err != nil {
		return false, fmt.Errorf("ping: %w", err)
	}
	return c.answer.status == 200, nil
}

// stream opens the GET stream of a session. It returns when the head of the
// answer has come; the connection is the stream's from then on.
func (c *client) stream(session string) error {
	c.deadline(handshakeLimit)
	if _, err := c.conn.Write(c.request("GET", session, "")); err != nil {
		return fmt.Errorf("GET: %w", err)
	}
	if err := c.answer.readHead(c.reader); err != nil {
		return fmt.Errorf("GET: %w", err)
	}
	if c.answer.status != 200 || c.answer.kind != eventContent {
		return fmt.Errorf("GET: status %d, and not the event stream that was asked for", c.answer.status)
	}
	return nil
}

// call makes one call of a tool with a number of its own and verifies the
// answer.
func (c *client) call(tool string, number uint64) error {
	t := c.calls[tool]
	t.number(number)
	if err := c.exchange(t.text); err != nil {
		return err
	}
	return t.check(&c.answer)
}

// exchange sends a request and reads the answer to it.
func (c *client) exchange(request []byte) error {
	if _, err := c.conn.Write(request); err != nil {
		return err
	}
	return c.answer.read(c.reader)
}

func (c *client) deadline(d time.Duration) { _ = c.conn.SetDeadline(time.Now().Add(d)) }

// request is the text of a legacy request; session may be empty.
func (c *client) request(method, session, body string) []byte {
	accept := "application/json, text/event-stream"
	if method == "GET" {
		accept = "text/event-stream"
	}
	out := fmt.Appendf(nil, "%s /mcp HTTP/1.1\r\nHost: %s\r\nAccept: %s\r\n", method, c.host, accept)
	if session != "" {
		out = fmt.Appendf(out, "MCP-Protocol-Version: %s\r\nMcp-Session-Id: %s\r\n", legacyVersion, session)
	}
	if method == "POST" {
		out = fmt.Appendf(out, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	return append(append(out, "\r\n"...), body...)
}

// prepare builds the call of a tool as this client writes it.
func (c *client) prepare(tool string) *call {
	tool = c.prefix + tool
	params := fmt.Sprintf(`"name":%q,"arguments":{"text":"call %s"}`, tool, mark)
	if c.era != modern {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{%s}}`, mark, params)
		return newCall(c.request("POST", c.session, body))
	}
	return newCall(c.modernRequest(mark, "tools/call", tool, params+","))
}

// modernRequest is the text of a modern request. id is JSON text; params is the
// beginning of the inside of an object, with a comma at its end.
func (c *client) modernRequest(id, method, name, params string) []byte {
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modernVersion + `","io.modelcontextprotocol/clientInfo":{"name":"weir-bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"%s","params":{%s%s}}`, id, method, params, meta)
	if name != "" {
		name = "Mcp-Name: " + name + "\r\n"
	}
	if c.token != "" {
		name += "Authorization: Bearer " + c.token + "\r\n"
	}
	return fmt.Appendf(nil, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: %s\r\nMcp-Method: %s\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		c.host, modernVersion, method, name, len(body), body)
}
