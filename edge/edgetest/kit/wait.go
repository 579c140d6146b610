package kit

import (
	"context"
	"time"
)

// Patience bounds whatever is waited for that has no bar of its own.
const Patience = 20 * time.Second

// Sleep waits, and reports false when the run has been cut short.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// WaitFor asks again and again until something holds; false when it does not in
// time.
func WaitFor(ctx context.Context, within time.Duration, holds func() bool) bool {
	for began := time.Now(); !holds(); {
		if time.Since(began) > within || !Sleep(ctx, 20*time.Millisecond) {
			return false
		}
	}
	return true
}
