package session

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
)

// TestZ40Record: a record reads back as it was written, small and large; its head
// reads from its first bytes alone, whatever its client said; and what claims to be
// large reads as nothing.
func TestZ40Record(t *testing.T) {
	nodes := make([]string, maxNodes)
	for i := range nodes {
		nodes[i] = relay.NewName()
	}
	head := storedSession{Server: strings.Repeat("s", 253), Owner: ownerOf("a", "b"), Version: mcp.V2511, Level: "emergency", Nodes: nodes, Set: 1<<64 - 1}
	for _, s := range []said{
		{Capabilities: []byte("{}")},
		{Info: []byte(`{ "name" : "é<&>" }`), Capabilities: []byte(`{ }`), Subscribed: []string{"a", "b\n"}},
		{Info: []byte(`"` + strings.Repeat("i", MaxSaid-4) + `"`), Capabilities: []byte("{}"), Subscribed: []string{strings.Repeat("<", maxSubscribed)}},
	} {
		r := head
		r.said = s
		r.said.set = r.Set
		text := r.text()
		if got := readRecord(text); !reflect.DeepEqual(got, &r) {
			t.Errorf("%d bytes read back as %+.200v", len(text), got)
		}
		got := readHead(text[:min(len(text), headBytes)])
		want := head
		if !reflect.DeepEqual(got, &want) {
			t.Errorf("the head of %d bytes: %+v", len(text), got)
		}
	}
	r := storedSession{Version: mcp.V2511, said: said{Capabilities: make([]byte, 16<<20)}}
	if len(r.text()) > 64<<10 || readRecord(r.text()) != nil {
		t.Error("a record that is 16 MiB when it is read is taken for one")
	}
	gone := storedSession{Ended: true}
	if text := gone.text(); readRecord(text) != nil || readHead(text) != nil || !ended(text) {
		t.Error("a session that has ended is one")
	}
	if ended(nil) || ended((&head).text()) {
		t.Error("what has not ended is said to have")
	}
}

// What is written by nobody is nothing, and ends nobody.
func FuzzRecord(f *testing.F) {
	f.Add((&storedSession{Version: mcp.V2511, said: said{Capabilities: []byte("{}"), Subscribed: []string{"a"}}}).text())
	f.Add((&storedSession{Version: mcp.V2511, said: said{Capabilities: bytes.Repeat([]byte("x"), 2*packFrom)}}).text())
	f.Fuzz(func(t *testing.T, text []byte) {
		r := readRecord(text)
		if r == nil {
			return
		}
		if again := readRecord(r.text()); again == nil || !reflect.DeepEqual(again.said, r.said) {
			t.Errorf("%q: %+v, then %+v", text, r, again)
		}
		if readHead(text) == nil {
			t.Errorf("%q is a record without a head", text)
		}
	})
}
