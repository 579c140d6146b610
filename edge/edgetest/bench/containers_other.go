//go:build !linux

package main

import "context"

// runContainers says that servers in containers are measured on Linux alone.
func (b *bench) runContainers(context.Context) {
	b.addLocal(verdict{"containers", "they are measured on Linux alone", "–", "–", "–", "–", "–"})
}

// isolate has nothing to do here.
func isolate() error { return nil }
