package starlark

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.starlark.net/starlark"

	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// hostFunction is a builtin that asks the host.
type hostFunction struct {
	name  string
	grant string // that it stands behind; "" for none
	load  bool   // it may be called while the text runs for the first time
	call  func(c *call, t *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error)
}

func hostFunctions() []hostFunction {
	return []hostFunction{
		{"call_tool", abi.GrantTools, false, callTool},
		{"count", abi.GrantMetrics, false, count},
		{"debug", "", true, line(slog.LevelDebug)},
		{"emit", abi.GrantEvents, false, emit},
		{"error", "", true, line(slog.LevelError)},
		{"fetch", abi.GrantHTTP, false, fetch},
		{"gauge", abi.GrantMetrics, false, gauge},
		{"granted", "", true, granted},
		{"hmac", abi.GrantKeys, false, hmacOf},
		{"info", "", true, line(slog.LevelInfo)},
		{"kv_add", abi.GrantKV, false, kvAdd},
		{"kv_get", abi.GrantKV, false, kvGet},
		{"kv_set", abi.GrantKV, false, kvSet},
		{"log_level", "", true, logLevel},
		{"monotonic", "", false, monotonic},
		{"now_millis", "", false, nowMillis},
		{"random", abi.GrantRandom, false, random},
		{"raw_at", "", true, rawAt},
		{"raw_json", "", true, asRaw},
		{"sha256", "", true, checksum},
		{"warn", "", true, line(slog.LevelWarn)},
	}
}

// builtins are the names that a text has besides those of the language.
func builtins() []string {
	names := []string{"config_schema", "pattern", "subscribe"}
	for _, f := range hostFunctions() {
		names = append(names, f.name)
	}
	for _, o := range operations() {
		names = append(names, o.name)
	}
	return names
}

// grantOf is the grant that a builtin stands behind; "" for none.
func grantOf(name string) string {
	for _, f := range hostFunctions() {
		if f.name == name {
			return f.grant
		}
	}
	return ""
}

// builtin is a call of a builtin.
func (g *Guest) builtin(t *scripting.Task, name string, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	c := t.Local().(*call)
	if spec := g.operations[name]; spec != nil {
		return operate(t, spec, args, named)
	}
	switch name {
	case "subscribe", "config_schema", "pattern":
		if c.loading == nil && name == "pattern" {
			return nil, scripting.Raise("", scripting.Fault{Message: "pattern: only while the text runs for the first time: call it at the top", Code: abi.ErrDenied})
		}
		if c.loading == nil {
			return nil, fmt.Errorf("%s: only while the text runs for the first time: call it at the top", name)
		}
		switch name {
		case "subscribe":
			return c.loading.subscribe(t, args, named)
		case "config_schema":
			return c.loading.configSchema(t, args, named)
		}
		return c.loading.pattern(args, named)
	}
	f := g.functions[name]
	if c.loading != nil && !f.load {
		return nil, fmt.Errorf("%s: not while the text runs for the first time: call it in a function for a hook", name)
	}
	return f.call(c, t, args, named)
}

// failed is the error of a function of the host: attempt() catches it, with the code of the ABI.
func failed(name string, code int64) error {
	return scripting.Raise("", scripting.Fault{Message: name + ": " + why(code), Code: int(code)})
}

func why(code int64) string {
	switch code {
	case abi.ErrNotFound:
		return "not found"
	case abi.ErrDenied:
		return "not granted"
	case abi.ErrLimit:
		return "above the limit"
	case abi.ErrArgument:
		return "bad argument"
	case abi.ErrTimeout:
		return "no answer in time"
	case abi.ErrRefused:
		return "connection refused"
	case abi.ErrName:
		return "no such host"
	case abi.ErrTLS:
		return "TLS failed"
	}
	return "not available"
}

func line(level slog.Level) func(*call, *scripting.Task, starlark.Tuple, []starlark.Tuple) (starlark.Value, error) {
	return func(c *call, _ *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
		var text string
		if err := starlark.UnpackArgs(strings.ToLower(level.String()), args, named, "text", &text); err != nil {
			return nil, err
		}
		c.line(level, text)
		return starlark.None, nil
	}
}

// line writes a line of the log. What is said at the level error may be why the program gives up.
func (c *call) line(level slog.Level, text string) {
	c.guest.front.Line(level, []byte(text[:min(len(text), wasm.MaxLine)]))
}

func logLevel(c *call, _ *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	if err := starlark.UnpackArgs("log_level", args, named); err != nil {
		return nil, err
	}
	for i, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn} {
		if c.guest.binding.Log.Enabled(context.Background(), level) {
			return starlark.MakeInt(i), nil
		}
	}
	return starlark.MakeInt(abi.LevelError), nil
}

// granted tells whether the filter has a grant.
func granted(c *call, _ *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var name string
	if err := starlark.UnpackArgs("granted", args, named, "grant", &name); err != nil {
		return nil, err
	}
	return starlark.Bool(slices.Contains(c.guest.binding.Grants, name)), nil
}

func nowMillis(_ *call, _ *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	if err := starlark.UnpackArgs("now_millis", args, named); err != nil {
		return nil, err
	}
	return starlark.MakeInt64(time.Now().UnixMilli()), nil
}

func monotonic(c *call, _ *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	if err := starlark.UnpackArgs("monotonic", args, named); err != nil {
		return nil, err
	}
	return starlark.MakeInt64(int64(time.Since(c.guest.opened))), nil
}

// random returns random bytes as hexadecimal digits.
func random(_ *call, t *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var n int
	if err := starlark.UnpackArgs("random", args, named, "n", &n); err != nil {
		return nil, err
	}
	if n < 0 || n > wasm.MaxRandom {
		return nil, failed("random", abi.ErrLimit)
	}
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return t.Text(hex.EncodeToString(b))
}

// checksum is sha256: hexadecimal digits of the checksum of a text.
func checksum(_ *call, t *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var v starlark.Value
	if err := starlark.UnpackArgs("sha256", args, named, "text", &v); err != nil {
		return nil, err
	}
	text, err := bytesOf(v)
	if err == nil {
		err = t.Work(len(text) / 16)
	}
	if err != nil {
		return nil, fmt.Errorf("sha256: %w", err)
	}
	sum := sha256.Sum256([]byte(text))
	return t.Text(hex.EncodeToString(sum[:]))
}

// hmacOf is hmac: hexadecimal digits of the HMAC-SHA256 of a text under a key of the filter.
func hmacOf(c *call, t *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var (
		name string
		v    starlark.Value
	)
	if err := starlark.UnpackArgs("hmac", args, named, "key", &name, "text", &v); err != nil {
		return nil, err
	}
	text, err := bytesOf(v)
	if err == nil {
		err = t.Work(len(text) / 16)
	}
	if err != nil {
		return nil, fmt.Errorf("hmac: %w", err)
	}
	key, ok := c.guest.binding.Keys[name]
	if !ok {
		return nil, failed("hmac", abi.ErrNotFound)
	}
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(text))
	return t.Text(hex.EncodeToString(h.Sum(nil)))
}

// key returns the name in the store for a name of the program.
func (c *call) key(name string) (string, bool) {
	return wasm.KeyPrefix + c.guest.binding.Name + ":" + name, name != "" && len(name) <= wasm.MaxKey && utf8.ValidString(name)
}

// wait runs something that waits for the store. That time is not the program's, but has a
// bound of its own.
func (c *call) wait(name string, f func(context.Context) error) error {
	switch {
	case c.guest.binding.Store == nil || c.waitedOn >= wasm.StoreWait:
		return failed(name, abi.ErrUnavailable)
	case c.stored == wasm.MaxStored:
		return failed(name, abi.ErrLimit)
	}
	c.stored++
	resume, start := c.clock.Pause(), time.Now()
	ctx, cancel := context.WithTimeout(c.ctx, min(wasm.HostWait, wasm.StoreWait-c.waitedOn))
	err := f(ctx)
	cancel()
	c.waitedOn += time.Since(start)
	resume()
	if err != nil {
		return failed(name, c.guest.front.Unstored(err))
	}
	return nil
}

func kvGet(c *call, t *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var name string
	if err := starlark.UnpackArgs("kv_get", args, named, "key", &name); err != nil {
		return nil, err
	}
	key, ok := c.key(name)
	if !ok {
		return nil, failed("kv_get", abi.ErrArgument)
	}
	var value []byte
	if err := c.wait("kv_get", func(ctx context.Context) (err error) { value, err = c.guest.binding.Store.Get(ctx, key); return }); err != nil {
		return nil, err
	}
	if value == nil {
		return starlark.None, nil
	}
	return t.Text(string(value))
}

// lasting is how long a value lasts.
func lasting(ms int64) (time.Duration, bool) {
	if ms <= 0 || ms > int64(wasm.MaxTTL/time.Millisecond) {
		return 0, false
	}
	return time.Duration(ms) * time.Millisecond, true
}

func kvSet(c *call, _ *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var (
		name string
		v    starlark.Value
		ms   int64
	)
	if err := starlark.UnpackArgs("kv_set", args, named, "key", &name, "value", &v, "ttl_ms", &ms); err != nil {
		return nil, err
	}
	value, err := bytesOf(v)
	if err != nil {
		return nil, fmt.Errorf("kv_set: %w", err)
	}
	key, ok := c.key(name)
	ttl, valid := lasting(ms)
	switch {
	case !ok || !valid:
		return nil, failed("kv_set", abi.ErrArgument)
	case len(value) > wasm.MaxValue:
		return nil, failed("kv_set", abi.ErrLimit)
	}
	if err := c.wait("kv_set", func(ctx context.Context) error { return c.guest.binding.Store.Put(ctx, key, []byte(value), ttl) }); err != nil {
		return nil, err
	}
	return starlark.None, nil
}

// kvAdd adds to a number of 8 bytes, little end first, and returns the sum, which stops at 2^63-1.
func kvAdd(c *call, _ *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var (
		name      string
		delta, ms int64
	)
	if err := starlark.UnpackArgs("kv_add", args, named, "key", &name, "n", &delta, "ttl_ms", &ms); err != nil {
		return nil, err
	}
	key, ok := c.key(name)
	ttl, valid := lasting(ms)
	if !ok || !valid || delta < 0 {
		return nil, failed("kv_add", abi.ErrArgument)
	}
	var sum uint64
	err := c.wait("kv_add", func(ctx context.Context) error {
		return c.guest.binding.Store.Update(ctx, key, ttl, func(old []byte) ([]byte, error) {
			sum = 0
			if len(old) == 8 {
				sum = binary.LittleEndian.Uint64(old)
			}
			if sum += uint64(delta); sum > 1<<63-1 {
				sum = 1<<63 - 1
			}
			return binary.LittleEndian.AppendUint64(nil, sum), nil
		})
	})
	if err != nil {
		return nil, err
	}
	return starlark.MakeUint64(sum), nil
}

func count(c *call, _ *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	name, delta := "", int64(1)
	if err := starlark.UnpackArgs("count", args, named, "name", &name, "delta?", &delta); err != nil {
		return nil, err
	}
	return c.metric("count", name, false, delta)
}

func gauge(c *call, _ *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	name, value := "", int64(0)
	if err := starlark.UnpackArgs("gauge", args, named, "name", &name, "value", &value); err != nil {
		return nil, err
	}
	return c.metric("gauge", name, true, value)
}

func (c *call) metric(function, name string, gauge bool, delta int64) (starlark.Value, error) {
	if !isName(name) {
		return nil, failed(function, abi.ErrArgument)
	}
	if f := c.guest.binding.Metric; f != nil {
		f(name, gauge, delta)
	}
	return starlark.None, nil
}

// isName reports whether a metric or an event may have a name.
func isName(name string) bool {
	return name != "" && len(name) <= wasm.MaxName && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

func emit(c *call, t *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var (
		name string
		v    starlark.Value = starlark.None
		data []byte
	)
	if err := starlark.UnpackArgs("emit", args, named, "name", &name, "data?", &v); err != nil {
		return nil, err
	}
	if v != starlark.None {
		var err error
		if data, err = jsonOf(t, v); err != nil {
			return nil, fmt.Errorf("emit: %w", err)
		}
	}
	f := c.guest.binding.Emit
	code := int64(abi.ErrDenied)
	switch {
	case f == nil || c.hook == abi.OnEvent: // which would be told of it again
	case len(data) > wasm.MaxEvent:
		code = abi.ErrLimit
	case !isName(name):
		code = abi.ErrArgument
	default:
		code = f(c.ctx, c.hook, name, data)
	}
	if code < 0 {
		return nil, failed("emit", code)
	}
	return starlark.None, nil
}

// outside asks others, and returns their answer. The time that takes is not the program's, but
// has a bound of its own.
func (c *call) outside(t *scripting.Task, name string, ask func(context.Context, []byte) ([]byte, int64), request []byte) ([]byte, error) {
	switch {
	case !c.hook.MayBlock():
		return nil, fmt.Errorf("%s: nothing waits for others at %v: call it at another hook, such as on_call_request", name, c.hook)
	case !c.guest.blocking[c.hook]:
		return nil, fmt.Errorf("%s: it waits for others, which the subscription to %v does not say: subscribe with blocking=True", name, c.hook)
	case ask == nil:
		return nil, failed(name, abi.ErrDenied)
	case len(request) > wasm.MaxRequest || c.asked == wasm.MaxOutside || c.waited >= wasm.MaxWait:
		return nil, failed(name, abi.ErrLimit)
	}
	c.asked++
	resume, start := c.clock.Pause(), time.Now()
	ctx, cancel := context.WithTimeout(c.ctx, wasm.MaxWait-c.waited)
	answer, code := ask(ctx, request)
	cancel()
	c.waited += time.Since(start)
	resume()
	switch {
	case c.ctx.Err() != nil:
		return nil, t.End(c.canceled())
	case code < 0:
		return nil, failed(name, code)
	case len(answer) > wasm.MaxAnswer:
		return nil, failed(name, abi.ErrLimit)
	}
	return answer, t.Work(len(answer) / 16)
}

// fetch sends an HTTP request.
func fetch(c *call, t *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var (
		url, method string
		body        starlark.Value = starlark.String("")
		headers     *starlark.Dict
		ms          uint
	)
	if err := starlark.UnpackArgs("fetch", args, named, "url", &url, "method?", &method, "headers?", &headers, "body?", &body, "timeout_ms?", &ms); err != nil {
		return nil, err
	}
	var record []byte
	if method != "" {
		record = abi.AppendString(record, abi.FetchMethod, method)
	}
	record = abi.AppendString(record, abi.FetchURL, url)
	if headers != nil {
		for k, v := range headers.Entries() {
			name, ok := starlark.AsString(k)
			value, also := starlark.AsString(v)
			if !ok || !also {
				return nil, errors.New("fetch: headers: names and values are str")
			}
			record = abi.AppendBytes(record, abi.FetchHeader, abi.AppendString(abi.AppendString(nil, abi.HeaderName, name), abi.HeaderValue, value))
		}
	}
	text, err := bytesOf(body)
	if err != nil {
		return nil, fmt.Errorf("fetch: body: %w", err)
	}
	record = abi.AppendString(record, abi.FetchBody, text)
	if ms > 0 {
		record = abi.AppendUint(record, abi.FetchTimeout, uint64(ms))
	}
	answer, err := c.outside(t, "fetch", c.guest.binding.Fetch, record)
	if err != nil {
		return nil, err
	}
	a := &fetched{headers: starlark.NewDict(8)}
	r := abi.Reader{B: answer}
	for r.Next() {
		switch r.Num {
		case abi.FetchedStatus:
			a.status = int(r.Uint)
		case abi.FetchedHeader:
			name, value := two(r.Data, abi.HeaderName, abi.HeaderValue)
			if _, there, _ := a.headers.Get(starlark.String(name)); !there {
				_ = a.headers.SetKey(starlark.String(name), starlark.String(value)) // a text hashes
			}
		case abi.FetchedBody:
			a.body = string(r.Data)
		}
	}
	return a, t.Allocate(len(answer) + 1024)
}

// fetched is the answer to a request.
type fetched struct {
	status  int
	headers *starlark.Dict
	body    string
}

func (a *fetched) String() string        { return fmt.Sprintf("answer %d", a.status) }
func (a *fetched) Type() string          { return "answer" }
func (a *fetched) Freeze()               { a.headers.Freeze() }
func (a *fetched) Truth() starlark.Bool  { return starlark.True }
func (a *fetched) Hash() (uint32, error) { return 0, errors.New("unhashable type: answer") }

// AttrNames returns the names of its fields.
func (a *fetched) AttrNames() []string { return []string{"body", "headers", "status"} }

// Attr returns a field.
func (a *fetched) Attr(name string) (starlark.Value, error) {
	switch name {
	case "status":
		return starlark.MakeInt(a.status), nil
	case "headers":
		return a.headers, nil
	case "body":
		return starlark.String(a.body), nil
	}
	return nil, nil
}

// callTool calls a tool for the client whose message the program is asked about, and returns
// the whole result.
func callTool(c *call, t *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var name string
	arguments := starlark.NewDict(0)
	if err := starlark.UnpackArgs("call_tool", args, named, "name", &name, "args?", &arguments); err != nil {
		return nil, err
	}
	text, err := jsonOf(t, arguments)
	if err != nil {
		return nil, fmt.Errorf("call_tool: args: %w", err)
	}
	record := abi.AppendBytes(abi.AppendString(nil, abi.ToolName, name), abi.ToolArguments, text)
	answer, err := c.outside(t, "call_tool", c.guest.binding.Tool, record)
	if err != nil {
		return nil, err
	}
	r := abi.Reader{B: answer}
	for r.Next() {
		switch r.Num {
		case abi.ToolResult:
			return t.Value(r.Data)
		case abi.ToolError:
			return nil, toolFailed(t, name, r.Data)
		}
	}
	return nil, failed("call_tool", abi.ErrUnavailable)
}

// toolFailed is the error of a call that got an error object.
func toolFailed(t *scripting.Task, name string, object []byte) error {
	f := scripting.Fault{Message: fmt.Sprintf("tool %q: failed", name)}
	v, err := t.Value(object)
	if err != nil {
		return err
	}
	if d, ok := v.(*starlark.Dict); ok {
		if m, _, _ := d.Get(starlark.String("message")); m != nil {
			if text, ok := starlark.AsString(m); ok {
				f.Message = fmt.Sprintf("tool %q: %s", name, scripting.Clean(text))
			}
		}
		if n, _, _ := d.Get(starlark.String("code")); n != nil {
			f.Code, _ = starlark.AsInt32(n)
		}
	}
	return scripting.Raise(name, f)
}
