package incoming_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/filters/incoming"
)

// vectors is a group of testdata/wycheproof.json.gz: the JOSE vectors of
// C2SP/wycheproof (Apache-2.0) with the private halves of their keys left out.
type vectors struct {
	File, Group string
	Keys        []json.RawMessage
	Tests       []struct {
		ID      int
		Comment string
		Token   json.RawMessage
		Result  string
	}
}

// TestG16 runs the vectors through the code that judges tokens: nothing that is
// invalid is taken, and of what is valid only what the edge has no use for is
// refused.
func TestG16(t *testing.T) {
	packed, err := os.ReadFile("testdata/wycheproof.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(io.LimitReader(z, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	var groups []vectors
	if err := json.Unmarshal(text, &groups); err != nil {
		t.Fatal(err)
	}
	p, g := ready(t)
	hits := p.hits.Load()
	total, taken := 0, 0
	unused := map[string]int{} // valid, and refused: why
	for _, v := range groups {
		doc, err := json.Marshal(map[string]any{"keys": v.Keys})
		if err != nil {
			t.Fatal(err)
		}
		keys, err := oauth.ParseKeys(doc)
		for _, test := range v.Tests {
			total++
			var token string
			if json.Unmarshal(test.Token, &token) != nil {
				token = string(test.Token) // of the JSON form
			}
			ok, why := false, err
			if keys != nil && err == nil {
				_, why = incoming.Signed(keys, token)
				ok = why == nil
			}
			switch {
			case ok && test.Result == "valid":
				taken++
			case ok:
				t.Errorf("%s %s %d: %s: %s was taken", v.File, v.Group, test.ID, test.Comment, test.Result)
			case test.Result == "valid":
				unused[why.Error()]++
			}
			// And as a whole, at a server: none of them is for it.
			if _, err := identify(t, g, token); err == nil {
				t.Errorf("%s %s %d was accepted", v.File, v.Group, test.ID)
			}
		}
	}
	if n := p.hits.Load() - hits; n > 0 {
		t.Errorf("%d requests went out", n)
	}
	if total != 649 {
		t.Errorf("%d vectors, not 649", total)
	}
	if taken != 29 {
		t.Errorf("%d valid vectors were taken, not 29", taken)
	}
	var why []string
	n := 0
	for _, name := range slices.Sorted(maps.Keys(unused)) {
		n += unused[name]
		why = append(why, fmt.Sprintf("%s (%d)", name, unused[name]))
	}
	t.Logf("%d vectors: %d valid taken, 0 invalid taken, %d valid of no use here (secrets, encryption, no payload):\n%s", total, taken, n, strings.Join(why, "\n"))
}
