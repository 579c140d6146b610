package wasi

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// What is done for an instance is paid for by how much it is: by each step of a path, each
// entry of a directory, each subscription and each buffer, also where it was in vain.
func TestWorkIsPaidFor(t *testing.T) {
	p := play(t, Dir{Name: "/", Root: openRoot(t, t.TempDir()), Writable: true})
	spent := uint64(0)
	p.Spend = func(n uint64) { spent += n }
	paid := func(what string, least uint64, is errno, name string, args ...uint64) {
		t.Helper()
		spent = 0
		if n := p.call(name, args...); n != is || spent < least {
			t.Errorf("%s: %d, and costs %d, and should at least %d", what, n, spent, least)
		}
	}
	at, size := p.text(1000, strings.Repeat("x/", 2000)+"x")
	paid("a deep path", 2000*2000, eNoent, "path_filestat_get", 3, 0, at, size, 8192)
	for i := range MaxSubscriptions {
		p.subscribe(i, kindClock, 0)
	}
	paid("subscriptions", MaxSubscriptions*500, success, "poll_oneoff", 16384, 131072, MaxSubscriptions, 64)
	paid("buffers of nothing", maxVectors*10, success, "fd_write", 1, 524288, maxVectors, 64)
}

// A directory that is too large to be listed has each of its entries looked at, which is paid
// for; what is kept of one that is not are names.
func TestLargeDirectory(t *testing.T) {
	if testing.Short() {
		t.Skip("to make one takes some seconds")
	}
	dir := t.TempDir()
	name := func(i int) string { return filepath.Join(dir, fmt.Sprintf("%06d", i)) }
	for i := range maxEntries + 1 {
		if err := os.Symlink("x", name(i)); err != nil {
			t.Fatal(err)
		}
	}
	p := play(t, Dir{Name: "/", Root: openRoot(t, dir), Writable: true})
	spent := uint64(0)
	p.Spend = func(n uint64) { spent += n }
	if n := p.call("fd_readdir", 3, 8192, 4096, 0, 64); n != eOverflow || spent < 5_000*maxEntries {
		t.Errorf("too many entries: %d, and costs %d", n, spent)
	}
	if err := os.Remove(name(0)); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	if n := p.call("fd_readdir", 3, 8192, 4096, 0, 64); n != success || p.u32(64) != 4096 {
		t.Errorf("as many as may be: %d, %d bytes", n, p.u32(64))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > 64*maxEntries {
		t.Errorf("%d bytes are kept for each entry", kept/maxEntries)
	}
	runtime.KeepAlive(p)
}
