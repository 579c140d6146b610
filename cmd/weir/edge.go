package main

import (
	"context"
	"fmt"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/demo"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/source"
)

// serve serves what config describes, or the demo when it is empty, until a
// signal ends it.
func (a *app) serve(ctx context.Context, s serve.Settings, config string, pprof bool) error {
	log := newLog(a.err, s)

	// 1. What to serve.
	var opened *source.Result
	if config == "" {
		backend, err := demo.Start("")
		if err != nil {
			return err
		}
		defer backend.Close()
		opened = source.OpenDefault(backend.URL())
	} else {
		opened = source.Open(config)
	}
	if err := a.refuse(opened); err != nil {
		return err
	}
	for _, f := range opened.Findings {
		if f.Severity == compile.Warning {
			log.Warn(f.String())
		} else {
			log.Info(f.String())
		}
	}

	// 2. The edge, which now holds its addresses.
	options := []serve.Option{serve.WithVersion(thisBuild().Version)}
	if pprof {
		options = append(options, serve.WithPprof())
	}
	edge, err := serve.New(s, opened.Plan, log, options...)
	if err != nil {
		return err
	}
	if config == "" {
		greeting(a.err, s, edge.Addr())
	}

	// 3. Until a signal.
	incoming, forget := signals()
	defer forget()
	ctx, stop := draining(ctx, log, s.DrainTimeout, incoming, a.exit)
	defer stop()
	if err := edge.Serve(ctx); err != nil {
		return fmt.Errorf("the edge ended: %w", err)
	}
	log.Info("ended")
	return nil
}

// refuse prints why a set cannot be served; nil when it can.
func (a *app) refuse(r *source.Result) error {
	if r.Err() == nil {
		return nil
	}
	if err := r.Render(a.err); err != nil {
		return err
	}
	return &saidError{exitFault}
}
