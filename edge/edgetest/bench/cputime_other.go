//go:build !linux

package main

import (
	"errors"
	"time"
)

func threadTime() (time.Duration, error) {
	return 0, errors.New("cpu time of a thread: it is read on Linux alone")
}
