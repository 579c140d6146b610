package session

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
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
		{Capabilities: []byte("{}"), Attributes: attributesOf(attributed10()), Subscribed: []string{"a"}},
		{Info: []byte(`"` + strings.Repeat("i", MaxSaid-4) + `"`), Capabilities: []byte("{}"), Attributes: attributesOf(attributed10()), Subscribed: []string{"a"}},
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

// attributed10 is a session of whose principal programs said ten things.
func attributed10() *Session {
	s := &Session{}
	var all edge.Attributes
	for i := range 10 {
		all = all.Set(fmt.Sprint("a", i), `"`+strings.Repeat("<", 700)+`"`)
	}
	s.SetAttributes("programs", all)
	return s
}

// TestZ34SessionAttributes: what programs said of a session is there when it is
// read again, and is said by the same programs alone.
func TestZ34SessionAttributes(t *testing.T) {
	t.Parallel()
	was := attributed10()
	var is Session
	is.said(attributesOf(was))
	if got := is.Attributes("programs"); len(got) != 10 || !reflect.DeepEqual(got, was.Attributes("programs")) {
		t.Errorf("read back: %v", got)
	}
	if got := is.Attributes("others"); got != nil {
		t.Errorf("other programs said %v", got)
	}
	text := attributesOf(was)
	for n := range text {
		if n > 0 && soundAttributes(text[:n]) && n != len("programs")+1 {
			var cut Session
			if cut.said(text[:n]); len(cut.Attributes("programs")) > 10 {
				t.Errorf("%d bytes read back as more", n)
			}
		}
	}
	if soundAttributes([]byte{9, 'a'}) || soundAttributes([]byte{1, 'a', 1, 'b'}) {
		t.Error("what nobody wrote is taken for attributes")
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
