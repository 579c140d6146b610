package serve_test

import (
	"os"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

func TestMain(m *testing.M) { edgetest.Main(m, func() { os.RemoveAll(machineCode()) }) }
