package door

import (
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestTheLastDeadlineStands: a write in pieces that was given its last time gets no other one.
func TestTheLastDeadlineStands(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	c := &Conn{Conn: ours, door: &Door{Clock: NewClock()}}
	done := make(chan error, 1)
	go func() {
		_, err := c.Send(make([]byte, 4*writePiece))
		done <- err
	}()
	_, _ = io.CopyN(io.Discard, theirs, 1<<10) // the first piece is under way
	c.door.Clock.Tick(time.Now().Add(writeRenew + time.Second))
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = io.CopyN(io.Discard, theirs, writePiece) // the next one has begun; no more is read
	select {
	case err := <-done:
		if !os.IsTimeout(err) {
			t.Errorf("error %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the deadline was set anew")
	}
}
