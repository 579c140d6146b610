// Command echo is the server in WebAssembly that is measured.
package main

import "github.com/weir-edge/weir/edge/edgetest/bench/testdata/echo"

func main() { echo.Server().Main() }
