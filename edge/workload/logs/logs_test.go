package logs

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

// Logs begin anew when they are full, and are read over all their files, by time.
func TestLogs(t *testing.T) {
	dir := t.TempDir()
	server, events := Server(dir), Own(dir)
	defer server.Close()
	defer events.Close()
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	long := strings.Repeat("x", 16<<10)
	const rows = 2500 // 40 MiB, of which 30 stay
	for i := range rows {
		at := began.Add(time.Duration(i) * time.Second)
		server.Add(Line{at, "stderr", fmt.Sprint(i, " ", long)})
		if i%100 == 0 {
			events.Add(Line{at.Add(time.Millisecond), Event, fmt.Sprint("event ", i)})
			events.Add(Line{at.Add(2 * time.Millisecond), Edge, "of the edge"})
		}
	}
	for i := range files {
		if info, err := os.Stat(older(server.path, i)); err != nil || info.Size() > MaxSize {
			t.Errorf("%v, %v", info, err)
		}
	}
	if _, err := os.Stat(older(server.path, files)); err == nil {
		t.Error("there are too many files")
	}
	read := func(o Options) (all []Line) {
		t.Helper()
		Read(dir, o, nil, func(l Line) { all = append(all, l) })
		for i := 1; i < len(all); i++ {
			if all[i].Time.Before(all[i-1].Time) {
				t.Fatalf("line %d is before the one before it", i)
			}
		}
		return all
	}
	all := read(Options{})
	if n := len(all); n < 1200 || n > rows || all[n-1].Text[:4] != fmt.Sprint(rows-1) {
		t.Errorf("%d lines", n)
	}
	for _, l := range all {
		if l.Source == Edge {
			t.Fatal("a line of the edge's own")
		}
	}
	if got := read(Options{Tail: 3}); len(got) != 3 || got[2].Text[:4] != fmt.Sprint(rows-1) || got[0].Text[:4] != fmt.Sprint(rows-3) {
		t.Errorf("%d lines", len(got))
	}
	if got := read(Options{Since: began.Add((rows - 10) * time.Second)}); len(got) != 10 {
		t.Errorf("%d lines", len(got))
	}
	if got := read(Options{Proxy: true}); len(got) != 2*rows/100 {
		t.Errorf("%d lines", len(got))
	}

	// Whoever follows sees lines after the log has begun anew.
	done, lines := make(chan struct{}), make(chan Line, rows)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Read(dir, Options{Follow: true, Tail: 1}, done, func(l Line) { lines <- l })
	}()
	edgetest.Receive(t, lines, "the last line")
	for i := range 1000 {
		server.Add(Line{began.Add(time.Duration(rows+i) * time.Second), "stderr", fmt.Sprint(i, " ", long)})
	}
	for i := range 1000 {
		if l := edgetest.Receive(t, lines, "a line"); !strings.HasPrefix(l.Text, fmt.Sprint(i, " ")) {
			t.Fatalf("line %d is %.20q", i, l.Text)
		}
	}
	close(done)
	edgetest.Receive(t, ended, "the end")
}

// Whoever follows a log is told what comes, although the clock was set back since: the time of
// such a line is before that from which lines were asked for.
func TestLogsFollowClockSetBack(t *testing.T) {
	dir := t.TempDir()
	log := Own(dir)
	before := time.Now().Add(time.Hour) // as the clock had it
	log.Add(Line{Time: before.Add(-time.Minute), Source: Event, Text: "old"})
	log.Add(Line{Time: before, Source: Event, Text: "first"})
	lines, done, ended := make(chan Line, 10), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		Read(dir, Options{Follow: true, Since: before.Truncate(time.Microsecond)}, done, func(l Line) { lines <- l })
	}()
	if l := edgetest.Receive(t, lines, "a line of the time that was asked for"); l.Text != "first" {
		t.Errorf("%q, want the first of that time", l.Text)
	}
	log.Add(Line{Time: time.Now(), Source: Event, Text: "after"})
	if l := edgetest.Receive(t, lines, "a line from after the clock was set back"); l.Text != "after" {
		t.Errorf("%q, want the one from after the clock was set back", l.Text)
	}
	close(done)
	edgetest.Receive(t, ended, "the end")
}
