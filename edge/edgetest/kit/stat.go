package kit

import (
	"slices"
	"time"
)

// Percentile sorts values and returns the nearest-rank percentile: the smallest
// of them that at least permille of a thousand values do not exceed. It is 0
// when there are none, and the least for 0; permille is within 0 and 1000.
func Percentile(values []time.Duration, permille int) time.Duration {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	rank := (len(values)*permille + 999) / 1000
	return values[max(rank, 1)-1]
}

// Millis is a duration in milliseconds.
func Millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// MiB is a number of bytes in mebibytes.
func MiB(n int64) float64 { return float64(n) / (1 << 20) }

// KiB is a number of bytes in kibibytes for each of some things; 0 for none.
func KiB(n int64, each int) float64 {
	if each == 0 {
		return 0
	}
	return float64(n) / float64(each) / (1 << 10)
}
