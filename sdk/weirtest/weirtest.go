// Package weirtest asks a guest in an ordinary test, without WebAssembly: the
// functions that it registered with package weir run in the test's own
// process, against a host that the test can look into.
//
//	func TestAdminsDelete(t *testing.T) {
//		g := weirtest.Start(t, weirtest.Setup{Config: `{"group":"admin"}`})
//		ops := g.Ask(abi.OnCallRequest, weirtest.Input{Tool: "delete_repo"})
//		if code, _, denied := ops.Denied(); !denied || code != weir.Forbidden {
//			t.Errorf("got %v", ops)
//		}
//	}
//
// A guest is one for the whole program. Tests that ask it must not be
// parallel.
package weirtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	weir "github.com/weir-edge/weir/sdk"
	"github.com/weir-edge/weir/sdk/abi"
)

// Setup is what a guest is started with.
type Setup struct {
	Config string            // JSON text; "" for none
	Grants []string          // random, kv, metrics, keys, identity, credentials, http, tools, events, claims
	Keys   map[string]string // secrets of the grant keys, by name
	Name   string            // of the filter; "test" when empty
}

// Guest is what the program registered, started.
type Guest struct {
	// Host is what its functions find: the lines that it logged, the store,
	// metrics, and the time, which the test sets.
	Host *weir.Native

	t             testing.TB
	subscriptions [abi.Hooks]*subscription
}

type subscription struct {
	tools, backends, methods, headers, pointers []string
	claims                                      []string
	fields                                      uint64
	inline                                      uint64
}

// Start starts the guest, and ends the test when it refuses.
func Start(t testing.TB, s Setup) *Guest {
	t.Helper()
	g, err := Try(t, s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Try starts the guest and returns why it refuses its configuration.
func Try(t testing.TB, s Setup) (*Guest, error) {
	t.Helper()
	g := &Guest{Host: &weir.Native{}, t: t}
	var record []byte
	if s.Config != "" {
		if !json.Valid([]byte(s.Config)) {
			t.Fatalf("the configuration is no JSON: %s", s.Config)
		}
		record = abi.AppendString(record, abi.InitConfig, s.Config)
	}
	for _, grant := range s.Grants {
		record = abi.AppendString(record, abi.InitGrant, grant)
		switch grant {
		case abi.GrantKV:
			g.Host.Store = map[string][]byte{}
		case abi.GrantMetrics:
			g.Host.Counts = map[string]int64{}
		case abi.GrantKeys:
			g.Host.Keys = s.Keys
		case abi.GrantHTTP: // until the test sets who answers, nobody does
			g.Host.Fetch = func(weir.Outbound) (weir.Inbound, error) { return weir.Inbound{}, weir.ErrUnavailable }
		case abi.GrantTools:
			g.Host.Tools = func(string, string) (weir.JSON, weir.JSON, error) { return "", "", weir.ErrUnavailable }
		case abi.GrantEvents:
			g.Host.Events = []string{}
		case abi.GrantRandom:
			n := byte(0)
			g.Host.Rand = func(b []byte) { // the same in every test
				for i := range b {
					n = n*5 + 7
					b[i] = n
				}
			}
		}
	}
	if s.Name == "" {
		s.Name = "test"
	}
	record = abi.AppendString(record, abi.InitName, s.Name)
	r := abi.Reader{B: g.Host.Init(abi.AppendUint(record, abi.InitVersion, abi.Version))}
	for r.Next() {
		switch r.Num {
		case abi.InitError:
			return nil, fmt.Errorf("%s", r.Data)
		case abi.InitSubscription:
			g.subscribe(r.Data)
		}
	}
	return g, nil
}

func (g *Guest) subscribe(record []byte) {
	s := &subscription{}
	hook := abi.Hooks
	r := abi.Reader{B: record}
	for r.Next() {
		switch text := string(r.Data); r.Num {
		case abi.SubHook:
			hook, _ = abi.HookNamed(text)
		case abi.SubTool:
			s.tools = append(s.tools, text)
		case abi.SubBackend:
			s.backends = append(s.backends, text)
		case abi.SubMethod:
			s.methods = append(s.methods, text)
		case abi.SubHeader:
			s.headers = append(s.headers, strings.ToLower(text))
		case abi.SubPointer:
			s.pointers = append(s.pointers, text)
		case abi.SubClaim:
			s.claims = append(s.claims, text)
		case abi.SubField:
			s.fields |= 1 << r.Uint
		case abi.SubInlineLimit:
			s.inline = r.Uint
		}
	}
	g.subscriptions[hook] = s // package weir makes one for each hook
}

// Input is what a hook is asked about. JSON fields hold JSON text.
type Input struct {
	Tool, Backend, Session, Method, Path, Issuer string

	RequestID, Arguments, Result, Error, Claims, Event string

	Principal weir.Identity
	Headers   map[string]string
	Items     []Item
	Attrs     map[string]string // what filters said of the client: JSON texts
	Carry     string
	Now       uint64 // milliseconds since 1970
	Status    uint64
}

// Item is a tool, prompt or resource of a backend.
type Item struct{ Name, Backend, JSON string }

// Op is an operation. Which fields it has depends on Kind.
type Op struct {
	Kind      string // as in the table of operations: set_arg, deny, …
	Pointer   string
	Raw       string // JSON text; of set_carry any bytes
	Name      string
	Text      string
	Code      weir.Code
	Index     int
	Item      int
	Principal *weir.Identity // of set_principal
}

// Ops are the operations that a guest answered with.
type Ops []Op

// Denied returns the first denial.
func (o Ops) Denied() (code weir.Code, text string, denied bool) {
	for _, op := range o {
		if op.Kind == "deny" {
			return op.Code, op.Text, true
		}
	}
	return 0, "", false
}

var kinds = [...]string{
	abi.OpSetArg: "set_arg", abi.OpDelArg: "del_arg", abi.OpSetArguments: "set_arguments", abi.OpSetTool: "set_tool",
	abi.OpSetBackend: "set_backend", abi.OpSetHeader: "set_header", abi.OpDelHeader: "del_header", abi.OpRespond: "respond",
	abi.OpDeny: "deny", abi.OpSetAttr: "set_attr", abi.OpSetCarry: "set_carry", abi.OpLogField: "log_field",
	abi.OpPatchResult: "patch_result", abi.OpDropContent: "drop_content", abi.OpRedact: "redact", abi.OpRename: "rename",
	abi.OpDescribe: "describe", abi.OpHide: "hide", abi.OpAnnotate: "annotate", abi.OpSetSchema: "set_schema",
	abi.OpPinArg: "pin_arg", abi.OpHideArg: "hide_arg", abi.OpUseCredential: "use_credential",
	abi.OpSetPrincipal: "set_principal", abi.OpChallenge: "challenge", abi.OpPatchItem: "patch_item",
}

// Ask asks the guest what it says to an input. It is asked as the edge does:
// not at all when it did not subscribe to such a message, and without what it
// did not subscribe to.
func (g *Guest) Ask(hook abi.Hook, in Input) Ops {
	g.t.Helper()
	s := g.subscriptions[hook]
	if s == nil || !anyGlob(s.tools, in.Tool) || !anyGlob(s.backends, in.Backend) || !anyGlob(s.methods, in.Method) {
		return nil
	}
	var ops Ops
	r := abi.Reader{B: g.Host.Ask(hook, s.record(hook, &in))}
	for r.Next() {
		op := abi.Reader{B: r.Data}
		if r.Num != abi.OpsOp || !op.Next() || op.Num >= len(kinds) {
			g.t.Fatalf("%v: operation %d is malformed", hook, len(ops)+1)
		}
		ops = append(ops, g.op(op.Num, op.Data))
	}
	if r.Bad {
		g.t.Fatalf("%v: malformed operations", hook)
	}
	return ops
}

func (g *Guest) op(kind int, record []byte) Op {
	g.t.Helper()
	op := Op{Kind: kinds[kind]}
	r := abi.Reader{B: record}
	for r.Next() {
		switch r.Num {
		case abi.ArgPointer:
			op.Pointer = string(r.Data)
		case abi.ArgName:
			op.Name = string(r.Data)
		case abi.ArgText:
			op.Text = string(r.Data)
		case abi.ArgCode:
			op.Code = weir.Code(r.Uint)
		case abi.ArgIndex:
			op.Index = int(r.Uint)
		case abi.ArgItem:
			op.Item = int(r.Uint)
		case abi.ArgRaw:
			switch {
			case kind == abi.OpSetPrincipal:
				op.Principal = identity(r.Data)
			case kind != abi.OpSetCarry && !json.Valid(r.Data):
				g.t.Fatalf("%s: the edge refuses what is no JSON: %s", op.Kind, r.Data)
			default:
				op.Raw = string(r.Data)
			}
		}
	}
	return op
}

func identity(record []byte) *weir.Identity {
	var who weir.Identity
	r := abi.Reader{B: record}
	for r.Next() {
		switch text := string(r.Data); r.Num {
		case abi.PrincipalSubject:
			who.Subject = text
		case abi.PrincipalTenant:
			who.Tenant = text
		case abi.PrincipalIssuer:
			who.Issuer = text
		case abi.PrincipalGroup:
			who.Groups = append(who.Groups, text)
		case abi.PrincipalRole:
			who.Roles = append(who.Roles, text)
		case abi.PrincipalScope:
			who.Scopes = append(who.Scopes, text)
		}
	}
	return &who
}

// record encodes an input, less what was not asked for.
func (s *subscription) record(hook abi.Hook, in *Input) []byte {
	who := in.Principal
	say := abi.Input{
		Tool: []byte(in.Tool), Backend: in.Backend, Session: []byte(in.Session), Method: in.Method, RequestID: []byte(in.RequestID),
		Principal: (&abi.Principal{Subject: who.Subject, Tenant: who.Tenant, Issuer: who.Issuer, Groups: who.Groups, Roles: who.Roles, Scopes: who.Scopes}).Append(nil),
		Result:    []byte(in.Result), Error: []byte(in.Error), Carry: []byte(in.Carry),
		Status: in.Status, Path: in.Path, Issuer: in.Issuer, Event: []byte(in.Event), Now: in.Now,
	}
	for _, name := range s.headers {
		for given, value := range in.Headers {
			if strings.ToLower(given) == name {
				say.Headers = append(say.Headers, abi.Header{Name: name, Value: value})
			}
		}
	}
	if s.inline == 0 || uint64(len(in.Arguments)) <= s.inline {
		say.Arguments = []byte(in.Arguments)
	}
	of := in.Arguments
	if hook == abi.OnCallResponse || of == "" {
		of = in.Result
	}
	for _, p := range s.pointers {
		say.Selected = append(say.Selected, []byte(weir.Parse([]byte(of)).At(p).JSON()))
	}
	if hook == abi.MapIdentity {
		say.Claims = []byte(in.Claims)
	}
	for _, p := range s.claims {
		say.ClaimValues = append(say.ClaimValues, []byte(weir.Parse([]byte(in.Claims)).At(p).JSON()))
	}
	for name, value := range in.Attrs {
		say.Attrs = append(say.Attrs, abi.Attr{Name: name, JSON: value})
	}
	for _, item := range in.Items {
		say.Items = append(say.Items, abi.Item{Name: item.Name, Backend: item.Backend, JSON: []byte(item.JSON)})
	}
	return say.Append(nil, s.fields)
}

// anyGlob says whether one of the globs matches a name, as the edge does: a message
// without such a name is for every subscription.
func anyGlob(globs []string, name string) bool {
	for _, g := range globs {
		if weir.Match(g, name) {
			return true
		}
	}
	return len(globs) == 0 || name == ""
}
