package cloud_test

import (
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

func TestMain(m *testing.M) { edgetest.Main(m) }
