package secret

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// A keyring that does not answer is waited for no longer than its user wants.
func TestKeyringThatHangs(t *testing.T) {
	bus := func(string) (string, bool) { return "unix:path=/nowhere", true }
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	hangs := make(chan struct{})
	defer close(hangs)
	err := inKeyring(ctx, bus, func() error { <-hangs; return nil })
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "does not answer") {
		t.Error(err)
	}
}
