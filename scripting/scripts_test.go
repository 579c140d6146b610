package scripting_test

import (
	"testing"

	"github.com/weir-edge/weir/scripting/scriptingtest"
)

// TestScripts runs the scripts of testdata in process.
func TestScripts(t *testing.T) {
	chunks := scriptingtest.Read(t, "testdata/scripts.star")
	for _, c := range chunks {
		o := run(t, c.Text)
		switch {
		case o.Error == nil && len(c.Want) > 0:
			t.Errorf("%s: no error, want %v", c.Name(), c.Want)
		case o.Error != nil && (c.Want[o.Error.Line] == nil || !c.Want[o.Error.Line].MatchString(o.Error.Message)):
			t.Errorf("%s: %v, want %v", c.Name(), o.Error, c.Want)
		}
	}
	if len(chunks) < 10 {
		t.Errorf("%d chunks", len(chunks))
	}
}
