package main

import (
	"bytes"
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

// cpuTime returns the user and system time that a process has used. The sum of
// its threads' schedstat counts nanoseconds but forgets threads that have
// ended; stat remembers them but counts in hundredths of a second. The larger
// is the better of the two.
func cpuTime(pid int) (time.Duration, error) {
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

// residentBytes returns the resident memory of a process. smaps_rollup is
// exact; VmRSS of status, the way out where there is none, may be off by some
// pages per core.
func residentBytes(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err == nil {
		return parseKilobytes(text, "Rss")
	}
	if text, err = os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err != nil {
		return 0, fmt.Errorf("resident memory: %w", err)
	}
	return parseKilobytes(text, "VmRSS")
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

// parseCPUModel returns the first `model name` of /proc/cpuinfo, or "unknown":
// not every architecture has one.
func parseCPUModel(text []byte) string {
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
