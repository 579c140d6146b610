// Package need says what a test needs of its machine. It stands apart from
// edgetest, which has the whole edge in it, for the tests of what the edge is
// built of.
package need

import (
	"os"
	"testing"
)

// Of ends the test unless ok holds: it skips with reason on a machine that
// lacks something beyond Go, and fails when WEIR_REQUIRE_ALL=1 says that this
// machine was meant to have everything, so that nothing is skipped unseen.
func Of(t testing.TB, ok bool, reason string) {
	t.Helper()
	if ok {
		return
	}
	if os.Getenv("WEIR_REQUIRE_ALL") == "1" {
		t.Fatalf("WEIR_REQUIRE_ALL=1 and this cannot run: %s", reason)
	}
	t.Skip(reason)
}
