package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// runKill is G38: the process is killed under load, with no chance to say or
// write anything, and started again on the same addresses and files.
func runKill(ctx context.Context, s *storm) {
	times := s.size(s.count, 100, 5, "kills")
	b := s.newBackend(kit.Modern, nil)
	manifest := s.write(kit.PlanOf(b.Addr))
	dir := filepath.Dir(manifest)
	key := make([]byte, 32)
	kit.Must(rand.Read(key))
	keyFile := filepath.Join(dir, "state.key")
	kit.Check(os.WriteFile(keyFile, []byte(base64.StdEncoding.EncodeToString(key)+"\n"), 0o600))
	before := kit.Must(digests(dir))
	seat := kit.Must(kit.FreeSeat())
	var n kit.Numbers
	var t tally
	loading, unload := context.WithCancel(ctx)
	defer unload()
	var load sync.WaitGroup
	var ready, first []time.Duration
	for i := range times {
		began := time.Now()
		e := s.startAt(ctx, manifest, seat, "--state-key-file", keyFile)
		ready = append(ready, e.Ready)
		if i == 0 {
			load.Go(func() { pace{addr: seat.Addr, era: kit.Mixed, conns: 16, rate: 1000, numbers: &n}.run(loading, &t) })
		}
		right := t.right.Load()
		if !kit.WaitFor(ctx, kit.Patience, func() bool { return t.right.Load() > right }) {
			s.bar(false, "serves", "start %d of %d: no call was answered", i+1, times)
			break
		}
		first = append(first, time.Since(began))
		kit.Pause(ctx, time.Duration(20+i%80)*time.Millisecond)
		e.Kill()
	}
	unload()
	load.Wait()
	after := kit.Must(digests(dir))
	s.bar(len(first) == times && kit.Percentile(ready, 1000) <= time.Second, "1 s", "%d of %d kills under load: ready again after %.0f ms in the median, %.0f ms at most; the first answer after %.0f ms at most", len(first), times, kit.Millis(kit.Percentile(ready, 500)), kit.Millis(kit.Percentile(ready, 1000)), kit.Millis(kit.Percentile(first, 1000)))
	s.bar(slices.Equal(before, after), "0", "%d files in its directory, %d changed or new", len(after), different(before, after))
	s.bar(len(t.wrong) == 0, "0", "%d calls answered, %d wrong answers", t.right.Load(), len(t.wrong))
	s.tell("%d calls were cut off, %d connections refused, %d sessions begun again", len(t.lost), t.refused.Load(), t.ended.Load())
	if len(t.wrong) > 0 {
		s.note("%s", t.wrong[0])
	}
}

// digests is the files below a directory, each with what is in it, in order.
func digests(dir string) (all []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all = append(all, fmt.Sprintf("%s %x", strings.TrimPrefix(path, dir), sha256.Sum256(text)))
		return err
	})
	slices.Sort(all)
	return all, err
}

// different is how many of the later files were not there before as they are.
func different(before, after []string) (n int) {
	for _, one := range after {
		if !slices.Contains(before, one) {
			n++
		}
	}
	return n + max(len(before)-len(after), 0)
}
