//go:build unix

package door

import (
	"net"
	"path/filepath"
	"testing"
	"time"
)

// TestTakeOverFromOneThatLeaves: a process that leaves before it answers is no error: there is
// another at its path then, or none.
func TestTakeOverFromOneThatLeaves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, func() { ln.Close() }) // it has accepted nobody
	if _, _, from, err := TakeOver(path); err != nil || from != nil {
		t.Errorf("%v %v", from, err)
	}
}
