package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/weir-edge/weir/edge/mcp"
)

// patience bounds whatever a client waits for that has no bar of its own.
const patience = 20 * time.Second

// client is one connection of an MCP client. It is used by one goroutine at a
// time.
type client struct {
	conn    net.Conn
	br      *bufio.Reader
	addr    string
	era     era
	tool    string // that it calls; empty for work
	session string // of a legacy client
	token   string // that its requests carry; empty for none
}

// dialOptions shape the connection of a client.
type dialOptions struct {
	from    int // the host of the loopback network that it comes from
	receive int // bytes that the kernel may hold for it unread; 0 for the system's own
	buffer  int // bytes of the reader; 0 for 4 KiB
}

// dial connects. Clients with different numbers come from different addresses,
// as those of different machines would.
func dial(ctx context.Context, addr string, e era, o dialOptions) (*client, error) {
	d := net.Dialer{
		Timeout:   patience,
		KeepAlive: -1,
		LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, byte(1+o.from/200%200), byte(1+o.from%200))},
		Control:   receiveBuffer(o.receive),
	}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if o.buffer == 0 {
		o.buffer = 4 << 10
	}
	return &client{conn: conn, br: bufio.NewReaderSize(conn, o.buffer), addr: addr, era: e}, nil
}

func (c *client) close() { c.conn.Close() }

// local is the address that the client comes from.
func (c *client) local() netip.AddrPort {
	at, _ := netip.ParseAddrPort(c.conn.LocalAddr().String()) // a connection has one
	return at
}

// wait bounds what the client does next.
func (c *client) wait(d time.Duration) { _ = c.conn.SetDeadline(time.Now().Add(d)) }

// answer is what came for one request.
type answer struct {
	header
	body []byte   // of an answer that is not a stream
	data [][]byte // of the events of a stream
}

// message is the JSON-RPC answer: the body, or the last event.
func (a *answer) message() []byte {
	if n := len(a.data); n > 0 {
		return a.data[n-1]
	}
	return a.body
}

// do sends a request and reads the whole answer.
func (c *client) do(request []byte) (a answer, err error) {
	if _, err := c.conn.Write(request); err != nil {
		return a, fmt.Errorf("send: %w", err)
	}
	return c.receive()
}

// receive reads a whole answer.
func (c *client) receive() (a answer, err error) {
	if a.header, err = readAnswerHead(c.br); err != nil {
		return a, fmt.Errorf("receive: %w", err)
	}
	if !a.events || !a.chunked {
		a.body, err = a.readBody(c.br)
		return a, err
	}
	stream := newEvents(c.br, 4<<10)
	for {
		data, err := stream.next()
		if err != nil {
			if len(a.data) > 0 && isEOF(err) {
				return a, nil
			}
			return a, fmt.Errorf("stream: %w", err)
		}
		a.data = append(a.data, data)
	}
}

// begin does what a client does before its first call: a legacy one begins a
// session under a name, a modern one nothing.
func (c *client) begin(name string) error {
	if c.era == modern {
		return nil
	}
	c.wait(patience)
	hello := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"%s","capabilities":{},"clientInfo":{"name":%q,"version":"1"}}}`, mcp.V2511, name)
	a, err := c.do(c.post(hello))
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	if a.status != 200 || a.session == "" {
		return fmt.Errorf("initialize: HTTP %d: %.200s", a.status, a.body)
	}
	c.session = a.session
	if a, err = c.do(c.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)); err != nil {
		return fmt.Errorf("notifications/initialized: %w", err)
	}
	switch {
	case a.status == 404:
		return errNoSession
	case a.status != 202:
		return fmt.Errorf("notifications/initialized: HTTP %d: %.200s", a.status, a.body)
	}
	return nil
}

// post is the text of a legacy request.
func (c *client) post(body string) []byte {
	out := fmt.Appendf(nil, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", c.addr, len(body))
	out = append(out, c.credential()...)
	if c.session != "" {
		out = fmt.Appendf(out, "MCP-Protocol-Version: %s\r\nMcp-Session-Id: %s\r\n", mcp.V2511, c.session)
	}
	return append(append(out, "\r\n"...), body...)
}

// credential is the header line with the token; "" for none.
func (c *client) credential() string {
	if c.token == "" {
		return ""
	}
	return "Authorization: Bearer " + c.token + "\r\n"
}

// bare is the text of a legacy request without a body.
func (c *client) bare(method string) []byte {
	return fmt.Appendf(nil, "%s /mcp HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\nMCP-Protocol-Version: %s\r\nMcp-Session-Id: %s\r\n\r\n", method, c.addr, mcp.V2511, c.session)
}

const modernMeta = `"` + mcp.MetaVersion + `":"` + mcp.V2607 + `","` + mcp.MetaClientInfo + `":{"name":"storm","version":"1"},"` + mcp.MetaCapabilities + `":{}`

// modernPost is the text of a modern request. params is the inside of an
// object, without _meta; meta is more of the inside of that.
func (c *client) modernPost(id, method, name, params, meta string) []byte {
	if params != "" {
		params += ","
	}
	if meta != "" {
		meta = "," + meta
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"%s","params":{%s"_meta":{%s%s}}}`, id, method, params, modernMeta, meta)
	if name != "" {
		name = "Mcp-Name: " + name + "\r\n"
	}
	name += c.credential()
	return fmt.Appendf(nil, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\nMCP-Protocol-Version: %s\r\nMcp-Method: %s\r\n%sContent-Length: %d\r\n\r\n%s",
		c.addr, mcp.V2607, method, name, len(body), body)
}

// callText is the text of a call of the tool. id and token are JSON text; no
// token asks for no progress.
func (c *client) callText(id string, w work, token string) []byte {
	arguments, _ := json.Marshal(w) // text and numbers always marshal
	tool := c.tool
	if tool == "" {
		tool = "work"
	}
	params := `"name":"` + tool + `","arguments":` + string(arguments)
	if token != "" {
		token = `"progressToken":` + token
	}
	if c.era == modern {
		return c.modernPost(id, "tools/call", tool, params, token)
	}
	if token != "" {
		params += `,"_meta":{` + token + `}`
	}
	return c.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{%s}}`, id, params))
}

var (
	errBusy      = errors.New("answered with 503")
	errNoSession = errors.New("the edge has no such session")
	errWrong     = errors.New("not the answer to this call")
)

// call makes a call and verifies that the answer is its own. An error that is
// none of those above means that no answer came.
func (c *client) call(id string, w work) (closes bool, err error) {
	a, err := c.do(c.callText(id, w, ""))
	if err != nil {
		return true, err
	}
	return a.closes, a.verify(id, w.Text)
}

// verify says what is wrong with the answer to a call; nil when it has the id
// and the text.
func (a *answer) verify(id, text string) error {
	m := a.message()
	switch {
	case a.status == 503:
		return errBusy
	case a.status == 404 && bytes.Contains(m, []byte(`"code":-32001`)):
		return errNoSession
	}
	if a.status != 200 || !bytes.Contains(m, []byte(`"id":`+id+`,`)) || !bytes.Contains(m, []byte(`"text":"`+text)) {
		return fmt.Errorf("%w: HTTP %d: %.300s", errWrong, a.status, m)
	}
	return nil
}

// listen opens a stream that belongs to no call: the GET of a legacy session,
// or subscriptions/listen under an id. It returns when its head has come, and
// of a modern one the acknowledgement.
func (c *client) listen(id string) (*events, error) {
	c.wait(patience)
	defer func() { _ = c.conn.SetDeadline(time.Time{}) }()
	text := c.bare("GET")
	if c.era == modern {
		text = c.modernPost(id, "subscriptions/listen", "", `"notifications":{"toolsListChanged":true}`, "")
	}
	if _, err := c.conn.Write(text); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	h, err := readAnswerHead(c.br)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if h.status != 200 || !h.events || !h.chunked {
		body, _ := h.readBody(c.br)
		return nil, fmt.Errorf("listen: HTTP %d: %.200s", h.status, body)
	}
	s := newEvents(c.br, 1<<10)
	if c.era == modern {
		if _, err := s.next(); err != nil {
			return nil, fmt.Errorf("listen: acknowledgement: %w", err)
		}
	}
	return s, nil
}
