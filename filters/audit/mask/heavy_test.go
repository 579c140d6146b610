package mask_test

import (
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/heavy"
	"github.com/weir-edge/weir/filters/audit/mask"
)

// TestZ03 masks what is as much work as its size allows, with as much room as an
// operator may give it.
func TestZ03(t *testing.T) {
	times := time.Duration(10) // as slow as other machines may be
	if raceEnabled {
		times *= 3
	}
	for _, shape := range heavy.Shapes() {
		for _, size := range []int{256 << 10, 4 << 20} {
			for _, limit := range []int{1 << 10, 8 << 20} {
				value := []byte(`{"a":` + heavy.Value(shape, size, 120) + `}`)
				most := times * (5*time.Millisecond + time.Duration(float64(20*time.Millisecond)*float64(size)/(1<<20)))
				took := heavy.Least(most, func() { mask.Append(nil, value, limit) })
				if took > most {
					t.Errorf("%s, %d bytes, room for %d: %v", shape, size, limit, took)
				}
				if size == 4<<20 && limit == 8<<20 {
					t.Logf("%-18s %6.2f ms/MiB", shape, took.Seconds()*1e3/4)
				}
			}
		}
	}
}
