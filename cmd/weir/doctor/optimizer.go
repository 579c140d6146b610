package doctor

import (
	"context"
	"net/http"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/optimizer"
)

// found tells what of the tools of a server makes them hard to find.
func (d *Doctor) found(ctx context.Context, s compile.Server, told *[]edge.Finding) func(*catalog.Catalog, []string) {
	if s.Optimizer == nil {
		return nil
	}
	return func(shown *catalog.Catalog, _ []string) {
		for _, f := range optimizer.Advice(shown) {
			*told = append(*told, d.step(ctx, "names", s.Name, func(context.Context) edge.Finding { return f }))
		}
	}
}

// embeddings asks the embedding service of a server for a vector.
func (d *Doctor) embeddings(ctx context.Context, s compile.Server, reach edge.Reach) []edge.Finding {
	if s.Optimizer == nil || s.Optimizer.Service == nil {
		return nil
	}
	return []edge.Finding{d.step(ctx, "embeddings", s.Name, func(ctx context.Context) edge.Finding {
		guarded, err := oauth.New(oauth.Options{AllowHTTP: true, Timeout: d.Timeout, Reach: reach})
		if err != nil {
			return edge.Problem(edge.ClassTLS, "correct --ca-bundle", "%v", err)
		}
		defer guarded.Close()
		return optimizer.Check(ctx, optimizer.ServiceSpec(*s.Optimizer.Service), d.EmbeddingKey, func(ctx context.Context, method, url string, header http.Header, body []byte, most int64) (int, http.Header, []byte, error) {
			r, err := guarded.Do(ctx, oauth.Request{Method: method, URL: url, Trust: oauth.Named, AllowHTTP: true, Header: header, Body: body, MaxBody: most})
			if err != nil {
				return 0, nil, nil, err
			}
			return r.Status, r.Header, r.Body, nil
		})
	})}
}
