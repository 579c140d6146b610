package serve

import (
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/door"
)

// A heartbeat that comes when its exchange has ended does not reach the next one,
// which the same memory serves: that may have another client.
func TestHeartbeatOfAnEndedExchange(t *testing.T) {
	x := newExchange().(*exchange)
	begin := func() way {
		w := &x.way
		w.x, w.conn, w.able = x, new(door.Conn), true
		x.number = w.number
		return way{w, x.number}
	}
	first := begin()
	if x.way.end(nil, false) || !x.way.free() {
		t.Fatal("the first exchange is not over")
	}
	second := begin()
	defer func() {
		if recover() != nil { // there is no client behind the connection
			t.Error("it began the stream of the next exchange")
		}
	}()
	first.beat(time.Now())
	if second.s.begun {
		t.Error("it began the stream of the next exchange")
	}
}
