package workload

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestStartsBesideThoseThatHang: servers that do not introduce themselves keep no other one waiting for
// as long as they do.
func TestStartsBesideThoseThatHang(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p := &played{meets: map[string]func(context.Context) error{}}
		k := keep(t, p, dir)
		for i := range 3 * startsAtOnce {
			name := fmt.Sprint("hangs", i)
			p.set(func() {
				p.meets[name] = func(ctx context.Context) error {
					select {
					case <-time.After(30 * time.Second):
						return &Error{Code: CodeStart, Message: "not introduced"}
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}
			})
			_ = k.Run(t.Context(), describe(name), false, time.Nanosecond, nil)
		}
		synctest.Wait()
		if err := k.Run(t.Context(), describe("good"), false, time.Minute, nil); err != nil {
			t.Error(err)
		}
		k.Close()
	})
}
