package weir

import "github.com/weir-edge/weir/sdk/abi"

// Failure is what a host function answers when it cannot do what it is asked.
type Failure int

// The failures.
const (
	ErrNotFound    Failure = abi.ErrNotFound
	ErrDenied      Failure = abi.ErrDenied
	ErrLimit       Failure = abi.ErrLimit
	ErrArgument    Failure = abi.ErrArgument
	ErrUnavailable Failure = abi.ErrUnavailable

	// Of Fetch: why there is no answer. Each of them is an ErrUnavailable, too, to
	// errors.Is.
	ErrTimeout Failure = abi.ErrTimeout
	ErrRefused Failure = abi.ErrRefused
	ErrName    Failure = abi.ErrName
	ErrTLS     Failure = abi.ErrTLS
)

// Is reports whether a failure is of the kind of another.
func (f Failure) Is(target error) bool {
	return target == ErrUnavailable && f <= ErrTimeout && f >= ErrTLS
}

func (f Failure) Error() string {
	switch f {
	case ErrNotFound:
		return "not found"
	case ErrDenied:
		return "not granted"
	case ErrLimit:
		return "above the limit"
	case ErrArgument:
		return "bad argument"
	case ErrUnavailable:
		return "not available"
	case ErrTimeout:
		return "no answer in time"
	case ErrRefused:
		return "connection refused"
	case ErrName:
		return "no such host"
	case ErrTLS:
		return "TLS failed"
	}
	return "host function failed"
}

func failure(n int64) error {
	if n < 0 {
		return Failure(n)
	}
	return nil
}

// Debug writes a line of the log that only matters to whoever looks for it.
func Debug(text string) { hostLog(abi.LevelDebug, text) }

// Info writes a line of the log. Lines hold at most 4 KiB; there are at most
// 64 a second, unless the operator set another number.
func Info(text string) { hostLog(abi.LevelInfo, text) }

// Warn writes a line of the log that somebody should look at.
func Warn(text string) { hostLog(abi.LevelWarn, text) }

// Error writes a line of the log about what does not work.
func Error(text string) { hostLog(abi.LevelError, text) }

// LogLevel is the least level that is written: abi.LevelDebug to
// abi.LevelError. A guest need not make lines below it.
func LogLevel() int { return hostLogLevel() }

// NowMillis is the time, in milliseconds since 1970 UTC.
func NowMillis() int64 { return hostNow() }

// Monotonic is a time in nanoseconds that never goes backwards.
func Monotonic() int64 { return hostMono() }

// Random fills b, of at most 4096 bytes, with random bytes. It needs the grant
// random. Random numbers of the standard library are the same in all instances.
func Random(b []byte) error { return failure(int64(hostRandom(b))) }

// SHA256 returns the checksum of bytes. The host computes it, which is faster
// than the guest.
func SHA256(b []byte) (sum [32]byte) {
	hostSHA256(b, &sum)
	return sum
}

// HMAC returns the HMAC-SHA256 of bytes under the secret that the operator
// granted by the name key. It needs the grant keys. The guest never sees the
// secret.
func HMAC(key string, b []byte) (sum [32]byte, err error) {
	return sum, failure(hostHMAC(key, b, &sum))
}

// KVGet appends the value of a key to b. It fails with ErrNotFound where there
// is none. It needs the grant kv.
func KVGet(key string, b []byte) ([]byte, error) {
	for {
		n := hostGet(key, b[len(b):cap(b)])
		if n < 0 {
			return b, Failure(n)
		}
		if int(n) <= cap(b)-len(b) {
			return b[:len(b)+int(n)], nil
		}
		grown := make([]byte, len(b), len(b)+int(n))
		copy(grown, b)
		b = grown
	}
}

// KVSet sets the value of a key, at most 64 KiB, for at most 24 hours. It needs
// the grant kv.
func KVSet(key string, value []byte, millis int64) error {
	return failure(hostSet(key, value, millis))
}

// KVAdd adds n, which is not below zero, to a number in one step, and returns
// the sum. The number lasts for the time given, which each call begins anew. It
// needs the grant kv.
func KVAdd(key string, n, millis int64) (int64, error) {
	sum := hostIncr(key, n, millis)
	return max(sum, 0), failure(sum)
}

// Count adds to a counter. Names have at most 64 of a-z, 0-9 and _. It needs
// the grant metrics.
func Count(name string, delta int64) error {
	return failure(int64(hostMetric(name, abi.MetricCounter, delta)))
}

// Gauge sets a gauge. It needs the grant metrics.
func Gauge(name string, value int64) error {
	return failure(int64(hostMetric(name, abi.MetricGauge, value)))
}
