package kit

import (
	"context"
	"fmt"
	"time"
)

// What follows ends what a tool is doing as Fatal ends a test: whatever cannot
// be done ends the whole case, and what it has begun is ended by its deferred
// calls. Like that it is for the goroutine alone that called Try.

// stop is why a case cannot go on.
type stop struct{ error }

// Try runs a case. The error says why it could not go on.
func Try(f func()) (err error) {
	defer func() {
		switch why := recover().(type) {
		case nil:
		case stop:
			err = why.error
		default:
			panic(why)
		}
	}()
	f()
	return nil
}

// Check ends the case unless err is nil.
func Check(err error) {
	if err != nil {
		panic(stop{err})
	}
}

// Fail ends the case.
func Fail(format string, args ...any) { Check(fmt.Errorf(format, args...)) }

// Must is v, unless there is an error.
func Must[T any](v T, err error) T {
	Check(err)
	return v
}

// Pause waits, and ends the case when the run has been cut short.
func Pause(ctx context.Context, d time.Duration) {
	if !Sleep(ctx, d) {
		Check(ctx.Err())
	}
}
