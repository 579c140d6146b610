package abi

import (
	"fmt"
	"testing"
)

// TestInput: every field of an input is read back as it was, empty ones are left out, and so
// is what a guest did not subscribe to, but for headers and selected values, to which it
// subscribes by name and pointer.
func TestInput(t *testing.T) {
	who := Principal{Subject: "s", Tenant: "t", Issuer: "i", Groups: []string{"g", "", "h"}, Roles: []string{"r"}, Scopes: []string{"x", "y"}}
	in := Input{
		Tool: []byte("tool"), Session: []byte("session"), RequestID: []byte(`"1"`), Arguments: []byte(`{}`), Result: []byte(`[]`), Error: []byte(`{"code":1}`),
		Claims: []byte(`{"a":1}`), Carry: []byte("carry"), Event: []byte(`{"e":1}`), Backend: "backend", Method: "tools/call", Path: "/p", Issuer: "issuer",
		Principal: who.Append(nil), Headers: []Header{{"x-a", "1"}, {"x-b", ""}}, Selected: [][]byte{[]byte("1"), nil},
		Items: []Item{{"n", "b", []byte(`{"j":1}`)}, {"m", "", nil}}, Status: 200, Now: 1234567890123,
	}
	read := func(b []byte) map[int][]string {
		all, r := map[int][]string{}, Reader{B: b}
		for r.Next() {
			value := string(r.Data)
			if r.Data == nil {
				value = fmt.Sprint(r.Uint)
			}
			switch r.Num {
			case CallPrincipal, CallHeader, CallItem:
				value = ""
				inner := Reader{B: r.Data}
				for inner.Next() {
					value += fmt.Sprintf("%d=%s;", inner.Num, inner.Data)
				}
			}
			all[r.Num] = append(all[r.Num], value)
		}
		if r.Bad {
			t.Errorf("%q is malformed", b)
		}
		return all
	}
	want := map[int][]string{
		CallTool: {"tool"}, CallSession: {"session"}, CallRequestID: {`"1"`}, CallArguments: {`{}`}, CallResult: {`[]`}, CallError: {`{"code":1}`},
		CallClaims: {`{"a":1}`}, CallCarry: {"carry"}, CallEvent: {`{"e":1}`}, CallBackend: {"backend"}, CallMethod: {"tools/call"}, CallPath: {"/p"}, CallIssuer: {"issuer"},
		CallPrincipal: {fmt.Sprintf("%d=s;%d=t;%d=g;%d=h;%d=r;%d=x;%d=y;%d=i;", PrincipalSubject, PrincipalTenant, PrincipalGroup, PrincipalGroup, PrincipalRole, PrincipalScope, PrincipalScope, PrincipalIssuer)},
		CallHeader:    {fmt.Sprintf("%d=x-a;%d=1;", HeaderName, HeaderValue), fmt.Sprintf("%d=x-b;%d=;", HeaderName, HeaderValue)},
		CallSelected:  {"1", ""}, CallItem: {fmt.Sprintf(`%d=n;%d=b;%d={"j":1};`, ItemName, ItemBackend, ItemJSON), fmt.Sprintf("%d=m;%d=;%d=;", ItemName, ItemBackend, ItemJSON)},
		CallStatus: {"200"}, CallNow: {"1234567890123"},
	}
	if got := read(in.Append(nil, 0)); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v\nwant %v", got, want)
	}
	for field := range want {
		got := read(in.Append(nil, 1<<field))
		for other := range want {
			if is := got[other] != nil; is != (other == field || other == CallHeader || other == CallSelected) {
				t.Errorf("subscribed to field %d: field %d is there: %v", field, other, is)
			}
		}
	}
	if b := (&Input{}).Append(nil, 0); len(b) != 0 {
		t.Errorf("an empty input has %q", b)
	}
}
