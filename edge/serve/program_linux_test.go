package serve

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestProgramIsForgotten: the pages of the program that its start has read leave the process
// when it comes to rest, and again only where it has done much since; those that it needs come
// back.
func TestProgramIsForgotten(t *testing.T) {
	m, now := newMemory(), time.Now()
	all(t)
	runtime.GC() // so that none comes between the looks
	m.look(now)
	before := resident(t)
	m.look(now.Add(restsFor))
	if after := resident(t); after > before/2 {
		t.Errorf("%d KiB of the program are resident, and were %d", after, before)
	}
	for _, name := range []string{"/proc/self/smaps", "/proc/self/maps"} { // for which it needs some
		if text, err := os.ReadFile(name); err != nil || !regexp.MustCompile(`(?i)STACK`).Match(text) {
			t.Error(err)
		}
	}
	before = resident(t)
	m.look(now.Add(restsFor + time.Second))
	if after := resident(t); after < before {
		t.Errorf("forgotten again: %d KiB of %d", after, before)
	}
	all(t)
	runtime.GC()
	m.look(now.Add(restsFor + 2*time.Second)) // which sees that
	before = resident(t)
	m.look(now.Add(2*restsFor + 2*time.Second))
	if after := resident(t); after >= before {
		t.Errorf("not forgotten again: %d KiB of %d", after, before)
	}
}

// all brings the whole program in, of which another edge of these tests may have just let go.
func all(t *testing.T) {
	t.Helper()
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	const populateRead = 22 // MADV_POPULATE_READ, madvise(2); a kernel before 5.14 does nothing
	for _, m := range asInFile(bytes.NewReader(smaps), path) {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, m.start, m.end-m.start, populateRead)
	}
}

// resident is how many KiB of files are resident in this process.
func resident(t *testing.T) (kib int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "RssFile:")
	if n, err := fmt.Sscan(rest, &kib); n != 1 || kib == 0 {
		t.Fatalf("%v in %s", err, text)
	}
	return kib
}

// TestAsInFile: nothing is taken out of a process that the file does not have.
func TestAsInFile(t *testing.T) {
	const smaps = `00400000-02000000 r-xp 00000000 fe:00 12 /opt/a b/weir
Rss:                9000 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
02000000-03000000 r--p 01c00000 fe:00 12 /opt/a b/weir
Anonymous:             4 kB
03000000-04000000 r--p 02c00000 fe:00 12 /opt/a b/weir
Anonymous:             0 kB
04000000-05000000 rw-p 03c00000 fe:00 12 /opt/a b/weir
Anonymous:             0 kB
7f0000000000-7f0000001000 r--p 00000000 fe:00 13 /opt/a b/weir.so
Anonymous:             0 kB
7f0000002000-7f0000003000 rw-p 00000000 00:00 0
Anonymous:             0 kB
x-y r--p 00000000 fe:00 12 /opt/a b/weir
Anonymous:             0 kB
`
	want := []mapping{{0x400000, 0x2000000}, {0x3000000, 0x4000000}}
	if got := asInFile(strings.NewReader(smaps), "/opt/a b/weir"); !slices.Equal(got, want) {
		t.Errorf("%x", got)
	}
}
