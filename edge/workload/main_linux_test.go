package workload

import (
	"fmt"
	"os"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// asChild is a variable that has the test program play another process.
const asChild = "WEIR_TEST_CHILD"

func TestMain(m *testing.M) {
	play, ok := children()[os.Getenv(asChild)]
	if !ok {
		edgetest.Main(m)
		return
	}
	if err := play(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
