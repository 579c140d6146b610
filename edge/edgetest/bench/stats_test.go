package main

import (
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0},
		{[]float64{3}, 3},
		{[]float64{9, 1}, 5},
		{[]float64{9, 1, 2}, 2},
		{[]float64{4, 1, 3, 2}, 2.5},
	} {
		if got := median(c.values); got != c.want {
			t.Errorf("median of %v: %v, want %v", c.values, got, c.want)
		}
	}
	values := []float64{3, 1, 2}
	median(values)
	if values[0] != 3 || values[1] != 1 {
		t.Errorf("median sorted the caller's values: %v", values)
	}
}

func TestFigureOf(t *testing.T) {
	r := run{latencies: []time.Duration{10 * time.Microsecond, 20 * time.Microsecond, 30 * time.Microsecond, 40 * time.Microsecond}, elapsed: 2 * time.Millisecond}
	got := figureOf(r, 100*time.Microsecond)
	want := figure{cpu: 25, p50: 20, p99: 40, rate: 2000}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if m := middle([]figure{want, {cpu: 1, p50: 90, p99: 1, rate: 1}, {cpu: 99, p50: 50, p99: 41, rate: 5000}}); m != (figure{cpu: 25, p50: 50, p99: 40, rate: 2000}) {
		t.Errorf("middle: %+v", m)
	}
}

func TestParseLive(t *testing.T) {
	const text = "heap profile: 1: 2 [3: 4] @ heap/1048576\n\n# runtime.MemStats\n# Alloc = 5\n# HeapAlloc = 1000\n# HeapSys = 7\n# Stack = 24 / 32\n"
	if got := parseLive([]byte(text)); got != 1024 {
		t.Errorf("%d, want 1024", got)
	}
	for _, text := range []string{"", "\n# HeapAlloc = 1000\n", "\n# HeapAlloc = x\n# Stack = 1 / 2\n"} {
		if got := parseLive([]byte(text)); got != 0 {
			t.Errorf("%q: %d, want 0", text, got)
		}
	}
}
