// Package scripting is the language of scripts, workflows and filters: Starlark, with the
// tools of a server as functions.
//
// A text is compiled once (Compile) and run many times: in process (Execute) where the
// operator wrote it, or by the same interpreter as a guest in WebAssembly
// (scripting/sandbox) where strangers did. Both ask their Host for everything that is
// outside of the language.
package scripting

import (
	"context"
	"time"

	"github.com/weir-edge/weir/scripting/turns"
)

// Run is one run of a program.
type Run struct {
	Program *Program
	Data    []byte // JSON text of an object: values of the names in Scope.Data; nil for none
	Limits  Limits

	// Call makes one call for the run, and blocks until it has an answer or ctx ends. It is
	// called from several goroutines at once, Limits.Parallel at most.
	Call func(ctx context.Context, c *Call) Answer

	// Began is called when the run has a place, in the sandbox alone; nil for nobody.
	Began func()

	// Progress is told what the program says of itself; nil for nobody.
	Progress func(done, total float64, message string)

	Extension *Extension // builtins of another package; nil for none

	Turn *turns.Turn // the computing of the run, in process; nil for one that takes no place

	// Cancel ends the context that Execute is given, which then is the run's alone and ends with
	// it; nil for a context of others.
	Cancel context.CancelFunc
}

// Limits are the budgets of a run. Zero means the default.
type Limits struct {
	Steps    uint64        // of the run and all its children; 100,000
	Parallel int           // calls at once; 10
	Calls    int           // in all; 1,000
	PerCall  time.Duration // 30 s
	CPU      time.Duration // 1 s; of the sandbox alone
	Timeout  time.Duration // 60 s
	Memory   int64         // bytes; 64 MiB
}

// Kind says what a call asks for.
type Kind uint8

// The kinds of calls.
const (
	KindCall     Kind = iota // a tool
	KindList                 // the names of the tools there are
	KindDescribe             // a tool's description and schemas
)

// Call is what a program asks of its host.
type Call struct {
	Kind       Kind
	Tool       string   // advertised name; "" for KindList
	Positional [][]byte // JSON texts: values that the program gave without names, which the host names by the tool's schema
	Arguments  []byte   // JSON text of an object; nil for none
	Whole      bool     // the program wants the whole result, also of a tool that failed (call_tool_result)
}

// Answer is what became of a call: a value, or an error.
type Answer struct {
	Value []byte // JSON text; nil for an error
	Error *Fault
}

// Fault is why a call has no value. attempt() gives it to the program.
type Fault struct {
	Message string // whole, such as `tool "x": not found`
	Code    int    // as an HTTP status or a JSON-RPC code; 0 for none
	Data    []byte // JSON text; nil for none
	Final   bool   // attempt() does not catch it: a budget is spent, or the run is cancelled
	Cause   Cause  // of one that is final
	Spent   Spent  // what is, where the cause is a budget
}

// Cause says what ended a run that has no value.
type Cause uint8

// The causes.
const (
	Mistake   Cause = iota // of the program, or of a tool that it called
	Budget                 // one is spent
	Cancelled              // from outside
	Defect                 // of the interpreter
)

// Spent is a budget that this package holds.
type Spent uint8

// The budgets.
const (
	OtherSpent  Spent = iota // or none
	StepsSpent               // Limits.Steps
	MemorySpent              // Limits.Memory, or the size of one value
)

// Outcome is what became of a run.
type Outcome struct {
	Value   []byte // JSON text; nil for an error
	Error   *Error
	Logs    []string // what was printed, by lines
	Dropped int      // bytes that were printed beyond the bounds

	Steps  uint64 // in the sandbox, where CPU or memory ended the run: those that are known of, of which the last 10,000 may be missing
	Calls  int
	CPU    time.Duration // in process: the time that the run did not wait, of its whole Turn
	Memory int64         // bytes, at the most; in process: all that was allocated for values
}
