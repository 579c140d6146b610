package scripting

import (
	"errors"
	"fmt"
	"strings"

	"go.starlark.net/starlark"
)

// Broken is the message of a run that ended by a defect of the interpreter.
const Broken = "the interpreter failed"

// End is what the interpreter says at the end of a run.
type End struct {
	Value []byte // wire form; nil for an error
	Error *Error
	Steps uint64
	Calls int
}

// report makes an Error of what ended a run. Only functions of the text have frames.
func (r *run) report(err error) *Error {
	e, more := &Error{}, ""
	for err != nil {
		var eval *starlark.EvalError
		if !errors.As(err, &eval) {
			break
		}
		for _, f := range eval.CallStack {
			if f.Pos.Filename() != r.program.Filename() || f.Name == "<toplevel>" && !r.whole {
				continue
			}
			e.Line, e.Column = int(f.Pos.Line), int(f.Pos.Col)
			e.Frames = append(e.Frames, frame(f))
		}
		var child *inChild
		if !errors.As(eval.Unwrap(), &child) {
			break
		}
		err, more = child.err, child.suffix()+more
	}
	if r.final != nil {
		e.Spent = r.final.Spent
	} else if errors.Is(err, errValueBytes) || errors.Is(err, errValueElements) {
		e.Cause, e.Spent = Budget, MemorySpent
	}
	e.Frames = e.Frames[max(0, len(e.Frames)-MaxFrames):]
	var tool *raised
	var panicked *Fault // in a task
	switch {
	case r.final != nil:
		e.Message, e.Cause = Clean(r.final.Message), r.final.Cause
	case errors.As(err, &tool):
		e.Tool = tool.tool
		e.Message = Clean(err.Error()) + more
	case err != nil:
		e.Message = Clean(err.Error()) + more
		if errors.As(err, &panicked) {
			e.Cause, e.Spent = panicked.Cause, panicked.Spent
		}
	}
	return e
}

func frame(f starlark.CallFrame) string {
	name := f.Name
	if name == entry {
		name = "script"
	}
	return Clean(fmt.Sprintf("%s:%d:%d: in %s", f.Pos.Filename(), f.Pos.Line, f.Pos.Col, clip(name, 64)))
}

// Encode writes the end for the host of a guest: what LoadEnd reads.
func (e *End) Encode() []byte {
	b := make([]byte, 0, len(e.Value)+64)
	b = appendInt(b, int64(e.Steps))
	b = appendInt(b, int64(e.Calls))
	if e.Error == nil {
		return append(append(b, answerValue), e.Value...)
	}
	b = append(b, answerFault)
	b = appendInt(b, int64(e.Error.Cause))
	b = appendInt(b, int64(e.Error.Line))
	b = appendInt(b, int64(e.Error.Column))
	for _, s := range append([]string{e.Error.Message, e.Error.Tool}, e.Error.Frames...) {
		b = appendBytes(b, s)
	}
	return b
}

// LoadEnd reads what Encode wrote. The bytes may come from a hostile guest: texts are
// cleaned, and numbers that cannot be are zero. The value is not looked at: ToJSON does.
func LoadEnd(b []byte) (*End, error) {
	r := reader{rest: b, left: 8}
	var failed error
	number := func() int {
		tag, err := r.tag()
		n, err2 := r.uint64()
		if failed = errors.Join(failed, err, err2); failed != nil || tag != tagInt || n > 1<<40 {
			return 0
		}
		return int(n)
	}
	e := &End{Steps: uint64(number()), Calls: number()}
	kind, err := r.tag()
	if failed = errors.Join(failed, err); failed != nil {
		return nil, failed
	}
	if kind == answerValue {
		e.Value = r.rest
		return e, nil
	}
	if e.Error = (&Error{Cause: Cause(number())}); e.Error.Cause > Defect {
		e.Error.Cause = Mistake
	}
	e.Error.Line, e.Error.Column = number(), number()
	var texts []string
	for len(r.rest) > 0 && len(texts) < MaxFrames+2 && failed == nil {
		s, err := r.bytes()
		failed = errors.Join(failed, err)
		texts = append(texts, Clean(strings.ToValidUTF8(string(clipBytes(s)), "\ufffd")))
	}
	if failed != nil || len(texts) < 2 {
		return nil, errors.Join(failed, errors.New("no end of a run"))
	}
	e.Error.Message, e.Error.Tool, e.Error.Frames = texts[0], texts[1], texts[2:]
	return e, nil
}

func clipBytes(b []byte) []byte { return b[:min(len(b), 2*MaxMessage)] }
