//go:build unix

package kv_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/kv/kvtest"
)

// BenchmarkRedisTake also gives the median and the 99th percentile of a call.
func BenchmarkRedisTake(b *testing.B) {
	r := kvtest.Redis(b)
	s := open(b, kv.Options{Addresses: []string{r.Addr}, Timeout: 5 * time.Second})
	ready(b, s)
	for _, n := range []int{1, 4} {
		b.Run(fmt.Sprintf("buckets=%d", n), func(b *testing.B) {
			var buckets []edge.Bucket
			for i := range n {
				buckets = append(buckets, edge.Bucket{Key: "rl:{local:srv}:shared:" + strconv.Itoa(i), Capacity: 1 << 30, Refill: time.Second})
			}
			ctx := b.Context()
			var took []time.Duration
			b.ReportAllocs()
			for b.Loop() {
				began := time.Now()
				if wait, _, err := s.Take(ctx, buckets...); wait != 0 || err != nil {
					b.Fatal(wait, err)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2])/1e6, "ms/p50")
			b.ReportMetric(float64(took[len(took)*99/100])/1e6, "ms/p99")
		})
	}
}
