package kit

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// userHZ is the unit of the times in /proc/PID/stat: the kernel shows
// hundredths of a second to programs whatever its own tick is (proc(5)).
const userHZ = 100

// CPU returns the user and system time that a process has used. The sum of its
// threads' schedstat counts nanoseconds but forgets threads that have ended;
// stat remembers them but counts in hundredths of a second. The larger is the
// better of the two.
func CPU(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("cpu time: %w", err)
	}
	coarse, err := parseStat(text)
	if err != nil {
		return 0, fmt.Errorf("cpu time: %w", err)
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, fmt.Errorf("cpu time: %w", err)
	}
	var fine time.Duration
	for _, name := range threads {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // the thread ended in between, or the kernel keeps no such file
		}
		d, err := parseSchedstat(text)
		if err != nil {
			return 0, fmt.Errorf("cpu time: %s: %w", name, err)
		}
		fine += d
	}
	return max(coarse, fine), nil
}

// parseStat returns utime and stime of /proc/PID/stat, the 14th and 15th
// field (proc_pid_stat(5)). The second field is the program's name in
// parentheses and may hold anything, parentheses and spaces included.
func parseStat(text []byte) (time.Duration, error) {
	end := bytes.LastIndexByte(text, ')')
	if end < 0 {
		return 0, fmt.Errorf("stat: no program name in %q", text)
	}
	fields := strings.Fields(string(text[end+1:]))
	const utime, stime = 14 - 3, 15 - 3 // fields[0] is the third
	if len(fields) <= stime {
		return 0, fmt.Errorf("stat: %d fields after the name", len(fields))
	}
	var ticks uint64
	for _, f := range []string{fields[utime], fields[stime]} {
		n, err := strconv.ParseUint(f, 10, 63)
		if err != nil {
			return 0, fmt.Errorf("stat: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * (time.Second / userHZ), nil
}

// parseSchedstat returns the time a thread has run, the first of the three
// numbers of /proc/PID/task/TID/schedstat, in nanoseconds.
func parseSchedstat(text []byte) (time.Duration, error) {
	fields := strings.Fields(string(text))
	if len(fields) != 3 {
		return 0, fmt.Errorf("schedstat: %d fields, not 3", len(fields))
	}
	n, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("schedstat: %w", err)
	}
	return time.Duration(n), nil
}

// Resident returns the resident memory of a process in bytes. smaps_rollup is
// exact; VmRSS of status, the way out where there is none, may be off by some
// pages for each core.
func Resident(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err == nil {
		return parseKilobytes(text, "Rss")
	}
	if text, err = os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err != nil {
		return 0, fmt.Errorf("resident memory: %w", err)
	}
	return parseKilobytes(text, "VmRSS")
}

// Memory is what a process has in memory, in bytes.
type Memory struct {
	Resident int64
	Own      int64 // of it that nobody shares
	Share    int64 // its own, and of each page that it shares as much as falls to it (PSS)
}

// Smaps reads the memory of a process by what stands in smaps_rollup (proc_pid_smaps(5)).
func Smaps(pid int) (m Memory, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return m, fmt.Errorf("memory: %w", err)
	}
	for _, one := range []struct {
		name string
		to   *int64
	}{{"Rss", &m.Resident}, {"Private_Clean", &m.Own}, {"Private_Dirty", &m.Own}, {"Pss", &m.Share}} {
		n, err := parseKilobytes(text, one.name)
		if err != nil {
			return m, fmt.Errorf("memory: %w", err)
		}
		*one.to += n
	}
	return m, nil
}

// parseKilobytes returns the value, in bytes, of the line `NAME: N kB`.
func parseKilobytes(text []byte, name string) (int64, error) {
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != name+":" || fields[2] != "kB" {
			continue
		}
		n, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		return n << 10, nil
	}
	return 0, fmt.Errorf("no line %s", name)
}

// Settled reads resident memory at every tick until it has not moved by a
// hundredth for five of them, or for as long as it may take.
func Settled(ctx context.Context, pid int, tick, within time.Duration) (int64, error) {
	last, quiet := int64(0), 0
	for began := time.Now(); ; {
		n, err := Resident(pid)
		if err != nil {
			return 0, err
		}
		if d := n - last; d > n/100 || d < -n/100 {
			last, quiet = n, 0
		} else if quiet++; quiet == 5 {
			return n, nil
		}
		if time.Since(began) > within {
			return n, nil
		}
		if !Sleep(ctx, tick) {
			return 0, ctx.Err()
		}
	}
}

// Peak reads the resident memory of a process at every tick, and keeps the
// largest, until the function that it returns is called.
func Peak(pid int, tick time.Duration) (stop func() int64) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var most int64
	go func() { // ends with stop
		defer close(done)
		for again := true; again; again = Sleep(ctx, tick) {
			if n, err := Resident(pid); err == nil {
				most = max(most, n)
			}
		}
	}()
	return func() int64 {
		cancel()
		<-done
		return most
	}
}

// OpenFiles is how many files a process has open.
func OpenFiles(pid int) (int, error) {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return 0, fmt.Errorf("open files: %w", err)
	}
	return len(open), nil
}

// KernelTCP is what the kernel holds for all TCP sockets of the machine, in
// bytes, and how many of them belong to no process any longer
// (/proc/net/sockstat: mem, in pages, and orphan).
func KernelTCP() (bytes int64, orphans int, err error) {
	text, err := os.ReadFile("/proc/net/sockstat")
	if err != nil {
		return 0, 0, fmt.Errorf("kernel memory: %w", err)
	}
	return parseSockstat(string(text))
}

func parseSockstat(text string) (bytes int64, orphans int, err error) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, "TCP:")
		if !ok {
			continue
		}
		fields := strings.Fields(rest)
		value := map[string]int{}
		for i := 0; i+1 < len(fields); i += 2 {
			if value[fields[i]], err = strconv.Atoi(fields[i+1]); err != nil {
				return 0, 0, fmt.Errorf("sockstat: %w", err)
			}
		}
		return int64(value["mem"]) * int64(os.Getpagesize()), value["orphan"], nil
	}
	return 0, 0, fmt.Errorf("sockstat: no line TCP")
}

// LoadAverage is how many tasks wanted to run, on average over the last minute
// (/proc/loadavg); "unknown" when nobody tells.
func LoadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// CPUModel is the name of the processor; "unknown" where the architecture has
// none.
func CPUModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // what is not there says nothing
	return parseCPUModel(text)
}

func parseCPUModel(text []byte) string {
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
