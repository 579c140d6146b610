package egress

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// proxy serves a connection to the proxy. What begins like no request of HTTP/1 gets 400.
func (g *Passage) proxy(c *inner) {
	var first [1]byte
	if n, _ := c.Read(first[:]); n == 0 {
		_ = c.Close()
		return
	}
	if first[0] < 'A' || first[0] > 'Z' { // SOCKS, TLS
		g.p.refuse(&Refusal{Reason: Malformed})
		_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		_ = c.Close()
		return
	}
	_ = g.p.server.ServeConn(&opened{inner: c, first: first[:]}) // what it fails with was answered
}

// opened is a connection whose first bytes were read.
type opened struct {
	*inner
	first []byte
}

func (c *opened) Read(b []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.inner.Read(b)
}

// SetDeadline fails for no connection that has ended: the server would begin nothing of what its
// handler left to be done, the end of which Close waits for.
func (c *opened) SetDeadline(t time.Time) error {
	_ = c.inner.SetDeadline(t)
	return nil
}

// received hides from the HTTP server a body whose length is given, and that its client waits to
// be asked for it. The server would ask for a body, and wait for its first 8 KiB, before it is
// known where the request goes. The lines as they came stay in RawHeaders.
func received(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	h.Del(fasthttp.HeaderExpect)
	if h.ContentLength() > 0 {
		h.SetContentLength(0)
	}
	return fasthttp.RequestConfig{}
}

// malformed answers what the HTTP server could not read.
func (p *Proxy) malformed(ctx *fasthttp.RequestCtx, err error) {
	p.refuse(&Refusal{Reason: Malformed})
	status := fasthttp.StatusBadRequest
	var small *fasthttp.ErrSmallBuffer
	if errors.As(err, &small) {
		status = fasthttp.StatusRequestHeaderFieldsTooLarge
	}
	ctx.SetConnectionClose()
	p.say(ctx, status, "weir: this is no request of HTTP/1.1 that the egress proxy can read")
}

func (p *Proxy) say(ctx *fasthttp.RequestCtx, status int, text string) {
	ctx.Response.Header.SetContentType("text/plain; charset=utf-8")
	ctx.SetStatusCode(status)
	ctx.SetBodyString(edge.Clean(text) + "\n")
}

// handle serves one request.
func (p *Proxy) handle(ctx *fasthttp.RequestCtx) {
	c, ok := ctx.Conn().(*opened)
	if !ok {
		p.say(ctx, fasthttp.StatusInternalServerError, "weir: no connection out of a sandbox")
		return
	}
	c.busy()
	defer func() { // the next head may take its time anew
		c.pass.Store(false)
		c.begun = time.Time{}
	}()
	// 1. It has one reading.
	host, port, target, err := p.target(&ctx.Request.Header)
	var head head
	if err == nil {
		head, err = readLines(ctx.Request.Header.RawHeaders())
	}
	connect := string(ctx.Method()) == fasthttp.MethodConnect
	if err == nil {
		err = head.check(host, port, connect, string(ctx.Request.Header.Protocol()))
	}
	if err != nil {
		p.refuse(&Refusal{Host: host.String(), Port: port, Reason: Malformed, What: err.Error()})
		ctx.SetConnectionClose()
		status := fasthttp.StatusBadRequest
		if errors.Is(err, errMany) {
			status = fasthttp.StatusRequestHeaderFieldsTooLarge
		}
		p.say(ctx, status, "weir: "+err.Error())
		if head.body() {
			p.part(ctx, c)
		}
		return
	}
	// 2. It is allowed, and somebody answers.
	out, d, err := c.passage.dial(host, port)
	if err == nil && !connect && port == 443 && !d.AnyName { // as in a tunnel to that port
		_ = out.Close()
		err = &Refusal{Host: host.String(), Port: port, Reason: WrongName, What: "it is no TLS"}
	}
	if err != nil {
		p.refusedWith(err)
		p.answer(ctx, host, port, err)
		if head.body() {
			p.part(ctx, c)
		}
		return
	}
	// 3. It is carried: a tunnel, or one request and what comes back.
	ctx.HijackSetNoResponse(true)
	if connect {
		c.passage.work.Add(1) // Serve has not returned: the connection has not ended
		ctx.Hijack(func(in net.Conn) {
			defer c.passage.work.Done()
			defer edge.Contain(p.log, "egress")
			defer out.Close()
			if _, err := io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
				c.passage.tunnel(c.inner, in, out, d, host, port)
			}
			_ = c.Close()
		})
		return
	}
	if !c.passage.hold(out) {
		_ = c.Close()
		return
	}
	p.allow(host, port, d)
	c.passage.work.Add(1)
	ctx.Hijack(func(in net.Conn) {
		defer c.passage.work.Done()
		defer edge.Contain(p.log, "egress")
		defer c.passage.drop(out)
		c.busy()
		pair := newPair(c.inner, out)
		defer pair.end()
		if head.expects && head.body() && string(ctx.Request.Header.Protocol()) == "HTTP/1.1" { // RFC 9110 §10.1.1
			_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
		}
		// A host may answer before it has all of the request, and take no more of it.
		back := make(chan struct{})
		pair.sending.Store(true)
		go func() {
			defer close(back)
			defer edge.Contain(p.log, "egress")
			pair.back()
			if pair.sending.Load() { // there is nobody for the rest of the request
				_ = c.CloseWrite()
				pair.hurry(p.times.leaving)
			}
		}()
		body := io.Reader(in)
		if head.chunked {
			body = ctx.RequestBodyStream()
		}
		sent := p.pass(ctx, pair, head, target, host, port, body)
		pair.sending.Store(!sent)
		var behind sync.WaitGroup
		if sent || pair.deaf {
			behind.Go(func() { // what comes behind the request is no other one
				defer edge.Contain(p.log, "egress")
				_, _ = io.Copy(io.Discard, in)
				pair.hurry(p.times.leaving)
			})
		} else {
			pair.abort()
		}
		<-back
		if pair.deaf { // who still sends has to read the answer before the end
			_ = c.CloseWrite()
			pair.hurry(p.times.leaving)
			behind.Wait()
		}
		_ = c.Close()
		behind.Wait() // the server gives the reader to another connection
	})
}

// part ends a connection with the answer to a request whose body is still on its way. That is read
// a while: to close before it has come may take the answer from the client.
func (p *Proxy) part(ctx *fasthttp.RequestCtx, c *opened) {
	ctx.SetConnectionClose()
	ctx.HijackSetNoResponse(true)
	c.passage.work.Add(1) // as of a tunnel
	ctx.Hijack(func(in net.Conn) {
		defer c.passage.work.Done()
		defer edge.Contain(p.log, "egress")
		defer c.Close()
		defer time.AfterFunc(p.times.leaving, func() { _ = c.Close() }).Stop()
		c.busy()
		if _, err := ctx.Response.WriteTo(c); err == nil && c.CloseWrite() == nil {
			_, _ = io.CopyN(io.Discard, in, maxUnread)
		}
	})
}

// answer says why a request is refused.
func (p *Proxy) answer(ctx *fasthttp.RequestCtx, host Host, port int, err error) {
	var e *Refusal
	status := fasthttp.StatusForbidden
	text := "weir: egress to " + net.JoinHostPort(host.String(), strconv.Itoa(port)) + " is not allowed by profile " + p.rules.name
	if errors.As(err, &e) {
		switch e.Reason {
		case NotResolved, Unreachable:
			status = fasthttp.StatusBadGateway
			text = "weir: " + e.Error()
		case TooMany:
			status = fasthttp.StatusServiceUnavailable
			text = "weir: " + e.Error()
		default:
			text += ": " + e.Reason.words()
			if e.What != "" {
				text += ": " + e.What
			}
			if e.Next != "" {
				text += "; " + e.Next
			}
		}
	}
	p.say(ctx, status, text)
}

// The errors of requests.
var (
	errOrigin   = errors.New("this is an HTTP proxy: a request has the form METHOD http://HOST/PATH, or CONNECT HOST:PORT")
	errTarget   = errors.New("the request's target has a character that is no visible one of ASCII: write it as %XX")
	errScheme   = errors.New("the proxy carries http: for https a client sends CONNECT HOST:PORT")
	errProtocol = errors.New("only HTTP/1.0 and HTTP/1.1 are supported")
	errMethod   = errors.New("the method is not supported")
	errHostLine = errors.New("the Host is another than the one of the request's target, or there are several")
	errLines    = errors.New("the header has a line with more than one reading")
	errMany     = errors.New("the header has more than 100 lines")
	errLength   = errors.New("the length of the body has more than one reading")
	errTunnel   = errors.New("CONNECT has no body")
)

// target reads the target of a request: its host, its port, and for another than CONNECT what
// the host is asked for.
func (p *Proxy) target(h *fasthttp.RequestHeader) (Host, int, string, error) {
	if v := string(h.Protocol()); v != "HTTP/1.1" && v != "HTTP/1.0" {
		return Host{}, 0, "", errProtocol
	}
	method, uri := string(h.Method()), string(h.RequestURI())
	for i := range len(uri) {
		if uri[i] <= ' ' || uri[i] >= 0x7f {
			return Host{}, 0, "", errTarget
		}
	}
	switch method {
	case fasthttp.MethodConnect:
		host, port, err := ParseTarget(uri, 0)
		return host, port, "", err
	case "TRACE", "PRI":
		return Host{}, 0, "", errMethod
	}
	for i := range len(method) {
		if method[i] < 'A' || method[i] > 'Z' {
			return Host{}, 0, "", errMethod
		}
	}
	scheme, rest, ok := strings.Cut(uri, "://")
	switch {
	case !ok || strings.ContainsAny(scheme, "/?#"):
		return Host{}, 0, "", errOrigin
	case !strings.EqualFold(scheme, "http"):
		return Host{}, 0, "", errScheme
	}
	at := strings.IndexAny(rest, "/?#")
	authority, path := rest, "/"
	if at >= 0 {
		authority, path = rest[:at], rest[at:]
	}
	if path[0] != '/' {
		path = "/" + path
	}
	if strings.ContainsAny(path, "#\\") || strings.HasSuffix(authority, ":") {
		return Host{}, 0, "", errOrigin
	}
	host, port, err := ParseTarget(authority, 80)
	return host, port, path, err
}

// head is what the header of a request says.
type head struct {
	lines   []headerLine
	host    []string
	length  int64 // of the body; -1 for none given
	chunked bool
	expects bool // to be asked for the body
}

type headerLine struct{ name, value, text string }

func (h *head) body() bool { return h.chunked || h.length > 0 }

// maxLines is how many lines a header may have.
const maxLines = 100

// readLines reads header lines (RFC 9112 §5, §6): none is folded or ends in LF alone, no name
// or value has what another reader may take for the end, and the length of the body is said
// once.
func readLines(raw []byte) (head, error) {
	h := head{length: -1}
	for len(raw) > 0 {
		i := bytes.IndexByte(raw, '\n')
		if i < 1 || raw[i-1] != '\r' {
			return h, errLines
		}
		line := raw[:i-1]
		raw = raw[i+1:]
		if len(line) == 0 {
			if len(raw) > 0 {
				return h, errLines
			}
			break
		}
		colon := bytes.IndexByte(line, ':')
		if len(h.lines) == maxLines {
			return h, errMany
		}
		if colon < 1 || mcp.HasControl(line[colon+1:]) {
			return h, errLines
		}
		for _, c := range line[:colon] {
			if c <= ' ' || c >= 0x7f || strings.IndexByte("\"(),/:;<=>?@[\\]{}", c) >= 0 {
				return h, errLines
			}
		}
		one := headerLine{strings.ToLower(string(line[:colon])), strings.Trim(string(line[colon+1:]), " \t"), string(line)}
		h.lines = append(h.lines, one)
		switch one.name {
		case "host":
			h.host = append(h.host, one.value)
		case "content-length":
			n, err := strconv.ParseInt(one.value, 10, 64)
			if err != nil || h.length >= 0 || one.value[0] < '0' || one.value[0] > '9' {
				return h, errLength
			}
			h.length = n
		case "transfer-encoding":
			if h.chunked || !strings.EqualFold(one.value, "chunked") {
				return h, errLength
			}
			h.chunked = true
		case "expect":
			h.expects = strings.EqualFold(one.value, "100-continue")
		}
	}
	if h.chunked && h.length >= 0 {
		return h, errLength
	}
	return h, nil
}

// check holds the header against the target.
func (h *head) check(host Host, port int, connect bool, protocol string) error {
	switch {
	case len(h.host) > 1, len(h.host) == 0 && protocol == "HTTP/1.1":
		return errHostLine
	case connect && h.body():
		return errTunnel
	case h.chunked && protocol != "HTTP/1.1":
		return errLength
	}
	if len(h.host) == 1 {
		otherwise := 80
		if connect {
			otherwise = port
		}
		said, at, err := ParseTarget(h.host[0], otherwise)
		if err != nil || said != host || at != port {
			return errHostLine
		}
	}
	return nil
}

// hops are header lines between two neighbours (RFC 9110 §7.6.1), and those that the proxy
// writes itself.
func hop(name string) bool {
	switch name {
	case "connection", "proxy-connection", "proxy-authorization", "proxy-authenticate", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect", "content-length", "host":
		return true
	}
	return false
}

// pass sends one request to its host, which is to close after its answer.
func (p *Proxy) pass(ctx *fasthttp.RequestCtx, to *pair, h head, target string, host Host, port int, body io.Reader) bool {
	named := map[string]bool{}
	for _, l := range h.lines {
		if l.name == "connection" {
			for _, name := range strings.Split(l.value, ",") {
				named[strings.ToLower(strings.TrimSpace(name))] = true
			}
		}
	}
	w := bufio.NewWriterSize(moving{to}, 4<<10)
	authority := host.String()
	if host.IsAddr() && host.addr.Is6() {
		authority = "[" + authority + "]"
	}
	if port != 80 {
		authority += ":" + strconv.Itoa(port)
	}
	// A client of HTTP/1.0 knows no chunks: its host is asked in its version, and sends none.
	_, _ = w.WriteString(string(ctx.Method()) + " " + target + " " + string(ctx.Request.Header.Protocol()) + "\r\nHost: " + authority + "\r\n")
	for _, l := range h.lines {
		if !hop(l.name) && !named[l.name] {
			_, _ = w.WriteString(l.text + "\r\n")
		}
	}
	switch {
	case h.chunked:
		_, _ = w.WriteString("Transfer-Encoding: chunked\r\n")
	case h.length >= 0:
		_, _ = w.WriteString("Content-Length: " + strconv.FormatInt(h.length, 10) + "\r\n")
	}
	_, _ = w.WriteString("Connection: close\r\n\r\n")
	if err := w.Flush(); err != nil || !h.body() { // a host may answer before the body has come
		return err == nil
	}
	return sendBody(moving{to}, w, body, h) == nil && w.Flush() == nil
}

// sendBody sends the body as the header said it and as it comes, and not a byte more.
func sendBody(to io.Writer, w *bufio.Writer, body io.Reader, h head) error {
	if body == nil {
		return errLength
	}
	if !h.chunked {
		n, err := io.CopyN(to, body, h.length)
		if n < h.length && err == nil {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	b := make([]byte, 8<<10)
	for {
		n, err := body.Read(b)
		if n > 0 {
			_, _ = w.WriteString(strconv.FormatInt(int64(n), 16) + "\r\n")
			_, _ = w.Write(b[:n])
			_, _ = w.WriteString("\r\n")
			if err := w.Flush(); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			_, err = w.WriteString("0\r\n\r\n")
			return err
		}
		if err != nil {
			return err
		}
	}
}

// moving writes to the host of a pair.
type moving struct{ *pair }

func (w moving) Write(b []byte) (int, error) {
	n, err := w.out.Write(b)
	w.moved()
	w.deaf = w.deaf || err != nil
	return n, err
}

// errAnswer says that what a host answered is no answer.
var errAnswer = errors.New("the head of the answer is none of HTTP/1, has more than 16 KiB or 100 lines, or did not come in time")

// back carries the answer to a request. Its head says that the connection ends with it: what
// comes on it next has nobody who would judge it.
func (p *pair) back() {
	in := bufio.NewReaderSize(p.out, maxHead)
	head, err := p.readAnswer(in)
	if err != nil {
		_, _ = io.WriteString(p.c, "HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nweir: "+err.Error()+"\n")
		return
	}
	p.moved()
	if _, err := p.c.Write(head); err == nil {
		p.carry(p.c, in)
	}
}

// readAnswer reads the head of an answer, and says in it that the connection closes. Interim
// answers are left out.
func (p *pair) readAnswer(in *bufio.Reader) ([]byte, error) {
	for size := 0; ; {
		_ = p.out.SetReadDeadline(time.Time{}) // the answer may take its time, also behind an interim one
		_, _ = in.Peek(1)
		_ = p.out.SetReadDeadline(time.Now().Add(p.c.passage.p.times.head))
		var head []byte
		interim := false
		for n := 0; ; n++ {
			line, err := in.ReadSlice('\n')
			if size += len(line); err != nil || size > maxHead || n > maxLines+1 { // with the first and the empty one
				return nil, errAnswer
			}
			text := bytes.TrimRight(line, "\r\n")
			if n == 0 {
				if !bytes.HasPrefix(text, []byte("HTTP/1.")) || len(text) < len("HTTP/1.1 200") {
					return nil, errAnswer
				}
				interim = text[9] == '1' && string(text[9:12]) != "101"
			}
			if len(text) == 0 {
				break
			}
			name, _, _ := bytes.Cut(text, []byte(":"))
			switch strings.ToLower(string(name)) {
			case "connection", "keep-alive", "proxy-connection":
			default:
				head = append(append(head, text...), "\r\n"...)
			}
		}
		if !interim {
			_ = p.out.SetReadDeadline(time.Time{})
			return append(head, "Connection: close\r\n\r\n"...), nil
		}
	}
}
