package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

func gap(w io.Writer, dropped uint64) { fmt.Fprintf(w, "%d missing\n", dropped) }

// Who writes does not wait for a reader that has stalled. When that one reads on it gets what
// there was room for, in order, and where lines are missing how many.
func TestQueueOfAStalledReader(t *testing.T) {
	r, w := io.Pipe()
	told := make(chan struct{})
	q := NewQueue(w, func(w io.Writer, dropped uint64) {
		gap(w, dropped)
		close(told)
	})
	line := []byte(strings.Repeat("x", 1<<10-1) + "\n")
	const lines = 4 * queueRoom >> 10
	began := time.Now()
	for range lines {
		if n, err := q.Write(line); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	if took := time.Since(began); took > 20*queueWait {
		t.Errorf("%d lines took %v", lines, took)
	}
	text := make(chan []byte)
	go func() {
		all, _ := io.ReadAll(r)
		text <- all
	}()
	<-told
	fmt.Fprintln(q, "after")
	q.Close(time.Minute)
	w.Close()
	got := strings.Split(strings.TrimSuffix(string(<-text), "\n"), "\n")
	n := len(got) - 2
	if n < queueRoom>>10 || n > lines-queueRoom>>10 || got[n] != fmt.Sprintf("%d missing", lines-n) || got[n+1] != "after" {
		t.Errorf("%d lines, then %q", n, got[n:])
	}
	if q.dropped != uint64(lines-n) {
		t.Errorf("%d counted", q.dropped)
	}
}

// A reader that is slow, and reads, loses nothing and gets everything in order; who closes waits
// for it, and not for one that does not read.
func TestQueueOfASlowReader(t *testing.T) {
	r, w := io.Pipe()
	q := NewQueue(w, gap)
	q.wait = time.Minute // a busy machine reads more slowly
	var want bytes.Buffer
	text := make(chan []byte)
	go func() {
		var all []byte
		for b := make([]byte, 256<<10); ; time.Sleep(10 * time.Millisecond) {
			n, err := r.Read(b)
			if all = append(all, b[:n]...); err != nil {
				text <- all
				return
			}
		}
	}()
	for i := range 5 * queueRoom >> 10 {
		line := fmt.Sprintf("%01023d\n", i)
		want.WriteString(line)
		fmt.Fprint(q, line)
	}
	q.Close(time.Minute)
	w.Close()
	if !bytes.Equal(<-text, want.Bytes()) || q.dropped != 0 {
		t.Errorf("what was read differs; %d dropped", q.dropped)
	}

	_, w = io.Pipe()
	q = NewQueue(w, gap)
	fmt.Fprintln(q, "nobody reads")
	q.Close(time.Millisecond)
	w.Close()
	<-q.done
}

// BenchmarkLine is what a line costs who writes it, with the queue and without.
func BenchmarkLine(b *testing.B) {
	line := []byte(strings.Repeat("x", 200) + "\n")
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	b.Run("direct", func(b *testing.B) {
		for b.Loop() {
			_, _ = w.Write(line)
		}
	})
	b.Run("queue", func(b *testing.B) {
		q := NewQueue(w, gap)
		for b.Loop() {
			_, _ = q.Write(line)
		}
		q.Close(time.Minute)
		if q.dropped > 0 {
			b.Errorf("%d dropped", q.dropped)
		}
	})
	w.Close()
}
