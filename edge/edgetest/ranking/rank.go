package main

import (
	"context"
	"errors"
	"fmt"
)

// rank asks an edge all questions of a set, in each of the ways: keywords, vectors of the
// model behind url, both.
func rank(ctx context.Context, program, dir, url string, s *set) (answers, error) {
	optimizer := func(ratio string) string {
		return fmt.Sprintf("{embeddingService: %q, hybridSearchSemanticRatio: %q, maxToolsToReturn: %d}", url, ratio, most)
	}
	out := answers{byHalves: {}}
	var at *stage
	for _, one := range []struct{ way, ratio, search string }{{byVectors, "1", "hybrid"}, {byBoth, "0.5", "hybrid"}, {byWords, "0", "keyword"}} {
		var err error
		if at == nil {
			if at, err = open(ctx, program, dir, s.servers, optimizer(one.ratio)); err == nil {
				defer at.close()
			}
		} else {
			err = at.change(ctx, optimizer(one.ratio))
		}
		if err != nil {
			return nil, err
		}
		if out[one.way], err = at.askAll(ctx, s, one.search); err != nil {
			return nil, fmt.Errorf("%s: %w", one.way, err)
		}
	}
	for _, q := range s.questions {
		out[byHalves][q.text] = halves(out[byVectors][q.text], out[byWords][q.text])
	}
	return out, nil
}

// askAll asks all questions, as soon as all tools are there to be found by a way to search.
func (s *stage) askAll(ctx context.Context, of *set, search string) (map[string][]string, error) {
	metric := map[string]string{"keyword": "weir_optimizer_index_tools", "hybrid": "weir_optimizer_index_vectors"}[search]
	tools := float64(len(of.names()))
	err := until(ctx, fmt.Sprintf("%s of %v", metric, tools), func() bool {
		_, _, err := s.find(of.questions[0].text) // the index is made by then
		return err == nil && s.gauge(ctx, metric) == tools
	})
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for _, q := range of.questions {
		var failed error
		err := until(ctx, fmt.Sprintf("an answer to %q", q.text), func() bool {
			f, names, err := s.find(q.text)
			if failed = err; err != nil {
				return true
			}
			out[q.text] = names
			return f.Meta.Search == search // the vector of a question may come late on a busy machine
		})
		if err := errors.Join(failed, err); err != nil {
			return nil, err
		}
	}
	return out, nil
}
