package doctor

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/filters/incoming"
)

// tokens looks whether the endpoints answer that credentials of backends come from: token
// endpoints, and the security token service of a cloud. They are asked for nothing, so that
// any answer but one of status 5xx or a redirect is a good one.
func (d *Doctor) tokens(ctx context.Context, plan *compile.Plan, reach edge.Reach) (out []edge.Finding) {
	client, err := oauth.New(oauth.Options{AllowHTTP: true, Reach: reach, Timeout: d.Timeout})
	if err != nil {
		return nil // the step files has said what is wrong with the authorities
	}
	defer client.Close()
	seen := map[string]bool{}
	for _, server := range plan.Servers {
		for _, b := range server.Backends {
			for _, at := range b.Outgoing.Endpoints(edge.Env{Reach: reach}) {
				if seen[at] {
					continue
				}
				seen[at] = true
				out = append(out, d.step(ctx, "tokens", placeOf(at), func(ctx context.Context) edge.Finding { return answers(ctx, client, at, b.Name) }))
			}
		}
	}
	return out
}

// issuers looks whether the keys can be had by which the tokens of clients are judged.
func (d *Doctor) issuers(ctx context.Context, plan *compile.Plan, secrets edge.Secrets, reach edge.Reach) (out []edge.Finding) {
	shared := oauth.Issuers{Wait: d.Timeout}
	for _, server := range plan.Servers {
		if server.Incoming == nil || server.Incoming.Issuer == "" || server.AuthServer != nil { // whose keys are the edge's own
			continue
		}
		gate, err := incoming.Parse(*server.Incoming)
		if err != nil {
			continue // the step manifests has said so
		}
		var after []func()
		opened, err := gate.Start(edge.Env{Log: slog.New(slog.DiscardHandler), Secrets: secrets, Reach: reach, Defer: func(f func()) { after = append(after, f) }}, &shared)
		if err == nil { // else the steps files and secrets have said so
			out = append(out, d.step(ctx, "issuer", server.Name+" "+placeOf(server.Incoming.Issuer), func(ctx context.Context) edge.Finding {
				if err := opened.Await(ctx); err != nil {
					return edge.Problem(edge.ClassUnreachable, "check the issuer of incomingAuth, and that this machine can reach it (caBundlePath for a CA of its own): nobody gets in without its keys", "%v", err)
				}
				return edge.Fine("")
			}))
		}
		for _, f := range after {
			f()
		}
	}
	return out
}

// user says where a user is of no use: no backend is asked for one.
func (d *Doctor) user(plan *compile.Plan) []edge.Finding {
	if d.User == nil {
		return nil
	}
	for _, server := range plan.Servers {
		for _, b := range server.Backends {
			if way, err := b.Outgoing.Strategy(); err == nil && way.Personal() {
				return nil
			}
		}
	}
	return []edge.Finding{d.tell(edge.Finding{
		Step: "tokens", Subject: "--token-file", Level: edge.LevelNote, Class: edge.ClassSettings,
		Cause: "no backend answers users alone, so that nothing is asked with it", Next: "leave it out",
	})}
}

// answers asks one endpoint.
func answers(ctx context.Context, client *oauth.Client, at, backend string) edge.Finding {
	return answersAt(ctx, client, at, "check its URL in the credential of backend "+backend+", and that this machine can reach it: without it no call to that backend succeeds")
}

// answersAt asks one endpoint; next is what to do where it does not answer.
func answersAt(ctx context.Context, client *oauth.Client, at, next string) edge.Finding {
	got, err := client.Do(ctx, oauth.Request{Method: http.MethodPost, URL: at, Trust: oauth.Named, Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}})
	var slow net.Error
	switch {
	case ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &slow) && slow.Timeout():
		return edge.Problem(edge.ClassTimeout, next, "it does not answer in time")
	case err != nil:
		return edge.Problem(edge.ClassUnreachable, next, "it does not answer: %v", cause(err))
	case got.Status >= 500:
		return edge.Problem(edge.ClassFailing, "look into its log", "it answers %d %s", got.Status, http.StatusText(got.Status))
	case got.Status >= 300 && got.Status < 400:
		return edge.Problem(edge.ClassProtocol, "write the place that it points to as its URL: the edge follows no redirect", "it answers %d", got.Status)
	case got.Status == http.StatusNotFound || got.Status == http.StatusMethodNotAllowed:
		return edge.Problem(edge.ClassProtocol, next, "it answers %d %s: it is no token endpoint", got.Status, http.StatusText(got.Status))
	}
	return edge.Fine("it answers")
}

// cause is an error without the URL in it, which the subject of the step has.
func cause(err error) error {
	var outer *url.Error
	if errors.As(err, &outer) {
		return outer.Err
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// placeOf is a URL without what may be a secret in it.
func placeOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "a malformed URL"
	}
	return u.Scheme + "://" + u.Host + u.EscapedPath()
}
