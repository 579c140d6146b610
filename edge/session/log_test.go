package session

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/relay"
)

// sessionWithLog makes a session with the log of a stream.
func sessionWithLog(t *testing.T) (*Sessions, *Session, *Log) {
	t.Helper()
	table := New(Options{Most: 10, Each: 10, TTL: time.Hour, Clock: door.NewClock(), Servers: func() map[string]*Host { return nil }})
	h, err := table.place(time.Now(), "a")
	if err != nil {
		t.Fatal(err)
	}
	s := table.add(table.make(time.Now(), relay.NewName(), "s", "", "", nil, nil), h)
	return table, s, s.OpenLog(nil)
}

// TestZ06ForgottenLogs: a stream whose log had to go for others keeps nothing from
// there on, and takes no room; nor does one of a session that has ended.
func TestZ06ForgottenLogs(t *testing.T) {
	table, s, first := sessionWithLog(t)
	first.Add(make([]byte, 1<<10))
	for range logStreams {
		s.OpenLog(nil).Add(make([]byte, 10))
	}
	want := int64(logStreams * 10)
	for range 10 {
		first.Add(make([]byte, 200<<10))
	}
	first.Finish(time.Now(), true)
	if n := table.kept.Load(); n != want || int64(s.logged) != want || len(s.logs) != logStreams || len(first.events) != 0 {
		t.Errorf("%d bytes, %d of the session, in %d streams and %d events; want %d bytes", n, s.logged, len(s.logs), len(first.events), want)
	}
	if l, _ := s.Find(first.id(1)); l != nil {
		t.Error("what is forgotten can be asked for")
	}
	last := s.logs[len(s.logs)-1]
	table.End(s.ID)
	last.Add(make([]byte, 10))
	s.OpenLog(nil).Add(make([]byte, 10))
	if n := table.kept.Load(); n != 0 || s.holder.kept.Load() != 0 || len(s.logs) != 0 {
		t.Errorf("at the end: %d bytes, %d of the holder, %d streams", n, s.holder.kept.Load(), len(s.logs))
	}
}

// What is larger than all logs of a session may be costs none of them, and streams that have
// ended make room before those whose calls are under way.
func TestLogsThatGoFirst(t *testing.T) {
	kept := func(s *Session, l *Log) bool {
		found, _ := s.Find(l.id(1))
		return found != nil
	}
	t.Run("too large", func(t *testing.T) {
		_, s, first := sessionWithLog(t)
		first.Add(make([]byte, 10))
		for _, sizes := range [][]int{{logBytes + 1}, {200 << 10, 100 << 10}} {
			large := s.OpenLog(nil)
			for _, n := range sizes {
				large.Add(make([]byte, n))
			}
			if !kept(s, first) || len(large.events) != 0 {
				t.Errorf("%d bytes: another log is kept: %t; %d events of this one", sizes, kept(s, first), len(large.events))
			}
		}
	})
	t.Run("ended first", func(t *testing.T) {
		_, s, going := sessionWithLog(t)
		ended := s.OpenLog(nil)
		for _, l := range []*Log{going, ended} {
			l.Add(make([]byte, 100<<10))
		}
		ended.Finish(time.Now(), true)
		s.OpenLog(nil).Add(make([]byte, 100<<10))
		if !kept(s, going) || kept(s, ended) {
			t.Errorf("for bytes: the call under way is kept: %t, the one that has ended: %t", kept(s, going), kept(s, ended))
		}
		second := s.OpenLog(nil)
		second.Add(make([]byte, 10))
		second.Finish(time.Now(), true)
		for len(s.logs) < logStreams {
			s.OpenLog(nil)
		}
		s.OpenLog(nil)
		if !kept(s, going) || kept(s, second) || len(s.logs) != logStreams {
			t.Errorf("for streams: the call under way is kept: %t, the one that has ended: %t", kept(s, going), kept(s, second))
		}
		s.OpenLog(nil)
		if kept(s, going) {
			t.Error("where all calls are under way the oldest goes")
		}
	})
}

// slowReader is a client that is back, and takes an event when it is let.
type slowReader struct {
	let  chan bool
	got  chan string
	over chan string
}

func newSlowReader() *slowReader {
	return &slowReader{let: make(chan bool, 100), got: make(chan string, 100), over: make(chan string, 2)}
}

func (h *slowReader) event(id string, raw []byte) error {
	h.got <- id + ":" + string(raw)
	if !<-h.let {
		return errors.New("it has left")
	}
	return nil
}
func (h *slowReader) end(answered bool) { h.over <- fmt.Sprint("end ", answered) }
func (h *slowReader) replaced()         { h.over <- "replaced" }

// all returns what the client has got.
func (h *slowReader) all() (got []string) {
	close(h.got)
	for one := range h.got {
		got = append(got, one)
	}
	return got
}

// TestZ06ReaderOfALog: what comes while a client reads what it missed comes after
// that, and the end after all of it; a client that is replaced, or that has not
// read what had to go, is ended.
func TestZ06ReaderOfALog(t *testing.T) {
	t.Run("order", func(t *testing.T) {
		_, s, l := sessionWithLog(t)
		for _, text := range []string{"a", "b"} {
			l.Add([]byte(text))
		}
		h := newSlowReader()
		begun, added := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(begun)
			l.Resume(h, 0)
		}()
		for len(h.got) == 0 {
			time.Sleep(time.Millisecond)
		}
		go func() {
			defer close(added)
			l.Add([]byte("c"))
			l.Add([]byte("d"))
			l.Finish(time.Now(), true)
		}()
		if log, after := s.Find(l.id(1)); log != l || after != 1 { // nobody else waits
			t.Error("the stream is not found")
		}
		for range 4 {
			h.let <- true
		}
		<-begun
		<-added
		if over := <-h.over; over != "end true" {
			t.Error(over)
		}
		if got := h.all(); !slices.Equal(got, []string{"1-1:a", "1-2:b", "1-3:c", "1-4:d"}) {
			t.Error(got)
		}
	})
	t.Run("replaced", func(t *testing.T) {
		_, _, l := sessionWithLog(t)
		l.Add([]byte("a"))
		one, two := newSlowReader(), newSlowReader()
		done := make(chan struct{}, 2)
		go func() { l.Resume(one, 0); done <- struct{}{} }()
		for len(one.got) == 0 {
			time.Sleep(time.Millisecond)
		}
		go func() { l.Resume(two, 0); done <- struct{}{} }()
		if over := <-one.over; over != "replaced" { // while it is written to
			t.Error(over)
		}
		one.let <- false
		two.let <- true
		<-done
		<-done
		two.let <- true
		l.Add([]byte("b"))
		if got := one.all(); !slices.Equal(got, []string{"1-1:a"}) {
			t.Errorf("the first: %s", got)
		}
		if got := two.all(); !slices.Equal(got, []string{"1-1:a", "1-2:b"}) {
			t.Errorf("the second: %s", got)
		}
	})
	t.Run("forgotten", func(t *testing.T) {
		_, s, l := sessionWithLog(t)
		l.Add([]byte("a"))
		l.Add([]byte("b"))
		h := newSlowReader()
		done := make(chan struct{})
		go func() { l.Resume(h, 0); close(done) }()
		for len(h.got) == 0 {
			time.Sleep(time.Millisecond)
		}
		for range logStreams {
			s.OpenLog(nil)
		}
		h.let <- true
		<-done
		if over := <-h.over; over != "replaced" {
			t.Error(over)
		}
		if got := h.all(); !slices.Equal(got, []string{"1-1:a"}) {
			t.Error(got)
		}
	})
}

// TestZ06LogsAreTheirHolders: what is kept of one holder's streams leaves room
// for those of others.
func TestZ06LogsAreTheirHolders(t *testing.T) {
	table := New(Options{Most: 1000, Each: 1000, TTL: time.Hour, Clock: door.NewClock(), Servers: func() map[string]*Host { return nil }})
	fill := func(holder string) (kept int) {
		h, err := table.place(time.Now(), holder)
		if err != nil {
			t.Fatal(err)
		}
		s := table.add(table.make(time.Now(), relay.NewName(), "s", "", "", nil, nil), h)
		l := s.OpenLog(nil)
		for range logBytes >> 10 {
			l.Add(make([]byte, 1<<10))
		}
		return len(l.events)
	}
	full := 0
	for range 2 * logsBytes / logBytes {
		if fill("a") == logBytes>>10 {
			full++
		}
	}
	if full == 0 || full > holderBytes/logBytes {
		t.Errorf("%d whole logs of one holder", full)
	}
	if fill("b") != logBytes>>10 {
		t.Error("no room for another")
	}
	table.EndAll(func(*Session) bool { return true })
	if n := table.kept.Load(); n != 0 || len(table.holders) != 0 {
		t.Errorf("%d bytes of %d holders are left", n, len(table.holders))
	}
	if fill("a") != logBytes>>10 {
		t.Error("no room after all have ended")
	}
}
