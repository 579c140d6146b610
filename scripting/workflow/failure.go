package workflow

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.starlark.net/starlark"

	"github.com/weir-edge/weir/scripting"
)

// failure is an error of a call, a question or a template. attempt() catches it.
type failure struct {
	error
	message string
	again   bool          // retry() may try again
	after   time.Duration // not earlier

	unanswered bool // nobody answered a question
}

func (f *failure) Unwrap() error { return f.error }

// failed makes a failure that is not tried again.
func failed(format string, args ...any) *failure {
	message := fmt.Sprintf(format, args...)
	return &failure{error: scripting.Raise("", scripting.Fault{Message: message}), message: message}
}

// failedCall makes the failure of a call.
func failedCall(tool string, f *Fault) *failure {
	message := scripting.Clean(f.Message)
	again := slices.Contains([]int{408, 429, 502, 503, 504}, f.Code)
	return &failure{error: scripting.Raise(tool, scripting.Fault{Message: message, Code: f.Code}), message: message, again: again, after: f.After}
}

// maxPassing is how many failures of call_tool() are kept: of the calls of one parallel().
const maxPassing = 1000

// mayPass keeps a failure of call_tool() that retry() may try again. Of its error the
// interpreter keeps the text alone.
func (r *run) mayPass(f *failure) {
	r.failed.Lock()
	defer r.failed.Unlock()
	if len(r.mayBe) < maxPassing {
		r.mayBe = append(r.mayBe, f)
		return
	}
	r.mayBe[r.oldest] = f
	r.oldest = (r.oldest + 1) % maxPassing
}

// passing is the failure in an error that retry() may try again; nil for none.
func (r *run) passing(err error) *failure {
	var own *failure
	if errors.As(err, &own) {
		if own.again {
			return own
		}
		return nil
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	r.failed.Lock()
	defer r.failed.Unlock()
	for i := range r.mayBe { // the latest first: one of the same text may have said another time before
		f := r.mayBe[(r.oldest-1-i+2*len(r.mayBe))%len(r.mayBe)]
		rest, same := strings.CutPrefix(err.Error(), f.message)
		if same && (rest == "" || strings.HasPrefix(rest, " (and ")) { // parallel() says how many more there are
			return f
		}
	}
	return nil
}

// message is what an error of the language or of a builtin says of itself. An error of the
// language says where it is.
func (r *run) message(err error) string {
	var own *failure
	if errors.As(err, &own) {
		return scripting.Clean(own.message)
	}
	var eval *starlark.EvalError
	if errors.As(err, &eval) {
		file := r.w.program.File()
		for i := len(eval.CallStack) - 1; i >= 0; i-- {
			if pos := eval.CallStack[i].Pos; pos.Filename() == file {
				return scripting.Clean(fmt.Sprintf("%d:%d: %s", pos.Line, pos.Col, eval.Unwrap()))
			}
		}
	}
	return scripting.Clean(err.Error())
}

// truth reads true or false, in any case, with spaces around it.
func truth(s string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%s is neither true nor false", shown(s))
}
