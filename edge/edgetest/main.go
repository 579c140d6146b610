package edgetest

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Main runs the tests of a package and then looks for goroutines that they
// left behind. It is the body of a TestMain.
//
// Tests of a whole edge wait more than they work: more of them run side by
// side than there are cores, unless -parallel says otherwise.
//
// What all tests share is cleared away by after.
func Main(m *testing.M, after ...func()) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", "12") // a number is what the flag takes
	}
	goleak.VerifyTestMain(m,
		goleak.Cleanup(func(code int) {
			for _, f := range after {
				f()
			}
			os.Exit(code)
		}),
		// The HTTP server's date, which lives as long as the process.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		// Ends within ten seconds of its server, when it next wakes.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
	)
}
