package main

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge/edgetest/issuer"
	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// chained is what a call of P2 goes through.
const chained = "through a verified token (in cache), 20 policies, a rate limit, a guest, an injected header, audit to a file and metrics"

// injected is the credential of that edge.
var injected = &v1beta1.OutgoingStrategy{Type: v1beta1.StrategyHeaderInjection, HeaderInjection: &v1beta1.ConfigHeaderInjection{HeaderName: "X-Api-Key", HeaderValue: "bench"}}

// chain is an edge whose calls go through all of that, with the injected header or with
// another credential.
func chain(s *issuer.Issuer, credential *v1beta1.OutgoingStrategy, backend, auditLog string) kit.Plan {
	p := guarded(s, backend, ", "+authz(append(idlePolicies(19), `permit(principal, action, resource == Tool::"echo");`))).
		Through("wasm", "{inline: "+base64.StdEncoding.EncodeToString(guestModule())+"}")
	p.Config = outgoingAuth(credential) + fmt.Sprintf(`    rateLimiting: {shared: {maxTokens: 1000000000, refillPeriod: 1s}}
    audit: {enabled: true, logFile: %q}
    telemetry: {enablePrometheusMetricsPath: true}
`, auditLog)
	return p
}

// policed is spec.incomingAuth of an edge that asks nobody who they are, and
// policies what they may.
func policed(policies []string) string { return "{type: anonymous, " + authz(policies) + "}" }

// authz is a member of spec.incomingAuth, YAML in flow style.
func authz(policies []string) string {
	return "authzConfig: {type: inline, inline: {policies: ['" + strings.Join(policies, "', '") + "']}}"
}

// idlePolicies are policies that say nothing about what clients of the benchmark
// do: one in three is about another tool, another client, another group.
func idlePolicies(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf([]string{
			`permit(principal, action == Action::"call_tool", resource == Tool::"other-%d");`,
			`permit(principal == Client::"other-%d", action, resource);`,
			`permit(principal in THVGroup::"other-%d", action, resource);`,
		}[i%3], i)
	}
	return all
}

// refused is the byte that the guest looks for in what it is shown of a call; it
// denies the call that has it. No call of the benchmark does.
const refused = '~'

// guestModule is a guest that is asked about every call and shown its tool, its
// principal and its argument "text", of which it reads every byte. It is
// written here as machines read it, so that no compiler is needed.
func guestModule() []byte {
	return moduleWith(oneLocal, // weir_on_call_request(len): for i = 0; i < len; i++ { if buffer[i] == refused { return deny } }; return 0
		[]byte{0x02, 0x40, 0x03, 0x40},          // block, loop
		[]byte{0x20, 1, 0x20, 0, 0x4f, 0x0d, 1}, // leave the block when i >= len
		[]byte{0x20, 1, 0x2d, 0}, leb(bufferAt), // buffer[i]
		constant(0x41, refused), []byte{0x46}, // is it?
		[]byte{0x04, 0x40}, returned(denyAt, denial()), // if so
		[]byte{0x0f, 0x0b},                           // return
		[]byte{0x20, 1, 0x41, 1, 0x6a, 0x21, 1},      // i++
		[]byte{0x0c, 0, 0x0b, 0x0b}, []byte{0x42, 0}) // again; end, end; 0
}

// idleModule is a guest that is asked about every call and has nothing to say.
func idleModule() []byte { return moduleWith(noLocals, []byte{0x42, 0}) }

// Where the modules have what.
const initAt, denyAt, bufferAt, bufferMax = 16, 128, 1 << 10, 48 << 10

var noLocals, oneLocal = []byte{0}, []byte{1, 1, 0x7f} // an i32

// denial is Op{deny{text, code: invalid}}.
func denial() []byte {
	return record(1, record(9, append(record(4, []byte("that byte is refused")), 5<<3, 2)))
}

// returned is an instruction with the place of a record, i64.const.
func returned(at int, b []byte) []byte { return constant(0x42, int64(at)<<32|int64(len(b))) }

// moduleWith is a guest with a function weir_on_call_request(len).
func moduleWith(locals []byte, hook ...[]byte) []byte {
	const version = 1 << 16
	// Subscription{hook, field: tool, principal, selected, pointer}
	asked := record(1, append(append(record(1, []byte("on_call_request")), 5<<3, 1, 5<<3, 6, 5<<3, 9), record(7, []byte("/text"))...))
	deny := denial()
	function := func(locals []byte, code ...[]byte) []byte {
		return sized(slices.Concat(locals, slices.Concat(code...), []byte{0x0b}))
	}
	code := [][]byte{
		// weir_abi() = version
		function(noLocals, constant(0x41, version)),
		// weir_buf(min) = min > bufferMax ? 0 : bufferAt
		function(noLocals, []byte{0x20, 0}, constant(0x41, bufferMax), []byte{0x4b, 0x04, 0x7f, 0x41, 0, 0x05}, constant(0x41, bufferAt), []byte{0x0b}),
		// weir_init(len) = asked
		function(noLocals, returned(initAt, asked)),
		function(locals, hook...),
	}
	export := func(name string, kind, index byte) []byte { return append(sized([]byte(name)), kind, index) }
	data := func(at int, b []byte) []byte {
		return slices.Concat([]byte{0}, constant(0x41, int64(at)), []byte{0x0b}, sized(b))
	}
	return slices.Concat([]byte("\x00asm\x01\x00\x00\x00"),
		section(1, []byte{0x60, 0, 1, 0x7f}, []byte{0x60, 1, 0x7f, 1, 0x7f}, []byte{0x60, 1, 0x7f, 1, 0x7e}), // () i32, (i32) i32, (i32) i64
		section(3, []byte{0}, []byte{1}, []byte{2}, []byte{2}),
		section(5, []byte{0, 1}), // a page of memory
		section(7, export("memory", 2, 0), export("weir_abi", 0, 0), export("weir_buf", 0, 1), export("weir_init", 0, 2), export("weir_on_call_request", 0, 3)),
		section(10, code...),
		section(11, data(initAt, asked), data(denyAt, deny)))
}

// section is a part of a module: a list.
func section(id byte, items ...[]byte) []byte {
	return append([]byte{id}, sized(append(leb(int64(len(items))), slices.Concat(items...)...))...)
}

// record is a field of a record: number, length, content.
func record(field byte, content []byte) []byte {
	return append([]byte{field<<3 | 2}, sized(content)...)
}

// constant is an instruction with a signed number.
func constant(op byte, v int64) []byte {
	b := []byte{op}
	for ; v >= 0x40; v >>= 7 { // none is below zero
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}

// leb is a number that is not below zero, in seven bits a byte.
func leb(v int64) (b []byte) {
	for ; v >= 0x80; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}

// sized is bytes behind their number.
func sized(b []byte) []byte { return append(leb(int64(len(b))), b...) }
