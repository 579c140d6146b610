package guest

import (
	"bytes"
	"context"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/sdk/abi"
)

// maxEvents is how many records may wait for programs. Further ones are
// dropped and counted: no message waits for a record.
const maxEvents = 1024

// events shows records to the programs of a server, one at a time, off the
// path of requests.
type events struct {
	list    []subscriber
	waiting chan []byte
	ended   chan struct{}

	ctx   context.Context // in which programs are asked
	hurry func()          // cancels ctx
}

// startEvents starts the goroutine that asks. stop ends it.
func startEvents(list []subscriber) *events {
	e := &events{list: list, waiting: make(chan []byte, maxEvents), ended: make(chan struct{})}
	e.ctx, e.hurry = context.WithCancel(context.Background())
	go e.run()
	return e
}

// take queues a copy of a record.
func (e *events) take(record []byte) {
	select {
	case e.waiting <- bytes.Clone(bytes.TrimSpace(record)):
	default:
		e.lose()
	}
}

// lose counts a record that no program sees.
func (e *events) lose() {
	for i := range e.list {
		e.list[i].skipped[abi.OnEvent].Add(1)
	}
}

// lastEvents is how long a closing plan waits until programs have seen the
// remaining records: programs may themselves be waiting.
const lastEvents = 5 * time.Second

// stop ends the goroutine once the queue is empty or lastEvents have passed.
// Records taken later are lost.
func (e *events) stop() {
	if e == nil {
		return
	}
	late := time.AfterFunc(lastEvents, e.hurry)
	e.waiting <- nil
	<-e.ended
	late.Stop()
	e.hurry()
}

func (e *events) run() {
	defer close(e.ended)
	for record := range e.waiting {
		switch {
		case record == nil:
			return
		case e.ctx.Err() == nil:
			e.show(record)
		default:
			e.lose()
		}
	}
}

// aboutOf is what a record is about: the method of the message, what it calls, gets or reads, and
// the backend; "" for what it does not say.
func aboutOf(record []byte) (method string, name []byte, backend string) {
	target := mcp.Lookup(record, "target")
	called, kind := mcp.LookupTwo(target, "name", "type")
	switch mcp.String(kind) {
	case "tool", "prompt", "resource":
		name = []byte(mcp.String(called))
	}
	extra := mcp.Lookup(mcp.Lookup(record, "metadata"), "extra")
	return mcp.String(mcp.Lookup(target, "method")), name, mcp.String(mcp.Lookup(extra, "backend_name"))
}

func (e *events) show(record []byte) {
	w := newScratch()
	defer w.free()
	method, name, backend := aboutOf(record)
	for i := range e.list {
		a := &e.list[i]
		if !a.matches(a.want, method, name, backend) {
			continue
		}
		in := w.input(a.want, &edge.Exchange{}, &subject{event: record, values: record})
		_, out, _ := a.ask(a.within(e.ctx, abi.OnEvent, nil), abi.OnEvent, "", nobody, in, w.out[:0], may(abi.OnEvent), maxOps) // a failure is logged; nobody waits for it
		w.out = out
	}
}
