package wasm

import (
	"errors"
	"fmt"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/sdk/abi"
)

// Reason is why a call of a guest failed.
type Reason uint8

// The reasons. A guest that refuses a message does not fail: its refusal is an
// operation in the record that it returns.
const (
	Trap      Reason = iota // an instruction that cannot be done, or an exit
	Fuel                    // all its fuel is used up
	Deadline                // all its time is used up
	Stack                   // functions that call each other too deep
	Memory                  // a trap after it was refused more memory
	Broken                  // a breach of the ABI: a result outside of its memory, a bad argument
	Saturated               // no instance became free in time
	Open                    // it failed so often on messages of this sender that they rest for a while
	Canceled                // the message it was for is not wanted any more
	Unmade                  // no instance can be made
	reasons
)

// Reasons is how many there are.
const Reasons = int(reasons)

func (r Reason) String() string {
	return [...]string{"trap", "fuel", "deadline", "stack", "memory", "abi", "saturated", "breaker", "canceled", "instance", "unknown"}[min(r, reasons)]
}

// fault says that the guest failed on the message, which the breaker counts.
func (r Reason) fault() bool { return r <= Broken }

// Failure is a call that failed. To clients it is an edge.Error of the kind
// Overload, without the details.
type Failure struct {
	Guest  string
	Hook   abi.Hook
	Reason Reason
	Detail string // of a trap: what the engine said, and what the guest said on its standard error and in lines of the level error
}

func (f *Failure) Error() string {
	if f.Detail == "" {
		return fmt.Sprintf("guest %q: %v: %v", f.Guest, f.Hook, f.Reason)
	}
	return fmt.Sprintf("guest %q: %v: %v: %s", f.Guest, f.Hook, f.Reason, f.Detail)
}

// Unwrap returns the error for clients.
func (f *Failure) Unwrap() error {
	return edge.Errorf(edge.Overload, "guest", "filter %q is not available", f.Guest)
}

// What ends a call from within a host function.
var (
	errFuel     = errors.New("out of fuel")
	errDeadline = errors.New("out of time")
	errDeep     = errors.New("functions call each other too deep")
	errABI      = errors.New("it points outside of memory")
	errCanceled = errors.New("the call is not wanted any more")
	errExit     = errors.New("the guest ended itself")
)
