package main

import (
	"reflect"
	"testing"

	weir "github.com/weir-edge/weir/sdk"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/sdk/weirtest"
)

func start(t *testing.T) *weirtest.Guest {
	return weirtest.Start(t, weirtest.Setup{Config: `{"group":"admin"}`, Name: "demo"})
}

func TestStart(t *testing.T) {
	if g := start(t); !reflect.DeepEqual(g.Host.Lines, []string{"info: demo is ready"}) {
		t.Errorf("it says %q", g.Host.Lines)
	}
	if _, err := weirtest.Try(t, weirtest.Setup{}); err == nil || err.Error() != "group is missing: name the group that may delete" {
		t.Errorf("without a group: %v", err)
	}
}

func TestDelete(t *testing.T) {
	g := start(t)
	in := weirtest.Input{Tool: "delete_repo", Session: "s", Principal: weir.Identity{Subject: "ann", Groups: []string{"dev", "admin"}}}
	want := weirtest.Ops{
		{Kind: "set_arg", Pointer: "/dry_run", Raw: "true"},
		{Kind: "set_header", Name: "x-user", Text: "ann"},
		{Kind: "del_header", Name: "x-debug"},
		{Kind: "set_attr", Name: "deleting", Raw: `"delete_repo"`},
		{Kind: "log_field", Name: "session", Text: "s"},
		{Kind: "set_carry", Raw: "ann"},
	}
	if got := g.Ask(abi.OnCallRequest, in); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	in.Principal.Groups = nil
	code, text, denied := g.Ask(abi.OnCallRequest, in).Denied()
	if !denied || code != weir.Forbidden || text != "only admin may delete" {
		t.Errorf("got %v %q %v", code, text, denied)
	}
	in.Tool = "undelete_repo"
	if got := g.Ask(abi.OnCallRequest, in); got != nil {
		t.Errorf("asked about another tool it says %v", got)
	}
}

func TestRead(t *testing.T) {
	g := start(t)
	got := g.Ask(abi.OnCallRequest, weirtest.Input{Tool: "read_file", Arguments: `{"verbose":1,"path":"/\u0061"}`})
	want := weirtest.Ops{{Kind: "set_arg", Pointer: "/path", Raw: `"/srv/a"`}, {Kind: "del_arg", Pointer: "/verbose"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestIdentity(t *testing.T) {
	got := start(t).Ask(abi.MapIdentity, weirtest.Input{Issuer: "i", Claims: `{"sub":"ann","realm_access":{"roles":["a","b"]}}`})
	want := weirtest.Ops{
		{Kind: "set_principal", Principal: &weir.Identity{Subject: "ann", Issuer: "i", Groups: []string{"a", "b"}}},
		{Kind: "set_attr", Name: "issuer", Raw: `"i"`},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
