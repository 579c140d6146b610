package kit

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
		{upTo(3), 0, 1},
		{[]time.Duration{3, 1, 2}, 500, 2},
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
		if got := Percentile(c.sorted, c.permille); got != c.want {
			t.Errorf("percentile of %d values, %d ‰: %d, want %d", len(c.sorted), c.permille, got, c.want)
		}
	}
}
