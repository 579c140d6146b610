package session

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/relay"
)

// emptied is a store that has lost everything.
type emptied struct{ Carrier }

func (emptied) Head(context.Context, string, int) ([]byte, error) { return nil, nil }
func (emptied) Away() bool                                        { return false }
func (emptied) State() kv.State                                   { return kv.State{} }
func (emptied) Update(_ context.Context, _ string, _ time.Duration, change func([]byte) ([]byte, error)) error {
	_, err := change(nil)
	return err
}

// A clock that is set back by an hour neither lets a session go on for an hour that has ended in
// its store, nor keeps it from being used up, nor keeps a stream silent for so long.
func TestClockThatIsSetBack(t *testing.T) {
	table, s, _ := sessionWithLog(t)
	table.o.Relay = &relay.Relay{Node: relay.NewName()}
	table.o.Log = slog.New(slog.DiscardHandler)
	now := time.Now()
	table.o.Clock.Tick(now.Add(-time.Hour))

	o := &Stream{of: table}
	o.written.Store(now.UnixMilli())
	if !o.Silent(now.Add(-time.Hour)) {
		t.Error("a stream has no heartbeat for an hour")
	}

	store := &Store{Carrier: emptied{}, writer: newLogWriter()}
	table.joined(store, s, "weir:session:x", &storedSession{})
	s.stored.seen.Store(now.UnixMilli())
	s.stored.slid.Store(now.UnixMilli())
	if _, err := table.Find("s", store, s.ID, ""); err == nil {
		t.Error("a session goes on that its store does not have")
	}

	table, s, _ = sessionWithLog(t)
	table.Touch(s, now)
	table.Sweep(now.Add(-time.Hour))
	if table.Sweep(now.Add(-time.Second)); table.byID[s.ID] == nil {
		t.Error("a session ends before its time")
	}
	if table.Sweep(now.Add(time.Second)); table.byID[s.ID] != nil {
		t.Error("a session lives for an hour more")
	}
}
