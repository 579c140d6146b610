package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"time"

	"github.com/weir-edge/weir/cmd/weir/client"
	"github.com/weir-edge/weir/cmd/weir/show"
	"github.com/weir-edge/weir/edge"
)

// watchStatus shows the status of an edge every interval until ctx ends. The
// first look must succeed; later the edge may be away and come back.
func (a *app) watchStatus(ctx context.Context, me string, o client.Options, interval time.Duration, asJSON bool) error {
	var before *show.Look
	s := show.Screen{W: a.out}
	if f, ok := a.out.(*os.File); ok && terminal(f) && !asJSON {
		s.Terminal = f
	}
	if err := s.Begin(); err != nil {
		return err
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		now, err := lookAt(ctx, o)
		switch {
		case ctx.Err() != nil:
			return s.End()
		case err != nil && before == nil:
			_ = s.End() // the other error says more
			return err
		case err != nil:
			err = s.Lost(a.err, me+": "+edge.Clean(err.Error()))
		case asJSON:
			err = writeLine(a.out, now.Text)
		default:
			err = s.Show(now, before)
		}
		if err != nil {
			_ = s.End()
			return err
		}
		if now != nil {
			before = now
		}
		select {
		case <-ctx.Done():
			return s.End()
		case <-tick.C:
		}
	}
}

// writeLine writes JSON text on one line.
func writeLine(w io.Writer, text []byte) error {
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil {
		return err
	}
	line.WriteByte('\n')
	_, err := w.Write(line.Bytes())
	return err
}
