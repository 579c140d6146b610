//go:build !unix

package wasm

import (
	"testing"
	"time"
)

// Elsewhere there are no mutants and no figures of the process.
const (
	mutantEnv  = "WEIR_MUTANT_CHILD"
	allMutants = 1
)

func mutantMain() int              { return 1 }
func mutants(*testing.T) int       { return 0 }
func processorTime() time.Duration { return 0 }
