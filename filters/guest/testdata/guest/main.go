// Command guest is a module that does at each hook what its configuration says:
// {"rules":"…"}, with a rule on each line.
//
//	sub|HOOK|LIST=VALUE,VALUE|…    subscribe; lists are method, tool, backend, header, pointer, claim, field, varies, cache, blocking, hold
//	HOOK|CONDITION|OP|ARGUMENT|…   an operation, or trap, loop, work, shout, repeat, bad or stash
//
// A condition is *, or PLACE=TEXT or PLACE~TEXT for what is equal to or has the
// text; PLACE is as in arguments, where $PLACE stands for what the input has:
// tool, backend, session, method, subject, tenant, groups, args, result, error,
// carry, item, claims, issuer, event, path, status, from, header:NAME, selected:N, claim:N, attrs,
// count.
package main

import (
	"strconv"
	"strings"
	"unsafe"

	"github.com/weir-edge/weir/sdk/abi"
)

func main() {}

//go:wasmimport weir_v1 log
func log(level uint32, p unsafe.Pointer, n uint32)

var (
	buffer, output []byte
	rules          [][]string
	count          int
	stash          string
	worked         uint64
)

//go:wasmexport weir_abi
func version() uint32 { return abi.Version }

//go:wasmexport weir_buf
func buf(n uint32) unsafe.Pointer {
	if uint32(len(buffer)) < n {
		buffer = make([]byte, n)
	}
	return unsafe.Pointer(unsafe.SliceData(buffer))
}

//go:wasmexport weir_init
func start(n uint32) uint64 {
	config := ""
	r := abi.Reader{B: buffer[:n]}
	for r.Next() {
		if r.Num == abi.InitConfig {
			config = string(r.Data)
		}
	}
	_, text, _ := strings.Cut(config, `"rules":`)
	if i := strings.LastIndexByte(text, '"'); i >= 0 {
		text = text[:i+1]
	}
	text, err := strconv.Unquote(strings.TrimSpace(text))
	if err != nil {
		return give(abi.AppendString(output[:0], abi.InitError, "config: rules is no string"))
	}
	var subs []string
	made := map[string][]byte{}
	for _, line := range strings.Split(text, "\n") {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) < 2 {
			continue
		}
		if f[0] == "refuse" {
			return give(abi.AppendString(output[:0], abi.InitError, f[1]))
		}
		hook := f[0]
		if hook == "sub" {
			hook = f[1]
		} else {
			rules = append(rules, f)
		}
		if _, ok := made[hook]; !ok {
			subs = append(subs, hook)
			made[hook] = abi.AppendString(nil, abi.SubHook, hook)
		}
		if f[0] != "sub" {
			continue
		}
		for _, list := range f[2:] {
			name, values, _ := strings.Cut(list, "=")
			for _, v := range strings.Split(values, ",") {
				if number := map[string]int{"varies": abi.SubVariesBy, "cache": abi.SubCache, "field": abi.SubField, "blocking": abi.SubBlocking, "hold": abi.SubHold}[name]; number != 0 {
					n, _ := strconv.Atoi(v)
					made[hook] = abi.AppendUint(made[hook], number, uint64(n))
					continue
				}
				field := map[string]int{"method": abi.SubMethod, "tool": abi.SubTool, "backend": abi.SubBackend, "header": abi.SubHeader, "pointer": abi.SubPointer, "claim": abi.SubClaim}[name]
				made[hook] = abi.AppendString(made[hook], field, v)
			}
		}
	}
	out := output[:0]
	for _, hook := range subs {
		out = abi.AppendBytes(out, abi.InitSubscription, made[hook])
	}
	return give(out)
}

// input is a record, taken apart.
type input struct {
	fields             map[int]string
	subject, tenant    string
	groups             []string
	headers            map[string]string
	selected, claimed  []string
	attrs              []string // NAME:JSON
	names, backs, json []string // of items
	got                string   // from others
}

// outside does what asks others, in a module that is built with the tag caller. It
// reports false for anything else.
var outside func(in *input, f []string, arg func(int) string) bool

func read(b []byte) *input {
	in := &input{fields: map[int]string{}, headers: map[string]string{}}
	r := abi.Reader{B: b}
	for r.Next() {
		switch r.Num {
		case abi.CallPrincipal:
			p := abi.Reader{B: r.Data}
			for p.Next() {
				switch p.Num {
				case abi.PrincipalSubject:
					in.subject = string(p.Data)
				case abi.PrincipalTenant:
					in.tenant = string(p.Data)
				case abi.PrincipalGroup:
					in.groups = append(in.groups, string(p.Data))
				}
			}
		case abi.CallHeader:
			h, name, value := abi.Reader{B: r.Data}, "", ""
			for h.Next() {
				if h.Num == abi.HeaderName {
					name = string(h.Data)
				} else {
					value = string(h.Data)
				}
			}
			in.headers[name] = value
		case abi.CallSelected:
			in.selected = append(in.selected, string(r.Data))
		case abi.CallClaim:
			in.claimed = append(in.claimed, string(r.Data))
		case abi.CallAttr:
			a, name, value := abi.Reader{B: r.Data}, "", ""
			for a.Next() {
				if a.Num == abi.AttrName {
					name = string(a.Data)
				} else {
					value = string(a.Data)
				}
			}
			in.attrs = append(in.attrs, name+":"+value)
		case abi.CallItem:
			var parts [4]string
			i := abi.Reader{B: r.Data}
			for i.Next() {
				parts[i.Num] = string(i.Data)
			}
			in.names, in.backs, in.json = append(in.names, parts[1]), append(in.backs, parts[2]), append(in.json, parts[3])
		case abi.CallStatus, abi.CallFrom:
			in.fields[r.Num] = strconv.FormatUint(r.Uint, 10)
		default:
			in.fields[r.Num] = string(r.Data)
		}
	}
	return in
}

// at is what the input has at a place; item is the index of the item at hand.
func (in *input) at(place string, item int) string {
	name, rest, _ := strings.Cut(place, ":")
	switch name {
	case "tool":
		return in.fields[abi.CallTool]
	case "backend":
		if item >= 0 {
			return in.backs[item]
		}
		return in.fields[abi.CallBackend]
	case "session":
		return in.fields[abi.CallSession]
	case "method":
		return in.fields[abi.CallMethod]
	case "args":
		return in.fields[abi.CallArguments]
	case "result":
		return in.fields[abi.CallResult]
	case "error":
		return in.fields[abi.CallError]
	case "carry":
		return in.fields[abi.CallCarry]
	case "claims":
		return in.fields[abi.CallClaims]
	case "issuer":
		return in.fields[abi.CallIssuer]
	case "event":
		return in.fields[abi.CallEvent]
	case "path":
		return in.fields[abi.CallPath]
	case "status":
		return in.fields[abi.CallStatus]
	case "from":
		return map[string]string{"": "", "1": "client", "2": "server"}[in.fields[abi.CallFrom]]
	case "subject":
		return in.subject
	case "tenant":
		return in.tenant
	case "groups":
		return strings.Join(in.groups, ",")
	case "header":
		return in.headers[rest]
	case "selected":
		if n, _ := strconv.Atoi(rest); n < len(in.selected) {
			return in.selected[n]
		}
	case "claim":
		if n, _ := strconv.Atoi(rest); n < len(in.claimed) {
			return in.claimed[n]
		}
	case "attrs":
		return strings.ReplaceAll(strings.Join(in.attrs, " "), `"`, "'")
	case "item":
		if item >= 0 {
			return in.names[item]
		}
	case "count":
		return strconv.Itoa(count)
	case "got":
		return in.got
	case "quoted":
		return strconv.Quote(in.got)
	}
	return ""
}

func (in *input) holds(condition string, item int) bool {
	if condition == "*" {
		return true
	}
	i := strings.IndexAny(condition, "=~")
	is := in.at(condition[:i], item)
	if condition[i] == '=' {
		return is == condition[i+1:]
	}
	return strings.Contains(is, condition[i+1:])
}

// text puts what the input has into an argument.
func (in *input) text(s string, item int) string {
	for _, place := range []string{"tool", "backend", "session", "method", "subject", "tenant", "groups", "args", "result", "error", "carry", "item", "claims", "issuer", "count", "path", "status", "from", "got", "quoted", "header:x-a", "header:x-b", "selected:0", "selected:1", "claim:0", "claim:1", "attrs"} {
		if strings.Contains(s, "$"+place) {
			s = strings.ReplaceAll(s, "$"+place, in.at(place, item))
		}
	}
	return s
}

func hook(name string, n uint32) uint64 {
	count++
	in := read(buffer[:n])
	out := output[:0]
	for _, f := range rules {
		if f[0] != name {
			continue
		}
		if len(in.names) == 0 {
			out = apply(in, f, -1, out)
		}
		for i := range in.names {
			out = apply(in, f, i, out)
		}
	}
	if len(out) == 0 {
		return 0
	}
	return give(out)
}

// much does what is too much of something; false for anything else.
func much(verb string, arg func(int) string, redact func(text string)) bool {
	n, _ := strconv.Atoi(arg(0))
	switch verb {
	case "shout": // N|BYTES: so many lines for the log, of so many bytes
		size, _ := strconv.Atoi(arg(1))
		line := []byte("shout" + strings.Repeat("!", size))
		for range n {
			log(abi.LevelWarn, unsafe.Pointer(&line[0]), uint32(len(line)))
		}
	case "repeat": // N: so many operations
		for i := range n {
			redact("said " + strconv.Itoa(i+1))
		}
	default:
		return false
	}
	return true
}

func apply(in *input, f []string, item int, out []byte) []byte {
	if !in.holds(f[1], item) {
		return out
	}
	arg := func(n int) string {
		if n+3 < len(f) {
			return in.text(f[n+3], item)
		}
		return ""
	}
	op := func(kind int, parts ...[]byte) []byte {
		var a []byte
		for _, p := range parts {
			a = append(a, p...)
		}
		if item >= 0 {
			a = abi.AppendUint(a, abi.ArgItem, uint64(item))
		}
		return abi.AppendBytes(out, abi.OpsOp, abi.AppendBytes(nil, kind, a))
	}
	pointer := func(n int) []byte { return abi.AppendString(nil, abi.ArgPointer, arg(n)) }
	raw := func(n int) []byte { return abi.AppendString(nil, abi.ArgRaw, arg(n)) }
	named := func(n int) []byte { return abi.AppendString(nil, abi.ArgName, arg(n)) }
	text := func(n int) []byte { return abi.AppendString(nil, abi.ArgText, arg(n)) }
	number := func(field, n int) []byte {
		v, _ := strconv.ParseUint(arg(n), 10, 64)
		return abi.AppendUint(nil, field, v)
	}
	if outside != nil && outside(in, f, arg) {
		return out
	}
	if much(f[2], arg, func(text string) {
		out = op(abi.OpRedact, abi.AppendString(nil, abi.ArgPointer, "/message"), abi.AppendString(nil, abi.ArgText, text))
	}) {
		return out
	}
	switch f[2] {
	case "trap":
		panic("asked to")
	case "loop":
		for count >= 0 {
			count &= 1 << 20
		}
	case "work": // so many times over its arguments
		rounds, _ := strconv.Atoi(arg(0))
		for range rounds {
			for _, b := range []byte(in.fields[abi.CallArguments]) {
				worked = worked*31 + uint64(b)
			}
		}
	case "bad":
		return abi.AppendBytes(out, abi.OpsOp, []byte{0xff})
	case "stash": // tells what the call before left, and leaves its own
		out = op(abi.OpSetArg, abi.AppendString(nil, abi.ArgPointer, "/before"), abi.AppendString(nil, abi.ArgRaw, strconv.Quote(stash)))
		stash = in.fields[abi.CallArguments]
		return out
	case "set_arg", "patch_result", "pin_arg":
		return op(map[string]int{"set_arg": abi.OpSetArg, "patch_result": abi.OpPatchResult, "pin_arg": abi.OpPinArg}[f[2]], pointer(0), raw(1))
	case "del_arg", "hide_arg":
		return op(map[string]int{"del_arg": abi.OpDelArg, "hide_arg": abi.OpHideArg}[f[2]], pointer(0))
	case "set_arguments":
		return op(abi.OpSetArguments, raw(0))
	case "set_tool", "set_backend", "rename", "use_credential":
		return op(map[string]int{"use_credential": abi.OpUseCredential, "set_tool": abi.OpSetTool, "set_backend": abi.OpSetBackend, "rename": abi.OpRename}[f[2]], named(0))
	case "set_header":
		return op(abi.OpSetHeader, named(0), text(1))
	case "set_headers": // N|NAME|TEXT: as many, with numbers behind their names
		n, _ := strconv.Atoi(arg(0))
		for i := range n {
			header := abi.AppendString(abi.AppendString(nil, abi.ArgName, arg(1)+strconv.Itoa(i)), abi.ArgText, arg(2))
			out = abi.AppendBytes(out, abi.OpsOp, abi.AppendBytes(nil, abi.OpSetHeader, header))
		}
		return out
	case "smuggle": // a line break and what may follow
		return op(abi.OpSetHeader, named(0), abi.AppendString(nil, abi.ArgText, arg(1)+"\r\nX-Smuggled: yes"))
	case "del_header":
		return op(abi.OpDelHeader, named(0))
	case "respond":
		return op(abi.OpRespond, raw(0))
	case "patch_item":
		return op(abi.OpPatchItem, pointer(0), raw(1))
	case "set_schema":
		return op(abi.OpSetSchema, raw(0))
	case "deny":
		return op(abi.OpDeny, number(abi.ArgCode, 0), text(1), raw(2))
	case "set_attr", "annotate":
		return op(map[string]int{"set_attr": abi.OpSetAttr, "annotate": abi.OpAnnotate}[f[2]], named(0), raw(1))
	case "set_carry":
		return op(abi.OpSetCarry, raw(0))
	case "log_field":
		return op(abi.OpLogField, named(0), text(1))
	case "drop_content":
		return op(abi.OpDropContent, number(abi.ArgIndex, 0))
	case "redact":
		return op(abi.OpRedact, pointer(0), text(1))
	case "describe":
		return op(abi.OpDescribe, text(0))
	case "hide":
		return op(abi.OpHide)
	case "set_principal": // SUBJECT|TENANT|GROUP,GROUP
		p := abi.AppendString(nil, abi.PrincipalSubject, arg(0))
		p = abi.AppendString(p, abi.PrincipalTenant, arg(1))
		for _, g := range strings.Split(arg(2), ",") {
			p = abi.AppendString(p, abi.PrincipalGroup, g)
		}
		return op(abi.OpSetPrincipal, abi.AppendBytes(nil, abi.ArgRaw, p))
	}
	return out
}

func give(b []byte) uint64 {
	output = b
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))<<32 | uint64(len(b))
}

//go:wasmexport weir_on_call_request
func onCallRequest(n uint32) uint64 { return hook("on_call_request", n) }

//go:wasmexport weir_on_call_response
func onCallResponse(n uint32) uint64 { return hook("on_call_response", n) }

//go:wasmexport weir_on_message
func onMessage(n uint32) uint64 { return hook("on_message", n) }

//go:wasmexport weir_override_tools
func overrideTools(n uint32) uint64 { return hook("override_tools", n) }

//go:wasmexport weir_override_prompts
func overridePrompts(n uint32) uint64 { return hook("override_prompts", n) }

//go:wasmexport weir_override_resources
func overrideResources(n uint32) uint64 { return hook("override_resources", n) }

//go:wasmexport weir_map_identity
func mapIdentity(n uint32) uint64 { return hook("map_identity", n) }

//go:wasmexport weir_outgoing_auth
func outgoingAuth(n uint32) uint64 { return hook("outgoing_auth", n) }

//go:wasmexport weir_on_upstream_request
func onUpstreamRequest(n uint32) uint64 { return hook("on_upstream_request", n) }

//go:wasmexport weir_on_session_start
func onSessionStart(n uint32) uint64 { return hook("on_session_start", n) }

//go:wasmexport weir_on_session_end
func onSessionEnd(n uint32) uint64 { return hook("on_session_end", n) }

//go:wasmexport weir_authenticate
func authenticate(n uint32) uint64 { return hook("authenticate", n) }

//go:wasmexport weir_on_http_request
func onHTTPRequest(n uint32) uint64 { return hook("on_http_request", n) }

//go:wasmexport weir_on_http_response
func onHTTPResponse(n uint32) uint64 { return hook("on_http_response", n) }

//go:wasmexport weir_on_event
func onEvent(n uint32) uint64 { return hook("on_event", n) }

//go:wasmexport weir_on_notification
func onNotification(n uint32) uint64 { return hook("on_notification", n) }

//go:wasmexport weir_on_question
func onQuestion(n uint32) uint64 { return hook("on_question", n) }
