package guest

import (
	"bytes"
	"context"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/sdk/abi"
)

// maxEvents is how many records may wait for programs. What is more is dropped
// and counted: no message waits for one.
const maxEvents = 1024

// events shows records to the programs of a server, one after the other, beside
// the messages that they are of.
type events struct {
	list    []asked
	waiting chan []byte
	ended   chan struct{}
}

// startEvents starts the goroutine that asks. stop ends it.
func startEvents(list []asked) *events {
	e := &events{list: list, waiting: make(chan []byte, maxEvents), ended: make(chan struct{})}
	go e.run()
	return e
}

// take takes a record, which it copies.
func (e *events) take(record []byte) {
	select {
	case e.waiting <- bytes.Clone(bytes.TrimSpace(record)):
	default:
		for i := range e.list {
			e.list[i].skipped[abi.OnEvent].Add(1)
		}
	}
}

// stop ends the goroutine, once it has shown what waits. What is taken after it
// is lost.
func (e *events) stop() {
	if e != nil {
		e.waiting <- nil
		<-e.ended
	}
}

func (e *events) run() {
	defer close(e.ended)
	for record := range e.waiting {
		if record == nil {
			return
		}
		e.show(record)
	}
}

func (e *events) show(record []byte) {
	w := newWork()
	defer w.free()
	for i := range e.list {
		a := &e.list[i]
		if !a.matches(a.want, "", nil, "") {
			continue
		}
		in := w.input(a.want, &edge.Exchange{}, &subject{event: record, values: record})
		_, out, _ := a.ask(a.within(context.Background(), abi.OnEvent, nil), abi.OnEvent, "", in, w.out[:0], may(abi.OnEvent), maxOps) // a failure is logged, and nobody waits
		w.out = out
	}
}
