package script_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/cmd/weir/script"
)

func TestTraced(t *testing.T) {
	for call, want := range map[string]string{
		`{"id":1,"parent":0,"tool":"add","attempt":1,"outcome":"ok","ms":1.5}`:                     "add: ok, 1.5 ms",
		`{"id":1,"parent":0,"tool":"add","step":"sum","attempt":3,"outcome":"error","ms":12}`:      "step sum: add, attempt 3: error, 12 ms",
		`{"id":1,"parent":0,"step":"sum","attempt":1,"outcome":"denied","ms":0}`:                   "step sum: denied, 0 ms",
		`{"id":1,"parent":0,"tool":"a\n\u001b[31mb","step":"s","attempt":1,"outcome":"ok","ms":1}`: "step s: a [31mb: ok, 1 ms",
	} {
		if got := script.Traced([]byte(call)); got != want {
			t.Errorf("%s is %q, want %q", call, got, want)
		}
	}
}

// endless is text without an end.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

// What is no script is refused as it is read: it may have no end, and what is no UTF-8 would
// become another text in the message to the server.
func TestRead(t *testing.T) {
	for name, one := range map[string]struct {
		in   io.Reader
		want string
	}{
		"a script":       {strings.NewReader("return 1"), ""},
		"nothing":        {strings.NewReader(" \n"), "there is no script in it"},
		"without an end": {endless{}, "more than 65536 bytes"},
		"64 KiB":         {strings.NewReader(strings.Repeat("#", 64<<10)), ""},
		"not UTF-8":      {strings.NewReader("return '\xff'"), "the text is not UTF-8"},
	} {
		text, err := script.Read(one.in, "-")
		if one.want == "" && err != nil || one.want != "" && (err == nil || !strings.HasPrefix(err.Error(), "-: "+one.want)) {
			t.Errorf("%s: %d bytes, %v, want %q", name, len(text), err, one.want)
		}
	}
	large := filepath.Join(t.TempDir(), "large.star")
	if err := os.WriteFile(large, make([]byte, 64<<10+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := script.Read(nil, large); err == nil || err.Error() != large+": more than 65536 bytes" {
		t.Error(err)
	}
}
