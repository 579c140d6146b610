package serve

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/health"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/optimizer"
	"github.com/weir-edge/weir/edge/route"
)

// finding is what finds tools for the clients of a server.
type finding struct {
	*optimizer.Optimizer // after start
	start                func()
	service              *optimizer.Service // nil for keywords alone
}

// openOptimizer puts the tools that find and call others into the table of a server. They
// work once the server's catalog is there, from start on.
func (o *opening) openOptimizer(s *server, local route.Local) error {
	e, p := o.edge, o.plan
	if p.Optimizer == nil {
		return nil
	}
	counters, err := part(s, &e.world.optimizers, "", func(edge.Env) (*optimizer.Counters, error) { return new(optimizer.Counters), nil })
	if err != nil {
		return err
	}
	s.counting = append(s.counting, counters)
	f := &finding{}
	var release func()
	if p.Optimizer.Service != nil {
		if f.service, release, err = o.embedder(s); err != nil {
			return err
		}
		s.after.add(release)
		s.counting = append(s.counting, f.service)
	}
	f.start = func() {
		f.Optimizer = optimizer.Open(optimizer.Options{
			Spec:    optimizer.Spec{Ratio: p.Optimizer.Ratio, Most: p.Optimizer.Most, Far: p.Optimizer.Far},
			Library: e.world.library, Service: f.service, Counters: counters, Log: s.log,
			Catalog: func(ctx context.Context, id *edge.Identity) (optimizer.Catalog, error) {
				return s.Book.Catalog(ctx, id, edge.Tool)
			},
			Settled: func() optimizer.Catalog {
				if c := s.Book.Settled(nil, edge.Tool); c != nil {
					return c
				}
				return nil
			},
			Whose: func(id *edge.Identity) string {
				if id == nil || !s.personal && (s.guest.Overrides == nil || !s.guest.Overrides.Varies()) {
					return ""
				}
				return id.Principal() + "\x00" + string(id.Rights[:]) // as catalogs are kept: tokens of one user may have different tools
			},
		})
		s.after.add(f.Close)
	}
	s.find = f
	local.Add(optimizer.Find, optimizer.FindTarget(), false, func(ctx context.Context, x *edge.Exchange, arguments []byte, call func(edge.Client) edge.Caller) (*edge.Response, error) {
		return f.RunFind(ctx, x, arguments, call)
	})
	local.AddPassing(optimizer.Call, optimizer.CallTarget(), route.Passing{
		Run: func(ctx context.Context, x *edge.Exchange, arguments []byte, pass route.Pass) (*edge.Response, error) {
			return f.RunCall(ctx, x, arguments, optimizer.Pass(pass))
		},
		Inner: func(arguments []byte) (string, []byte) {
			tool, parameters, why := optimizer.ReadCall(arguments)
			if why != "" {
				return "", nil
			}
			return tool, parameters
		},
	})
	return nil
}

// embedder opens the embedding service of a server, or finds it open.
func (o *opening) embedder(s *server) (*optimizer.Service, func(), error) {
	e, at, key := o.edge, o.plan.Optimizer.Service, o.edge.given.embeddingKey
	if !key.OneLine() {
		return nil, nil, fmt.Errorf("the key of embedding services holds what cannot stand in a header: set WEIR_EMBEDDING_API_KEY to one line")
	}
	for name, value := range at.Headers {
		if key != "" && strings.Contains(value, string(key)) {
			return nil, nil, fmt.Errorf("embeddingHeaders: %s holds the key of embedding services: take it out, the edge sends the key by itself", name)
		}
	}
	digest := digestOf([]any{at, o.trusts})
	return e.world.embedders.Get(digest, func() (*optimizer.Service, func(), error) {
		reach := e.world.reach
		reach.CAs = e.world.trusted(o.trusts)
		guarded, err := oauth.New(oauth.Options{AllowHTTP: true, Timeout: at.Timeout, Reach: reach})
		if err != nil {
			return nil, nil, err
		}
		options := optimizer.ServiceOptions{
			ServiceSpec: optimizer.ServiceSpec(*at), Key: key, Library: e.world.library, Log: e.log,
			Fetch: func(ctx context.Context, method, url string, header http.Header, body []byte, most int64) (int, http.Header, []byte, error) {
				r, err := guarded.Do(ctx, oauth.Request{Method: method, URL: url, Trust: oauth.Named, AllowHTTP: true, Header: header, Body: body, MaxBody: most})
				if err != nil {
					return 0, nil, nil, err
				}
				return r.Status, r.Header, r.Body, nil
			},
		}
		for _, change := range e.given.embedding {
			change(&options)
		}
		service := optimizer.OpenService(options)
		return service, func() { service.Close(); guarded.Close() }, nil
	})
}

// ofEmbeddings is the condition of the embedding service; nil where there is none to tell of.
func (s *server) ofEmbeddings() *health.Condition {
	if s.find == nil || s.find.service == nil {
		return nil
	}
	why := s.find.service.Fault()
	if why == "" {
		return nil
	}
	return &health.Condition{Type: "EmbeddingsUnavailable", Status: "True", Reason: "ServiceFailed", Message: why}
}
