package edgetest

import (
	"testing"

	"go.uber.org/goleak"
)

// Main runs the tests of a package and then looks for goroutines that they
// left behind. It is the body of a TestMain.
func Main(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The HTTP server's date, which lives as long as the process.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		// Ends within ten seconds of its server, when it next wakes.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
	)
}
