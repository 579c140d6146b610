package secret_test

import (
	"os"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(writerVariable); path != "" {
		writeForever(path) // until somebody kills it
	}
	edgetest.Main(m)
}
