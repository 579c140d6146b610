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
	if how := os.Getenv(asChild); how != "" {
		if err := children[how](os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	edgetest.Main(m)
}

// children are what other processes do in tests.
var children = map[string]func(args []string) error{}
