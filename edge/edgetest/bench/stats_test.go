package main

import (
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	upTo := func(n int) (out []time.Duration) {
		for i := range n {
			out = append(out, time.Duration(i+1))
		}
		return out
	}
	for _, c := range []struct {
		sorted   []time.Duration
		permille int
		want     time.Duration
	}{
		{nil, 500, 0},
		{upTo(1), 1, 1},
		{upTo(1), 990, 1},
		{upTo(2), 500, 1},
		{upTo(3), 500, 2},
		{upTo(4), 500, 2},
		{upTo(100), 500, 50},
		{upTo(100), 990, 99},
		{upTo(101), 990, 100},
		{upTo(1000), 990, 990},
		{upTo(1000), 999, 999},
		{upTo(1000), 1000, 1000},
		{[]time.Duration{7, 7, 7, 900}, 750, 7},
		{[]time.Duration{7, 7, 7, 900}, 751, 900},
	} {
		if got := percentile(c.sorted, c.permille); got != c.want {
			t.Errorf("percentile of %d values, %d ‰: %d, want %d", len(c.sorted), c.permille, got, c.want)
		}
	}
}

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
