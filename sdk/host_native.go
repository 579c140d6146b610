//go:build !wasip1

package weir

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"regexp"
	"strconv"

	"github.com/weir-edge/weir/sdk/abi"
)

// Native is the host outside of WebAssembly. Package weirtest is how tests use
// it. The guest is one for the whole program, so calls must not overlap.
type Native struct {
	Lines  []string          // of the log, each LEVEL: TEXT
	Level  int               // the least level that is written
	Millis int64             // the time
	Nanos  int64             // the monotonic time
	Rand   func([]byte)      // fills with random bytes; nil when it is not granted
	Keys   map[string]string // secrets; nil when they are not granted
	Store  map[string][]byte // nil when it is not granted; lifetimes are only checked
	Counts map[string]int64  // counters and gauges; nil when they are not granted
	Events []string          // that were told of, each NAME: DATA; nil when they are not granted

	Fetch func(Outbound) (Inbound, error)                               // answers requests to others; nil when it is not granted
	Tools func(name, arguments string) (result, failed JSON, err error) // answers calls of tools; nil when it is not granted

	answer []byte // the last of others
}

// native is the host of the call under way.
var native = &Native{}

// Init is weir_init. What was registered by an earlier Init is forgotten;
// what was registered before the first one stays.
func (n *Native) Init(record []byte) []byte {
	if registered == nil {
		registered = new([abi.Hooks]int)
		for hook, handlers := range guest.handlers {
			registered[hook] = len(handlers)
		}
		compiledFirst = len(compiled)
	}
	compiled = compiled[:compiledFirst]
	for hook := range guest.handlers {
		guest.handlers[hook] = guest.handlers[hook][:registered[hook]]
	}
	native = n
	return initialize(record)
}

// compiled are the patterns by their handles. Those of before the first Init stay.
var (
	compiled      []*regexp.Regexp
	compiledFirst int
	asked         bool // a hook is
)

// registered is how many functions each hook had before the first Init.
var registered *[abi.Hooks]int

// Ask is weir_<hook>. The record is zeroed; the result is valid until the next
// call.
func (n *Native) Ask(hook abi.Hook, record []byte) []byte {
	native, asked = n, true
	defer func() { asked = false }()
	out := dispatch(hook, record)
	clear(record)
	return out
}

func hostLog(level int, text string) {
	if level >= native.Level {
		native.Lines = append(native.Lines, [...]string{"debug", "info", "warn", "error"}[level]+": "+text[:min(len(text), 4<<10)])
	}
}

func hostLogLevel() int { return native.Level }
func hostNow() int64    { return native.Millis }
func hostMono() int64   { return native.Nanos }

func hostRandom(b []byte) int32 {
	switch {
	case native.Rand == nil:
		return abi.ErrDenied
	case len(b) > 4<<10:
		return abi.ErrLimit
	}
	native.Rand(b)
	return 0
}

func hostSHA256(b []byte, sum *[32]byte) { *sum = sha256.Sum256(b) }

func hostHMAC(key string, b []byte, sum *[32]byte) int64 {
	secret, ok := native.Keys[key]
	switch {
	case native.Keys == nil:
		return abi.ErrDenied
	case !ok:
		return abi.ErrNotFound
	}
	h := hmac.New(sha256.New, []byte(secret))
	h.Write(b)
	h.Sum(sum[:0])
	return int64(len(sum))
}

func keyFails(key string) int64 {
	switch {
	case native.Store == nil:
		return abi.ErrDenied
	case key == "" || len(key) > 256:
		return abi.ErrArgument
	}
	return 0
}

func hostGet(key string, b []byte) int64 {
	if n := keyFails(key); n != 0 {
		return n
	}
	value, ok := native.Store[key]
	if !ok {
		return abi.ErrNotFound
	}
	if len(value) <= len(b) {
		copy(b, value)
	}
	return int64(len(value))
}

const day = 24 * 60 * 60 * 1000

func hostSet(key string, b []byte, millis int64) int64 {
	if n := keyFails(key); n != 0 {
		return n
	}
	switch {
	case millis <= 0 || millis > day:
		return abi.ErrArgument
	case len(b) > 64<<10:
		return abi.ErrLimit
	}
	native.Store[key] = append([]byte{}, b...)
	return 0
}

func hostIncr(key string, n, millis int64) int64 {
	if f := keyFails(key); f != 0 {
		return f
	}
	if n < 0 || millis <= 0 || millis > day {
		return abi.ErrArgument
	}
	if old := native.Store[key]; len(old) == 8 {
		n += int64(binary.LittleEndian.Uint64(old))
	}
	native.Store[key] = binary.LittleEndian.AppendUint64(nil, uint64(n))
	return n
}

// outside keeps an answer, and writes it where there is room.
func outside(answer []byte, err error, out []byte) int64 {
	native.answer = nil
	var f Failure
	switch {
	case errors.As(err, &f):
		return int64(f)
	case err != nil:
		return abi.ErrUnavailable
	}
	native.answer = answer
	return hostAnswer(out)
}

func hostFetch(record, out []byte) int64 {
	if native.Fetch == nil {
		return abi.ErrDenied
	}
	q, _ := abi.ReadHTTPRequest(record)
	if q.Method == "" {
		q.Method = "GET"
	}
	in, err := native.Fetch(q)
	return outside(in.Append(nil), err, out)
}

func hostTool(record, out []byte) int64 {
	if native.Tools == nil {
		return abi.ErrDenied
	}
	result, failed, err := native.Tools(string(first(record, abi.ToolName)), string(first(record, abi.ToolArguments)))
	if failed != "" {
		return outside(abi.AppendString(nil, abi.ToolError, string(failed)), err, out)
	}
	return outside(abi.AppendString(nil, abi.ToolResult, string(result)), err, out)
}

func hostAnswer(out []byte) int64 {
	if native.answer == nil {
		return abi.ErrNotFound
	}
	if len(native.answer) <= len(out) {
		copy(out, native.answer)
	}
	return int64(len(native.answer))
}

func hostEmit(name, data string) int32 {
	switch {
	case native.Events == nil:
		return abi.ErrDenied
	case !named(name):
		return abi.ErrArgument
	case len(data) > 4<<10:
		return abi.ErrLimit
	}
	native.Events = append(native.Events, name+": "+data)
	return 0
}

// named says whether an event or a metric can have the name.
func named(name string) bool {
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return name != "" && len(name) <= 64
}

func hostMetric(name string, kind int, delta int64) int32 {
	if native.Counts == nil {
		return abi.ErrDenied
	}
	if !named(name) {
		return abi.ErrArgument
	}
	if kind == abi.MetricCounter {
		delta += native.Counts[name]
	}
	native.Counts[name] = delta
	return 0
}

func hostPattern(text string) int32 {
	switch {
	case asked:
		return abi.ErrDenied
	case len(text) > 1<<10 || len(compiled) == 64:
		return abi.ErrLimit
	}
	re, err := regexp.Compile(text)
	if err != nil {
		hostLog(abi.LevelError, "pattern "+strconv.Quote(text)+": "+err.Error())
		return abi.ErrArgument
	}
	compiled = append(compiled, re)
	return int32(len(compiled) - 1)
}

// patternOf returns a pattern by its handle, nil where there is none.
func patternOf(handle int32) *regexp.Regexp {
	if handle < 0 || int(handle) >= len(compiled) {
		return nil
	}
	return compiled[handle]
}

func hostMatch(handle int32, text string) int32 {
	re := patternOf(handle)
	switch {
	case re == nil:
		return abi.ErrArgument
	case re.MatchString(text):
		return 1
	}
	return 0
}

func hostFind(handle int32, text string, out []byte) int64 {
	re := patternOf(handle)
	if re == nil {
		return abi.ErrArgument
	}
	all := re.FindAllStringIndex(text, -1)
	for i, at := range all[:min(len(all), len(out)/8)] {
		binary.LittleEndian.PutUint32(out[8*i:], uint32(at[0]))
		binary.LittleEndian.PutUint32(out[8*i+4:], uint32(at[1]))
	}
	return int64(len(all))
}

func hostReplace(handle int32, text, with string, out []byte) int64 {
	re := patternOf(handle)
	switch {
	case re == nil:
		return abi.ErrArgument
	case !re.MatchString(text):
		return abi.ErrNotFound
	}
	replaced := re.ReplaceAllLiteralString(text, with)
	if len(replaced) <= len(out) {
		copy(out, replaced)
	}
	return int64(len(replaced))
}
