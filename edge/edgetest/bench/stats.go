package main

import (
	"slices"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// median returns the middle one of values, or the mean of the two in the
// middle; 0 when there are none. It leaves values as they are.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// figure is what one run of a load on one target gave.
type figure struct {
	cpu  float64 // µs of user and system time of the target's process per call
	p50  float64 // µs
	p99  float64 // µs
	rate float64 // calls per second
}

// figureOf turns a run and the CPU time that it took into a figure.
func figureOf(r run, cpu time.Duration) figure {
	return figure{
		cpu:  micros(cpu) / float64(len(r.latencies)),
		p50:  micros(kit.Percentile(r.latencies, 500)),
		p99:  micros(kit.Percentile(r.latencies, 990)),
		rate: float64(len(r.latencies)) / r.elapsed.Seconds(),
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// over picks one number out of every figure.
func over(fs []figure, pick func(figure) float64) []float64 {
	out := make([]float64, len(fs))
	for i, f := range fs {
		out[i] = pick(f)
	}
	return out
}

// middle is the figure whose every number is the median of that number.
func middle(fs []figure) figure {
	return figure{
		cpu:  median(over(fs, func(f figure) float64 { return f.cpu })),
		p50:  median(over(fs, func(f figure) float64 { return f.p50 })),
		p99:  median(over(fs, func(f figure) float64 { return f.p99 })),
		rate: median(over(fs, func(f figure) float64 { return f.rate })),
	}
}
