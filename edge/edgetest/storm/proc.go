package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// resident returns the resident memory of a process in bytes. smaps_rollup is
// exact; VmRSS of status, the way out where there is none, may be off by some
// pages for each core.
func resident(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err == nil {
		return parseKilobytes(string(text), "Rss")
	}
	if text, err = os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err != nil {
		return 0, fmt.Errorf("resident memory: %w", err)
	}
	return parseKilobytes(string(text), "VmRSS")
}

// parseKilobytes returns the value, in bytes, of the line `NAME: N kB`.
func parseKilobytes(text, name string) (int64, error) {
	for line := range strings.Lines(text) {
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

// kernelTCP is what the kernel holds for all TCP sockets of the machine, in
// bytes, and how many of them belong to no process any longer
// (/proc/net/sockstat: mem, in pages, and orphan).
func kernelTCP() (bytes int64, orphans int, err error) {
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
		return int64(value["mem"]) * int64(pageSize()), value["orphan"], nil
	}
	return 0, 0, fmt.Errorf("sockstat: no line TCP")
}

// loadAverage is how many tasks wanted to run, on average over the last minute
// (/proc/loadavg); 0 when nobody tells.
func loadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, _ := strconv.ParseFloat(first, 64)
	return load
}

// settled reads resident memory until it has not moved by a hundredth for a
// second, or for as long as it may take.
func settled(ctx context.Context, pid int, within time.Duration) (int64, error) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	last, quiet := int64(0), 0
	for began := time.Now(); ; {
		n, err := resident(pid)
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
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-tick.C:
		}
	}
}

// peak keeps the largest resident memory of a process until the function that
// it returns is called.
func peak(pid int) (stop func() int64) {
	quit, done := make(chan struct{}), make(chan struct{})
	var most int64
	go func() { // ends with stop
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			if n, err := resident(pid); err == nil {
				most = max(most, n)
			}
			select {
			case <-quit:
				return
			case <-tick.C:
			}
		}
	}()
	return func() int64 {
		close(quit)
		<-done
		return most
	}
}

// portOf is the port of host:port; 0 for what is none.
func portOf(addr string) uint16 {
	_, port, _ := net.SplitHostPort(addr)
	n, _ := strconv.ParseUint(port, 10, 16)
	return uint16(n)
}

// sleep waits, and reports false when the run has been cut short.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

func kib(n int64, each int) float64 {
	if each == 0 {
		return 0
	}
	return float64(n) / float64(each) / (1 << 10)
}
