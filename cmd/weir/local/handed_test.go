package local

import (
	"fmt"
	"testing"
)

// TestHandedSecrets: what any process of a workload was given as a secret is masked in what it
// prints, also after the secret has become another one; the oldest values go.
func TestHandedSecrets(t *testing.T) {
	var h handed
	h.add("first value")
	first := h.all()
	h.add("second value")
	h.add("first value")
	if got := h.all(); len(first) != 1 || len(got) != 2 || string(got[1]) != "first value" {
		t.Errorf("%q, then %q", first, got)
	}
	for i := range mostHanded {
		h.add(fmt.Sprint("value ", i))
	}
	if got := h.all(); len(got) != mostHanded || string(got[0]) != "value 0" {
		t.Errorf("%d values, the first %q", len(got), got[0])
	}
}
