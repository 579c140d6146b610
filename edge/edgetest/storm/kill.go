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
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/port"
)

// runKill is G38: the process is killed under load, with no chance to say or
// write anything, and started again on the same addresses and files.
func runKill(ctx context.Context, s *storm) error {
	times := s.size(s.count, 100, 5, "kills")
	b, err := s.newBackend(modern, nil)
	if err != nil {
		return err
	}
	manifest, err := s.manifest([]string{b.addr})
	if err != nil {
		return err
	}
	dir := filepath.Dir(manifest)
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return err
	}
	keyFile := filepath.Join(dir, "state.key")
	if err := os.WriteFile(keyFile, []byte(base64.StdEncoding.EncodeToString(key)+"\n"), 0o600); err != nil {
		return err
	}
	before, err := digests(dir)
	if err != nil {
		return err
	}
	addr, err := port.Free()
	if err != nil {
		return err
	}
	admin, err := port.Free()
	if err != nil {
		return err
	}
	var n numbers
	var t tally
	loading, unload := context.WithCancel(ctx)
	defer unload()
	var load sync.WaitGroup
	var ready, first []time.Duration
	for i := range times {
		began := time.Now()
		e, err := s.startAt(ctx, manifest, addr, admin, "--state-key-file", keyFile)
		if err != nil {
			s.bar(false, "starts", "start %d of %d: %v", i+1, times, err)
			break
		}
		ready = append(ready, e.ready)
		if i == 0 {
			load.Go(func() { pace{addr: addr, era: both, conns: 16, rate: 1000, numbers: &n}.run(loading, &t) })
		}
		right := t.right.Load()
		if !waitFor(ctx, patience, func() bool { return t.right.Load() > right }) {
			s.bar(false, "serves", "start %d of %d: no call was answered", i+1, times)
			break
		}
		first = append(first, time.Since(began))
		if !sleep(ctx, time.Duration(20+i%80)*time.Millisecond) {
			break
		}
		e.signal(syscall.SIGKILL)
		<-e.ended
	}
	unload()
	load.Wait()
	after, err := digests(dir)
	if err != nil {
		return err
	}
	s.bar(len(first) == times && percentile(ready, 1) <= time.Second, "1 s", "%d of %d kills under load: ready again after %.0f ms in the median, %.0f ms at most; the first answer after %.0f ms at most", len(first), times, millis(percentile(ready, 0.5)), millis(percentile(ready, 1)), millis(percentile(first, 1)))
	s.bar(slices.Equal(before, after), "0", "%d files in its directory, %d changed or new", len(after), different(before, after))
	s.bar(len(t.wrong) == 0, "0", "%d calls answered, %d wrong answers", t.right.Load(), len(t.wrong))
	s.tell("%d calls were cut off, %d connections refused, %d sessions begun again", len(t.lost), t.refused.Load(), t.ended.Load())
	if len(t.wrong) > 0 {
		s.note("%s", t.wrong[0])
	}
	return nil
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
