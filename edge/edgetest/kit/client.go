package kit

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

// Era is one of the two wire protocols of MCP.
type Era string

// The eras; Both is of a backend only, on one URL.
const (
	Legacy Era = "legacy"
	Modern Era = "modern"
	Both   Era = "both"
)

// Mixed gives every second worker of a load the modern era, the first among
// them.
func Mixed(worker int) Era {
	if worker%2 == 0 {
		return Modern
	}
	return Legacy
}

// Client is one connection of an MCP client. It is used by one goroutine at a
// time.
type Client struct {
	Addr    string
	Era     Era
	Tool    string // that it calls; empty for work
	Session string // of a legacy client
	Token   string // that its requests carry; empty for none
	Answer  Answer // to its last request

	Conn net.Conn
	In   *bufio.Reader
}

// DialOptions shape the connection of a client.
type DialOptions struct {
	From    int // the host of the loopback network that it comes from
	Receive int // bytes that the kernel may hold for it unread; 0 for the system's own
	Buffer  int // bytes of the reader; 0 for 4 KiB
}

// Dial connects. Clients with different numbers come from different addresses,
// as those of different machines would, so that a limit for each address does
// not take them all for one.
func Dial(ctx context.Context, addr string, e Era, o DialOptions) (*Client, error) {
	d := net.Dialer{
		Timeout:   Patience,
		KeepAlive: -1,
		LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, byte(1+o.From/200%200), byte(1+o.From%200))},
		Control:   receiveBuffer(o.Receive),
	}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if o.Buffer == 0 {
		o.Buffer = 4 << 10
	}
	return &Client{Conn: conn, In: bufio.NewReaderSize(conn, o.Buffer), Addr: addr, Era: e}, nil
}

// Close closes the connection. There may be none.
func (c *Client) Close() {
	if c != nil {
		c.Conn.Close()
	}
}

// Reset closes the connection so that the peer sees it at once, whatever is
// unread or unsent.
func (c *Client) Reset() { reset(c.Conn) }

// Local is the address that the client comes from.
func (c *Client) Local() netip.AddrPort {
	at, _ := netip.ParseAddrPort(c.Conn.LocalAddr().String()) // a connection has one
	return at
}

// Wait bounds what the client does next.
func (c *Client) Wait(d time.Duration) { _ = c.Conn.SetDeadline(time.Now().Add(d)) }

// Do sends a request and reads the answer to it, which is the client's until
// the next.
func (c *Client) Do(request []byte) (*Answer, error) {
	if _, err := c.Conn.Write(request); err != nil {
		return &c.Answer, fmt.Errorf("send: %w", err)
	}
	return &c.Answer, c.Answer.Read(c.In)
}

// Try is Do with a legacy request, within the patience of a client.
func (c *Client) Try(method, body string) (*Answer, error) {
	c.Wait(Patience)
	return c.Do(c.Request(method, body))
}

// Hello is the initialize of a legacy client (2025-11-25, "Lifecycle").
// capabilities is JSON text.
func Hello(name, capabilities string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"%s","capabilities":%s,"clientInfo":{"name":%q,"version":"1"}}}`, mcp.V2511, capabilities, name)
}

// Begin does what a client does before its first call: a legacy one begins a
// session under a name, a modern one nothing.
func (c *Client) Begin(name string) error { return c.BeginWith(name, `{}`) }

// BeginWith is Begin for a client with capabilities, JSON text.
func (c *Client) BeginWith(name, capabilities string) error {
	if c.Era == Modern {
		return nil
	}
	c.Session = ""
	a, err := c.Try("POST", Hello(name, capabilities))
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	if a.Status != 200 || len(a.Session) == 0 || !bytes.Contains(a.Text(), []byte(`"protocolVersion":"`+mcp.V2511+`"`)) {
		return fmt.Errorf("initialize: HTTP %d: %.200s", a.Status, a.Body)
	}
	c.Session = string(a.Session)
	if a, err = c.Try("POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`); err != nil {
		return fmt.Errorf("notifications/initialized: %w", err)
	}
	switch {
	case a.Status == 404:
		return ErrNoSession
	case a.Status != 202:
		return fmt.Errorf("notifications/initialized: HTTP %d: %.200s", a.Status, a.Body)
	}
	return nil
}

// End ends the session of a legacy client, and the connection.
func (c *Client) End() error {
	defer c.Close()
	if c.Era != Legacy || c.Session == "" {
		return nil
	}
	a, err := c.Try("DELETE", "")
	if err != nil {
		return fmt.Errorf("DELETE: %w", err)
	}
	if a.Status/100 != 2 && a.Status != 405 {
		return fmt.Errorf("DELETE: status %d", a.Status)
	}
	return nil
}

// Request is the text of a legacy request; a GET or DELETE has no body. more is
// further header lines, each with its end.
func (c *Client) Request(method, body string, more ...string) []byte {
	accept := "application/json, text/event-stream"
	if method == "GET" {
		accept = "text/event-stream"
	}
	out := fmt.Appendf(nil, "%s /mcp HTTP/1.1\r\nHost: %s\r\nAccept: %s\r\n", method, c.Addr, accept)
	if c.Session != "" {
		out = fmt.Appendf(out, "MCP-Protocol-Version: %s\r\nMcp-Session-Id: %s\r\n", mcp.V2511, c.Session)
	}
	out = append(out, c.Credential()...)
	for _, line := range more {
		out = append(out, line...)
	}
	if method == "POST" {
		out = fmt.Appendf(out, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	return append(append(out, "\r\n"...), body...)
}

// Credential is the header line with the token; "" for none.
func (c *Client) Credential() string {
	if c.Token == "" {
		return ""
	}
	return "Authorization: Bearer " + c.Token + "\r\n"
}

const modernMeta = `"` + mcp.MetaVersion + `":"` + mcp.V2607 + `","` + mcp.MetaClientInfo + `":{"name":"weir-tools","version":"1"}`

// Modern is the text of a modern request. params is the inside of an object,
// without _meta; meta is more of the inside of that, with which a client may
// also say its capabilities, which else are none.
func (c *Client) Modern(id, method, name, params, meta string) []byte {
	if params != "" {
		params += ","
	}
	if meta != "" {
		meta = "," + meta
	}
	if !bytes.Contains([]byte(meta), []byte(mcp.MetaCapabilities)) {
		meta = `,"` + mcp.MetaCapabilities + `":{}` + meta
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"%s","params":{%s"_meta":{%s%s}}}`, id, method, params, modernMeta, meta)
	if name != "" {
		name = "Mcp-Name: " + name + "\r\n"
	}
	return fmt.Appendf(nil, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: %s\r\nMcp-Method: %s\r\n%s%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		c.Addr, mcp.V2607, method, name, c.Credential(), len(body), body)
}

// CallText is the text of a call of the tool. id and token are JSON text; no
// token asks for no progress.
func (c *Client) CallText(id string, w Work, token string) []byte {
	arguments, _ := json.Marshal(w) // text and numbers always marshal
	tool := c.Tool
	if tool == "" {
		tool = "work"
	}
	params := `"name":"` + tool + `","arguments":` + string(arguments)
	if token != "" {
		token = `"progressToken":` + token
	}
	if c.Era == Modern {
		return c.Modern(id, "tools/call", tool, params, token)
	}
	if token != "" {
		params += `,"_meta":{` + token + `}`
	}
	return c.Request("POST", fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{%s}}`, id, params))
}

// How a call may end beside being answered or not.
var (
	ErrBusy      = errors.New("answered with 503")
	ErrNoSession = errors.New("the edge has no such session")
	ErrWrong     = errors.New("not the answer to this call")
)

// Call makes a call and verifies that the answer is its own. An error that is
// none of those above means that no answer came.
func (c *Client) Call(id string, w Work) (closes bool, err error) {
	a, err := c.Do(c.CallText(id, w, ""))
	if err != nil {
		return true, err
	}
	return a.Closes, a.Verify(id, w.Text)
}

// Verify says what is wrong with the answer to a call; nil when it has the id
// and the text.
func (a *Answer) Verify(id, text string) error {
	m := a.Text()
	switch {
	case a.Status == 503:
		return ErrBusy
	case a.Status == 404 && bytes.Contains(m, []byte(`"code":-32001`)):
		return ErrNoSession
	}
	if a.Status != 200 || !bytes.Contains(m, []byte(`"id":`+id+`,`)) || !bytes.Contains(m, []byte(`"text":"`+text)) {
		return fmt.Errorf("%w: HTTP %d: %.300s", ErrWrong, a.Status, m)
	}
	return nil
}

// Listen opens a stream that belongs to no call: the GET of a legacy session,
// from after the event that it names if it does, or subscriptions/listen under
// an id. It returns when its head has come, and of a modern one the
// acknowledgement. When another answer comes, it is the client's.
func (c *Client) Listen(id, lastEvent string) (*Events, error) {
	c.Wait(Patience)
	defer func() { _ = c.Conn.SetDeadline(time.Time{}) }()
	more := ""
	if lastEvent != "" {
		more = "Last-Event-ID: " + lastEvent + "\r\n"
	}
	text := c.Request("GET", "", more)
	if c.Era == Modern {
		text = c.Modern(id, "subscriptions/listen", "", `"notifications":{"toolsListChanged":true}`, "")
	}
	s, err := c.Stream(text)
	if err == nil && c.Era == Modern {
		if _, err := s.Next(); err != nil {
			return nil, fmt.Errorf("acknowledgement: %w", err)
		}
	}
	return s, err
}

// Stream sends a request that is answered with a stream, and returns it when its
// head has come.
func (c *Client) Stream(request []byte) (*Events, error) {
	if _, err := c.Conn.Write(request); err != nil {
		return nil, fmt.Errorf("send: %w", err)
	}
	a := &c.Answer
	if err := a.ReadHead(c.In); err != nil {
		return nil, err
	}
	if !a.Streams() {
		_ = a.ReadBody(c.In) // what there is of it
		return nil, fmt.Errorf("no stream: HTTP %d: %.200s", a.Status, a.Body)
	}
	return NewEvents(c.In, 1<<10), nil
}

// PortOf is the port of host:port; 0 for what is none.
func PortOf(addr string) uint16 {
	at, _ := netip.ParseAddrPort(addr)
	return at.Port()
}
