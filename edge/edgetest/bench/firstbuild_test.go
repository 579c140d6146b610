package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/program"
)

func TestFirstBuildSection(t *testing.T) {
	f := &firstBuild{wall: 70 * time.Second, cpu: 140 * time.Second, packages: 590, modules: 79, size: program.MaxSize, zips: 90, bytes: 50 << 20}
	text := f.section()
	most := program.MaxSize >> 20
	for _, want := range []string{fmt.Sprintf("| %d.0 MiB (%d bytes) | ≤ %d MiB | yes |", most, program.MaxSize, most), "| 140 s |", "| 70 s |", "| 590 |", "| 79 |", "| 90, 50.0 MiB |"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if f.size++; !strings.Contains(f.section(), "**no**") {
		t.Error("a program above the limit is not said to be")
	}
	if (*firstBuild)(nil).section() != "" {
		t.Error("a section of what was not measured")
	}
}
