// Command try says whether a container engine can be run on this machine, as tests run one. It
// ends with 1 where none can, with what the engine has logged.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/engine"
)

func main() {
	began := time.Now()
	if why := engine.Missing(); why != "" {
		fmt.Fprintln(os.Stderr, "try:", why)
		os.Exit(1)
	}
	e, err := engine.Open()
	if err != nil {
		fmt.Fprintln(os.Stderr, "try:", err)
		os.Exit(1)
	}
	e.Close()
	fmt.Printf("a container engine runs here: it was ready after %.1f s\n", time.Since(began).Seconds())
}
