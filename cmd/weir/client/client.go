// Package client talks to one MCP server over HTTP, of whatever era, for
// somebody at a terminal: it finds out what the server speaks, makes one call
// at a time, passes on what the server says meanwhile and asks, and gives back
// results as the bytes that the server sent.
//
// client.go is what a caller sees, greet.go how the era is found, http.go one
// message on its way, params.go the arguments that are repeated in headers,
// errors.go what can go wrong and what to do then.
package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge/mcp"
)

// Era is which of the two protocols to speak.
type Era string

// The eras to choose from. Auto tries the modern one and falls back.
const (
	Auto   Era = "auto"
	Legacy Era = "legacy"
	Modern Era = "modern"
)

// Options say whom to talk to and how.
type Options struct {
	URL     string
	Era     Era
	Header  http.Header // sent with every request
	HTTP    *http.Client
	Name    string        // of this program, as clientInfo says it
	Version string        // of this program
	Silence time.Duration // how long the server may say nothing during a call

	// Notify is told the notifications that precede an answer; nil for none,
	// and then no progress is asked for.
	Notify func(*mcp.Message)

	// Ask puts an elicitation to the user: params of elicitation/create in,
	// its result out, both JSON text. nil when there is nobody to ask. It is
	// called once at a time, and Notify meanwhile; its context ends when the
	// server does not ask any more.
	Ask func(ctx context.Context, params []byte) ([]byte, error)
}

// Client is a connection with a server. It is not safe for concurrent use.
type Client struct {
	o       Options
	link    link
	era     mcp.Era
	version string   // the revision that both sides speak
	ids     int      // of requests so far
	tools   [][]byte // pages of the last tools/list; nil before one
}

// link carries messages to a server and back. send returns the answer to a
// request, or the zero answer for any other message.
type link interface {
	send(ctx context.Context, m outgoing) (answer, error)
	close(ctx context.Context)
}

// outgoing is one message on its way.
type outgoing struct {
	body   []byte
	id     []byte      // of a request; nil for what gets no answer
	header http.Header // of this message; nil for none
}

// answer is a message of kind Result or Failure and the HTTP status that it
// came with.
type answer struct {
	*mcp.Message
	status    int
	after     string // Retry-After; empty for none
	challenge string // WWW-Authenticate, without what the request had; empty for none
}

const (
	maxRounds = 10 // of questions for one call (2026-07-28 gives no number)
	maxPages  = 1000
	farewell  = 2 * time.Second // for the last words to a server
)

// Connect finds out what the server speaks and greets it. The error is a
// *ConnectionError or a *ProtocolError. The caller must Close the client.
func Connect(ctx context.Context, o Options) (*Client, error) {
	c := &Client{o: o}
	c.link = &streamable{client: c}
	if err := c.greet(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Era is what client and server speak.
func (c *Client) Era() mcp.Era { return c.era }

// Close ends the session, if there is one.
func (c *Client) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	c.link.close(ctx)
}

// Tools returns the results of tools/list, one for each page.
func (c *Client) Tools(ctx context.Context) ([][]byte, error) {
	pages, err := c.list(ctx, "tools/list")
	if err == nil {
		c.tools = pages
	}
	return pages, err
}

// Resources returns the results of resources/list and then those of
// resources/templates/list, one for each page; none of a list that the server
// does not have.
func (c *Client) Resources(ctx context.Context) ([][]byte, error) {
	pages, err := c.offered(ctx, "resources/list")
	if err != nil {
		return pages, err
	}
	templates, err := c.offered(ctx, "resources/templates/list")
	return append(pages, templates...), err
}

// Prompts returns the results of prompts/list, one for each page; none when the
// server does not have that list.
func (c *Client) Prompts(ctx context.Context) ([][]byte, error) {
	return c.offered(ctx, "prompts/list")
}

// offered is list of what a server need not have.
func (c *Client) offered(ctx context.Context, method string) ([][]byte, error) {
	pages, err := c.list(ctx, method)
	if refused := new(ProtocolError); errors.As(err, &refused) && refused.Code == mcp.CodeMethodNotFound {
		return nil, nil
	}
	return pages, err
}

// list returns the results of a method that lists, one for each page.
func (c *Client) list(ctx context.Context, method string) ([][]byte, error) {
	var pages [][]byte
	params := []byte(`{}`)
	seen := map[string]bool{}
	for len(pages) < maxPages {
		page, err := c.request(ctx, method, params, nil)
		if err != nil {
			return pages, err
		}
		pages = append(pages, page)
		// An empty cursor is one too; only its absence ends the list.
		cursor := mcp.Lookup(page, "nextCursor")
		if cursor == nil || string(cursor) == "null" {
			return pages, nil
		}
		if seen[string(cursor)] {
			return pages, &ConnectionError{What: "the answers to " + method + " do not end: the server gave the same cursor twice", Next: "report this to whoever runs the server"}
		}
		seen[string(cursor)] = true
		params = mcp.Change(nil, nil, mcp.Raw("cursor", cursor))
	}
	return pages, &ConnectionError{What: fmt.Sprintf("%s has more than %d pages", method, maxPages), Next: "report this to whoever runs the server"}
}

// Read reads a resource and returns the result.
func (c *Client) Read(ctx context.Context, uri string) ([]byte, error) {
	return c.ask(ctx, "resources/read", mcp.Change(nil, nil, text("uri", uri)), nil)
}

// Prompt gets a prompt and returns the result. arguments is JSON text of an
// object of strings.
func (c *Client) Prompt(ctx context.Context, name string, arguments []byte) ([]byte, error) {
	return c.ask(ctx, "prompts/get", mcp.Change(nil, nil, text("name", name), mcp.Raw("arguments", arguments)), nil)
}

// CallTool calls a tool and returns its result. arguments is JSON text of an
// object, and meta are members of the request's _meta. A tool that fails is a
// result too, with isError in it.
func (c *Client) CallTool(ctx context.Context, name string, arguments []byte, meta ...mcp.Member) ([]byte, error) {
	params := mcp.Change(nil, nil, text("name", name), mcp.Raw("arguments", arguments))
	if len(meta) > 0 {
		params = mcp.Change(params, nil, mcp.Raw("_meta", object(meta)))
	}
	header := http.Header{}
	if c.era == mcp.Modern {
		// The revision wants some arguments repeated in headers, and only the
		// tool's definition says which. A list that fails leaves the call to
		// say what is wrong.
		var err error
		if c.tools == nil {
			_, err = c.Tools(ctx)
		}
		if unreachable := new(ConnectionError); errors.As(err, &unreachable) {
			return nil, err
		}
		if tool := Find(c.tools, "tools", name); tool != nil {
			if header, err = paramHeaders(mcp.Lookup(tool, "inputSchema"), arguments); err != nil {
				return nil, &ProtocolError{Method: "tools/call", Message: fmt.Sprintf("the definition of tool %q is not valid: %s", name, err)}
			}
		}
	}
	return c.ask(ctx, "tools/call", params, header)
}

// Find returns the thing of a name in pages of a list, kind being the member of
// a page that holds them; nil when it is not there.
func Find(pages [][]byte, kind, name string) []byte {
	for _, page := range pages {
		for _, thing := range mcp.Elements(mcp.Lookup(page, kind)) {
			if mcp.String(mcp.Lookup(thing, "name")) == name {
				return thing
			}
		}
	}
	return nil
}

// ask makes a request and, in the modern era, answers what the server wants to
// know before it gives its result (2026-07-28, multi round-trip requests).
func (c *Client) ask(ctx context.Context, method string, params []byte, header http.Header) ([]byte, error) {
	for range maxRounds {
		result, err := c.request(ctx, method, params, header)
		if err != nil || c.era != mcp.Modern || mcp.String(mcp.Lookup(result, "resultType")) != "input_required" {
			return result, err
		}
		var answers []mcp.Member
		for _, question := range mcp.Members(mcp.Lookup(result, "inputRequests")) {
			value, failure := c.reply(ctx, mcp.String(mcp.Lookup(question.Value, "method")), mcp.Lookup(question.Value, "params"))
			if failure != "" {
				return nil, &ProtocolError{Method: method, Message: failure}
			}
			question.Value = value
			answers = append(answers, question)
		}
		set := []mcp.Member{}
		if answers != nil {
			set = append(set, mcp.Raw("inputResponses", object(answers)))
		}
		if state := mcp.Lookup(result, "requestState"); state != nil {
			set = append(set, mcp.Raw("requestState", state))
		}
		params = mcp.Change(mcp.Change(params, []string{"inputResponses", "requestState"}), nil, set...)
	}
	return nil, &ProtocolError{Method: method, Message: fmt.Sprintf("the server still asked after %d rounds of questions", maxRounds)}
}

// text is a member that says s.
func text(name, s string) mcp.Member { return mcp.Raw(name, mcp.Quote(s)) }

// object writes members as they are into an object.
func object(members []mcp.Member) []byte {
	out := []byte{'{'}
	for i, m := range members {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, '"'), m.Name...), `":`...)
		out = append(out, m.Value...)
	}
	return append(out, '}')
}

// reply answers one question of the server, or says why it cannot.
func (c *Client) reply(ctx context.Context, method string, params []byte) (result []byte, failure string) {
	switch {
	case method == "ping":
		return []byte(`{}`), ""
	case method != "elicitation/create" || c.o.Ask == nil:
		return nil, fmt.Sprintf("the server asked for %q, which this client did not offer", method)
	case ctx.Err() != nil: // it was withdrawn before its turn
		return nil, ctx.Err().Error()
	}
	result, err := c.o.Ask(ctx, params)
	if err != nil {
		return nil, err.Error()
	}
	return result, ""
}

// request sends a request of the era and returns the result.
func (c *Client) request(ctx context.Context, method string, params []byte, header http.Header) ([]byte, error) {
	a, err := c.exchange(ctx, method, params, header)
	if err != nil {
		return nil, err
	}
	if a.Kind == mcp.Failure {
		return nil, failed(method, a)
	}
	return a.Result.Of(a.Raw), nil
}

// exchange sends a request of the era and returns its answer.
func (c *Client) exchange(ctx context.Context, method string, params []byte, header http.Header) (answer, error) {
	c.ids++
	id := strconv.AppendInt(nil, int64(c.ids), 10)
	m, err := mcp.Decode(mcp.AppendRequest(nil, id, method, params))
	if err != nil {
		return answer{}, fmt.Errorf("%s: this client made a message that it cannot read: %w", method, err)
	}
	var meta []mcp.Member
	if c.o.Notify != nil && mcp.MethodOf(method).Interactive {
		meta = append(meta, mcp.Raw("progressToken", id))
	}
	h := http.Header{}
	if c.era == mcp.Modern {
		meta = append(meta,
			text(mcp.MetaVersion, c.version),
			mcp.Raw(mcp.MetaClientInfo, c.info()),
			mcp.Raw(mcp.MetaCapabilities, c.capabilities()))
		h = header.Clone()
		if h == nil {
			h = http.Header{}
		}
		h.Set(mcp.HeaderMethod, method)
		if target := mcp.MethodOf(method).Target; target != "" {
			h.Set(mcp.HeaderName, mcp.EncodeHeader(m.Text(target)))
		}
	}
	if c.version != "" {
		h.Set(mcp.HeaderVersion, c.version)
	}
	body := m.Raw
	if meta != nil {
		body = mcp.Splice(nil, m.Raw, m.WithMeta(nil, meta...))
	}
	return c.link.send(ctx, outgoing{body: body, id: id, header: h})
}

// tell sends a notification of the legacy era, or an answer to the server.
func (c *Client) tell(ctx context.Context, body []byte) error {
	h := http.Header{}
	h.Set(mcp.HeaderVersion, c.version)
	_, err := c.link.send(ctx, outgoing{body: body, header: h})
	return err
}

func (c *Client) info() []byte {
	return mcp.Change(nil, nil, text("name", c.o.Name), text("version", c.o.Version))
}

func (c *Client) capabilities() []byte {
	if c.o.Ask == nil {
		return []byte(`{}`)
	}
	return []byte(`{"elicitation":{"form":{},"url":{}}}`)
}
