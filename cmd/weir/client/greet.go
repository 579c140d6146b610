package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/weir-edge/weir/edge/mcp"
)

// greet finds out what the server speaks and opens a session where there are
// sessions. Which answers to the first question of a modern client mean that
// the server is one too is in 2026-07-28, versioning: an error that only the
// modern era has; everything else is an older server.
func (c *Client) greet(ctx context.Context) error {
	if c.o.Era == Legacy {
		return c.initialize(ctx)
	}
	c.era, c.version = mcp.Modern, mcp.V2607
	older, err := c.discover(ctx)
	if err != nil || older == "" {
		return err
	}
	if c.o.Era == Modern {
		return &ConnectionError{URL: c.o.URL, What: "does not speak " + mcp.V2607 + ": " + older, Next: "leave --era away, or give --era legacy"}
	}
	c.era, c.version = mcp.Legacy, ""
	return c.initialize(ctx)
}

// discover asks the server what it speaks. older says how it showed that it
// does not speak the modern era.
func (c *Client) discover(ctx context.Context) (older string, err error) {
	a, err := c.exchange(ctx, "server/discover", nil, nil)
	if refused := new(ConnectionError); errors.As(err, &refused) && refused.older() {
		return fmt.Sprintf("it answered with status %d", refused.Status), nil
	}
	if err != nil {
		return "", err
	}
	if a.Kind == mcp.Result {
		var versions []string
		for _, v := range mcp.Elements(mcp.Lookup(a.Result.Of(a.Raw), "supportedVersions")) {
			if mcp.String(v) == mcp.V2607 {
				return "", nil
			}
			versions = append(versions, mcp.String(v))
		}
		return "it speaks " + strings.Join(versions, ", "), nil
	}
	switch code := a.Code(); {
	case code == mcp.CodeMethodNotFound && a.status == http.StatusNotFound:
		return "", nil // the method must be there, but a call may work without it
	case code == mcp.CodeVersion:
		return "it answered " + a.Text("message"), nil
	case code == mcp.CodeHeaderMismatch || code == mcp.CodeMissingCapability:
		return "", failed("server/discover", a)
	default:
		return fmt.Sprintf("it answered with error %d", code), nil
	}
}

// initialize opens a session (2025-11-25, lifecycle). A server that does not
// take it by POST may be one of 2024-11-05, which wants a GET first.
func (c *Client) initialize(ctx context.Context) error {
	params := mcp.Change(nil, nil,
		text("protocolVersion", mcp.V2511),
		mcp.Raw("capabilities", c.capabilities()),
		mcp.Raw("clientInfo", c.info()))
	result, err := c.request(ctx, "initialize", params, nil)
	if refused := new(ConnectionError); errors.As(err, &refused) && refused.older() {
		if l, ok := openSSE(ctx, c); ok {
			c.link = l
			result, err = c.request(ctx, "initialize", params, nil)
		}
	}
	if err != nil {
		return err
	}
	c.version = mcp.String(mcp.Lookup(result, "protocolVersion"))
	if !mcp.LegacyVersion(c.version) {
		return &ConnectionError{URL: c.o.URL, What: fmt.Sprintf("speaks revision %q, which this client does not", c.version), Next: "update weir, or the server"}
	}
	return c.tell(ctx, mcp.AppendRequest(nil, nil, "notifications/initialized", nil))
}
