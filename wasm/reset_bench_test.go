//go:build linux

package wasm

import (
	"fmt"
	"testing"
)

// BenchmarkReset is what a reset costs together with the writes of the call
// after it: mapped anew, or copied back.
func BenchmarkReset(b *testing.B) {
	for _, size := range []int{1 << 20, 5 << 20} {
		memory := make([]byte, size)
		for i := 0; i < size; i += 3 * page {
			memory[i] = 1 // a third of the pages hold something
		}
		s, err := newSnapshot(memory)
		if err != nil {
			b.Fatal(err)
		}
		defer s.close()
		for _, written := range []int{8, 32, 128, 512, 1280} {
			if written*page > size {
				continue
			}
			for _, copies := range []bool{false, true} {
				b.Run(fmt.Sprintf("%dMiB/%dpages/copies=%v", size>>20, written, copies), func(b *testing.B) {
					l, err := newLinear(uint64(size))
					if err != nil {
						b.Fatal(err)
					}
					defer l.Free()
					if err := s.restore(l); err != nil {
						b.Fatal(err)
					}
					l.copies = copies
					for b.Loop() {
						for i := range written {
							l.region[i*(size/written)] = 7
						}
						if err := s.restore(l); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
