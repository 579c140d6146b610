package main

import (
	"context"
	"errors"

	"github.com/weir-edge/weir/edge/workload"
)

func (a *app) startManager(ctx context.Context, paths workload.Paths, flags ...string) (*workload.Client, error) {
	return nil, errors.New("stub")
}
