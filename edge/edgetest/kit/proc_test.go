package kit

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

func TestParseStat(t *testing.T) {
	const after = " S 1 2 3 0 -1 4194304 100 0 0 0 123 45 7 8 20 0 9 0 100 1000 200"
	for _, c := range []struct {
		text string
		want time.Duration
		ok   bool
	}{
		{"42 (weir)" + after, 1680 * time.Millisecond, true},
		{"42 (a b) c) (d)" + after, 1680 * time.Millisecond, true},
		{"42 ()" + after + "\n", 1680 * time.Millisecond, true},
		{"42 weir" + after, 0, false},
		{"42 (weir) S 1 2 3", 0, false},
		{"42 (weir) S 1 2 3 0 -1 4194304 100 0 0 0 x 45 7 8", 0, false},
		{"42 (weir) S 1 2 3 0 -1 4194304 100 0 0 0 -1 45 7 8", 0, false},
		{"", 0, false},
	} {
		got, err := parseStat([]byte(c.text))
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%q: %s, %v; want %s", c.text, got, err, c.want)
		}
	}
}

func TestParseSchedstat(t *testing.T) {
	for _, c := range []struct {
		text string
		want time.Duration
		ok   bool
	}{
		{"15235404 4362794 57\n", 15235404, true},
		{"0 0 0", 0, true},
		{"1 2", 0, false},
		{"", 0, false},
		{"x 2 3", 0, false},
	} {
		got, err := parseSchedstat([]byte(c.text))
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%q: %d, %v; want %d", c.text, got, err, c.want)
		}
	}
}

func TestParseKilobytes(t *testing.T) {
	const rollup = "55cb-7ffd ---p 00000000 00:00 0    [rollup]\nRss:                1768 kB\nPss:                 381 kB\n"
	const status = "Name:\tweir\nVmHWM:\t    9000 kB\nVmRSS:\t    8192 kB\nRssAnon:\t 1 kB\n"
	for _, c := range []struct {
		text, name string
		want       int64
		ok         bool
	}{
		{rollup, "Rss", 1768 << 10, true},
		{status, "VmRSS", 8 << 20, true},
		{status, "Rss", 0, false},
		{"Rss: 12 MB\n", "Rss", 0, false},
		{"Rss: many kB\n", "Rss", 0, false},
		{"", "Rss", 0, false},
	} {
		got, err := parseKilobytes([]byte(c.text), c.name)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%s of %q: %d, %v; want %d", c.name, c.text, got, err, c.want)
		}
	}
}

func TestParseCPUModel(t *testing.T) {
	if got := parseCPUModel([]byte("processor\t: 0\nmodel\t\t: 207\nmodel name\t: Fast (R) CPU: 3\nmodel name\t: other\n")); got != "Fast (R) CPU: 3" {
		t.Errorf("%q", got)
	}
	if got := parseCPUModel([]byte("processor : 0\n")); got != "unknown" {
		t.Errorf("%q", got)
	}
}

// The figures of this very process grow with what it does.
func TestOwnProcess(t *testing.T) {
	edgetest.Need(t, runtime.GOOS == "linux", "there is no /proc but on Linux")
	before, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); time.Since(begin) < 50*time.Millisecond; {
	}
	after, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if d := after - before; d <= 0 || d > 10*time.Second {
		t.Errorf("50 ms of spinning took %s of CPU time", d)
	}
	if n, err := Resident(os.Getpid()); err != nil || n < 1<<20 || n > 4<<30 {
		t.Errorf("resident memory: %d, %v", n, err)
	}
	if _, err := CPU(1 << 30); err == nil {
		t.Error("a process that does not exist has CPU time")
	}
}

func TestSockstat(t *testing.T) {
	bytes, orphans, err := parseSockstat("sockets: used 16\nTCP: inuse 1 orphan 7 tw 23 alloc 1 mem 3\nUDP: inuse 0 mem 9\n")
	if err != nil || bytes != 3*int64(os.Getpagesize()) || orphans != 7 {
		t.Errorf("%d bytes, %d orphans, %v", bytes, orphans, err)
	}
	if _, _, err := parseSockstat("UDP: inuse 0 mem 9\n"); err == nil {
		t.Error("a line that is not there was found")
	}
	if got := KiB(3<<20, 1024); got != 3 {
		t.Errorf("%g KiB each", got)
	}
}
