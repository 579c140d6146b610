//go:build !linux

package main

import (
	"context"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// runContainers says that the row needs Linux.
func runContainers(context.Context, *storm) { kit.Fail("an engine of the row's own needs Linux") }
