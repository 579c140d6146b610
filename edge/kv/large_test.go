//go:build unix

package kv_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/kv/kvtest"
)

// TestZ40LargeValues: a value has the time that its size takes, to be read as to
// be written; one that takes longer fails alone: the store is not taken to be away,
// and small values beside it are read. The first bytes of a value are as quick as
// a small one.
func TestZ40LargeValues(t *testing.T) {
	r := kvtest.Redis(t)
	w := kvtest.NewWire(t, r.Addr)
	s := open(t, kv.Options{Addresses: []string{w.Addr}, Timeout: 250 * time.Millisecond})
	ready(t, s)
	direct := open(t, patient(r.Addr))
	ctx := t.Context()
	large := bytes.Repeat([]byte("0123456789abcdef"), 16<<20/16)
	must(t, direct.Put(ctx, "large", large, time.Hour))
	must(t, direct.Put(ctx, "small", []byte("v"), time.Hour))
	update := func() error {
		return s.Update(ctx, "large", time.Hour, func(old []byte) ([]byte, error) {
			if len(old) != len(large) {
				t.Errorf("update sees %d bytes", len(old))
			}
			return nil, errUnchanged
		})
	}

	// 1. A network on which so much takes longer than a small value may.
	w.Rate.Store(60 << 20)
	if got, err := s.Get(ctx, "large"); err != nil || !bytes.Equal(got, large) {
		t.Errorf("%d bytes of %d: %v", len(got), len(large), err)
	}
	if err := update(); !errors.Is(err, errUnchanged) {
		t.Errorf("update: %v", err)
	}

	// 2. A slower one, with more large calls at a time than there are connections. A small
	// value has a second here: so many calls are work for a machine that has other work.
	w.Rate.Store(0)
	s = open(t, kv.Options{Addresses: []string{w.Addr}, Timeout: time.Second})
	ready(t, s)
	w.Rate.Store(4 << 20)
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if _, err := s.Get(ctx, "large"); err == nil {
				t.Error("a network of 4 MiB a second carried 16 MiB in time")
			}
		})
	}
	within, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	reads := 0
	for ; within.Err() == nil; reads++ {
		if got, err := s.Get(ctx, "small"); err != nil || string(got) != "v" {
			t.Fatalf("a small value beside large ones: %q, %v; %+v", got, err, s.Counters())
		}
		if got, err := s.Head(ctx, "large", 16); err != nil || string(got) != "0123456789abcdef" {
			t.Fatalf("the first bytes of a large value: %q, %v", got, err)
		}
	}
	all.Wait()
	if c := s.Counters(); c.Opened != 0 {
		t.Errorf("the store was taken to be away: %+v", c)
	}
	t.Logf("%d small values read beside; %+v", reads, s.Counters())

	// 3. A store that is away is away for small calls, whatever large ones say.
	w.Rate.Store(0)
	r.Freeze()
	defer r.Thaw()
	for range 6 {
		_, _ = s.Get(ctx, "small") // it fails
	}
	if c := s.Counters(); c.Opened != 1 {
		t.Errorf("a store that is silent is not away: %+v", c)
	}
}

// TestZ40Head: the first bytes of a value, whole or cut, and of nothing.
func TestZ40Head(t *testing.T) {
	s := open(t, patient(kvtest.Redis(t).Addr))
	ctx := t.Context()
	must(t, s.Put(ctx, "k", []byte("head and tail"), time.Hour))
	must(t, s.Put(ctx, "empty", nil, time.Hour))
	for _, one := range []struct {
		key  string
		most int
		want string
	}{{"k", 4, "head"}, {"k", 13, "head and tail"}, {"k", 100, "head and tail"}, {"empty", 4, ""}} {
		if got, err := s.Head(ctx, one.key, one.most); err != nil || got == nil || string(got) != one.want {
			t.Errorf("%s: %q, %v", one.key, got, err)
		}
	}
	if got, err := s.Head(ctx, "nothing", 4); err != nil || got != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := s.Head(ctx, "", 4); edge.KindOf(err) != edge.Internal {
		t.Errorf("no key: %v", err)
	}
}

var errUnchanged = errors.New("unchanged")

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
