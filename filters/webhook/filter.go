package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// Open is edge.Part.Open. It fails for a secret that is not there or that holds
// no certificate or key; that a webhook is away is no failure.
func (p *Part) Open(env edge.Env) (edge.Filter, error) {
	if len(p.mutating) > 0 && p.Resolve == nil {
		return nil, errors.New("webhook: open: nobody to say where a changed message goes")
	}
	f := &filter{Part: p, log: env.Log}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	for _, hooks := range [][]*hook{p.mutating, p.validating} {
		for _, h := range hooks {
			c, err := newCaller(h, env.Secrets, env.Reach)
			if err != nil {
				return nil, fmt.Errorf("webhook %q: %w", h.name, err)
			}
			if env.Defer != nil {
				env.Defer(c.close)
			}
			f.callers = append(f.callers, c)
		}
	}
	return func(next edge.Handler) edge.Handler {
		return edge.HandlerFunc(func(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
			if r, err := f.ask(ctx, x); r != nil || err != nil {
				return r, err
			}
			return next.Handle(ctx, x)
		})
	}, nil
}

// filter is the webhooks of a server, open.
type filter struct {
	*Part
	log     *slog.Logger
	callers []*caller // mutating ones first
}

// ask asks every webhook in turn, until one refuses. A nil response with a nil
// error lets the exchange go on. What a client answers to a server's question is
// nobody's request, and is not asked about; nor is what a script or a composite tool calls,
// which webhooks have seen the call of. What another filter calls then is not of that.
func (f *filter) ask(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
	if x.Request == nil || x.Request.Kind != mcp.Request && x.Request.Kind != mcp.Notification {
		return nil, nil
	}
	byFilter := x.Client == edge.Client(edge.NoClient{})
	if p := x.Parent; !byFilter && p != nil && p.Target != nil && p.Target.Backend == "" && p.Target.Thing == edge.Tool {
		return nil, nil
	}
	who, err := principal(x.Identity)
	if err != nil {
		return nil, edge.Errorf(edge.Internal, "webhook", "%w", err)
	}
	for _, c := range f.callers {
		body := c.body(f.namespace, x, who)
		if len(body) > maxBody {
			return nil, edge.Errorf(edge.TooLarge, "webhook", "a message above %d bytes, which webhooks are not asked about", maxBody)
		}
		began := time.Now()
		v, err := c.ask(ctx, body)
		c.counts.asked.Add(1)
		c.counts.nanoseconds.Add(uint64(time.Since(began)))
		switch {
		case err == nil && !v.allowed:
			c.counts.denied.Add(1)
			return nil, c.denied("it says no")
		case errors.Is(err, errNever):
			c.counts.denied.Add(1)
			if c.mutates {
				return refuse(x, 422, 403, deniedMutating, err)
			}
			return nil, c.denied(err.Error())
		case err != nil && ctx.Err() != nil:
			return nil, &edge.Error{Kind: edge.Gone, Op: "webhook", Err: context.Cause(ctx)}
		case err == nil && c.mutates:
			var changed bool
			if changed, err = f.change(c, x, v); changed {
				if x.Target, err = f.Resolve(ctx, x); err != nil {
					f.healed(c)
					return nil, err // the webhook has nothing to do with it
				}
			}
		}
		if err == nil {
			f.healed(c)
			continue
		}
		c.counts.failed.Add(1)
		f.fell(c, err)
		switch {
		case c.ignore:
			c.counts.ignored.Add(1)
		case c.mutates:
			text := "Webhook error"
			var bad *badPatch
			if errors.As(err, &bad) {
				text = bad.text
			}
			return refuse(x, 500, mcp.CodeInternal, text, fmt.Errorf("webhook %q: %w", c.name, err))
		default:
			return nil, c.denied(err.Error())
		}
	}
	return nil, nil
}

// What a client reads of a refusal. What the webhook said of it is never shown.
const (
	deniedValidating = "Request denied by policy"
	deniedMutating   = "Request denied by webhook policy"
)

// denied is the refusal of a webhook. The reason is for the log alone.
func (h *hook) denied(reason string) error {
	text := deniedValidating
	if h.mutates {
		text = deniedMutating
	}
	return &edge.Error{Kind: edge.Denied, Op: fmt.Sprintf("webhook %q: %s", h.name, reason), Err: errors.New(text)}
}

// refuse answers with a status and a text that no kind of error has. What has
// no answer gets an error.
func refuse(x *edge.Exchange, status, code int, text string, cause error) (*edge.Response, error) {
	id := x.Request.IDText()
	if id == nil {
		kind := edge.Denied
		if status == 500 {
			kind = edge.Internal
		}
		return nil, &edge.Error{Kind: kind, Op: cause.Error(), Err: errors.New(text)}
	}
	r := x.Answer()
	r.Status = status
	if err := r.Decode(mcp.AppendError(nil, id, code, text, nil)); err != nil {
		return nil, edge.Errorf(edge.Internal, "webhook", "%w", err)
	}
	return r, nil
}

// change makes the patch of a webhook, if there is one, and puts the message
// that comes of it into the exchange, for which a target has to be found then.
// An error leaves the exchange as it is.
func (f *filter) change(c *caller, x *edge.Exchange, v verdict) (changed bool, err error) {
	if v.patch == nil {
		return false, nil
	}
	raw, err := v.apply(x.Request.Raw)
	if err != nil {
		return false, err
	}
	if bytes.Equal(raw, x.Request.Raw) {
		return false, nil
	}
	m, name, err := successor(x, raw)
	if err != nil {
		return false, &badPatch{"Failed to apply patch from webhook", err}
	}
	c.counts.changed.Add(1)
	x.Request, x.Name = m, name
	x.Head.Params, x.Head.Remade = nil, true // they mirror arguments that may be others now
	return true, nil
}

// successor reads what a webhook made of a message. It may ask for something
// else, and stays the same request of the same client: its id, what the client
// says of itself and the token of its progress are not for webhooks to change.
// A call may become another kind of call, and no other method another: the edge
// has begun to treat the message as what it was.
func successor(x *edge.Exchange, raw []byte) (m *mcp.Message, name string, err error) {
	was := x.Request
	if m, err = mcp.Decode(raw); err != nil {
		return nil, "", fmt.Errorf("no message: %w", err)
	}
	if m.Kind != was.Kind || !bytes.Equal(m.IDText(), was.IDText()) {
		return nil, "", errors.New("its id is another")
	}
	for _, key := range []string{mcp.MetaVersion, mcp.MetaClientInfo, mcp.MetaCapabilities, "progressToken"} {
		if !bytes.Equal(m.Meta(key).Of(m.Raw), was.Meta(key).Of(was.Raw)) {
			return nil, "", errors.New("_meta of the protocol was changed")
		}
	}
	if was.Method == "initialize" {
		return nil, "", errors.New("initialize was changed")
	}
	if m.Method != was.Method && !(call(m.Method) && call(was.Method)) {
		return nil, "", errors.New("its method is another")
	}
	if method := mcp.MethodOf(m.Method); x.Era == mcp.Modern && method.Target != "" {
		target := m.Get(method.Target)
		if !target.OK() || m.Raw[target.Start] != '"' {
			return nil, "", fmt.Errorf("params.%s is not a string", method.Target)
		}
		name = m.Text(method.Target)
	}
	return m, name, nil
}

// call reports whether a method asks a backend for one thing.
func call(method string) bool {
	return method == "tools/call" || method == "prompts/get" || method == "resources/read"
}

// fell says once that a webhook cannot be asked, healed that it can be again.
func (f *filter) fell(c *caller, err error) {
	if !c.down.Swap(true) {
		f.log.Warn("webhook fails", "webhook", c.name, "type", c.kind(), "ignored", c.ignore, "error", err)
	} else {
		f.log.Debug("webhook fails", "webhook", c.name, "type", c.kind(), "error", err)
	}
}

func (f *filter) healed(c *caller) {
	if c.down.Load() && c.down.Swap(false) {
		f.log.Info("webhook answers again", "webhook", c.name, "type", c.kind())
	}
}
