package sandbox

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/scripting/turns"
	"github.com/weir-edge/weir/wasm"
)

// FuzzEnd: whatever a guest says of a run becomes an outcome within the bounds.
func FuzzEnd(f *testing.F) {
	end := func(e scripting.End) []byte { return e.Encode() }
	value, _ := scripting.FromJSON([]byte(`{"a":[1,2.5,"x",null,true,123456789012345678901234567890]}`))
	f.Add(end(scripting.End{Value: value, Steps: 7}))
	f.Add(end(scripting.End{Error: &scripting.Error{Message: "no", Line: 1, Column: 2, Tool: "t", Frames: []string{"a", "b"}}}))
	f.Add([]byte{3, 0, 0, 0, 0, 0, 0, 0, 255, 3})
	f.Add([]byte(nil))
	e := &Engine{options: defaults(Options{})}
	p, err := scripting.Compile("script.star", "return 1", scripting.Scope{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, out []byte) {
		r, err := e.prepare("me", &scripting.Run{Program: p, Call: tools{}.call})
		if err != nil {
			t.Fatal(err)
		}
		o, err := r.ended(out)
		if err != nil {
			t.Fatalf("what a guest says is a defect of the host: %v", err)
		}
		if (o.Error == nil) == (o.Value == nil) {
			t.Fatalf("an outcome with the value %q and the error %v", o.Value, o.Error)
		}
		if o.Error == nil && (!json.Valid(o.Value) || len(o.Value) > scripting.MaxOut) || o.Steps > r.limits.Steps {
			t.Fatalf("%q after %d steps", o.Value, o.Steps)
		}
		if x := o.Error; x != nil && (len(x.Message) > scripting.MaxMessage+8 || len(x.Frames) > scripting.MaxFrames || x.Line < 0 || x.Column < 0) {
			t.Fatalf("%+v", x)
		}
	})
}

// FuzzGuest: whatever a guest asks for, in any order, the host answers within its bounds
// or ends the run.
func FuzzGuest(f *testing.F) {
	f.Add([]byte("s0 w a0 p x"), []byte{0, 0, 0, 0, 0, 8, 0, 0, 0, 0})
	f.Add([]byte("sssswwwwaaaa"), []byte("garbage"))
	f.Add([]byte("wap"), []byte(nil))
	e := &Engine{options: defaults(Options{})}
	p, err := scripting.Compile("script.star", "return 1", scripting.Scope{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, does, args []byte) {
		made := 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		e := &Engine{options: e.options}
		e.options.Places = turns.New(1, 0)
		r, err := e.prepare("me", &scripting.Run{Program: p, Limits: scripting.Limits{Parallel: 1, Calls: 20}, Call: func(_ context.Context, c *scripting.Call) scripting.Answer {
			made++
			if c.Arguments != nil && !json.Valid(c.Arguments) {
				t.Errorf("arguments %q", c.Arguments)
			}
			return scripting.Answer{Value: c.Arguments}
		}})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.turn.Begin(ctx); err != nil {
			t.Fatal(err)
		}
		host := r.script(ctx).Host
		for i, c := range does {
			var err error
			switch c {
			case 's':
				_, err = host.Submit(ctx, uint32(does[(i+1)%len(does)]%4), args[:min(len(args), i)], args)
			case 'w':
				_, err = host.Wait(ctx, time.Duration(int8(does[(i+1)%len(does)])))
			case 'a':
				host.Answer(int64(i))
				host.Forget(int64(i))
			case 'p':
				err = host.Print(args)
			default:
				host.Progress(float64(c), 1, args)
			}
			if err != nil {
				break
			}
		}
		r.turn.Rest()
		r.calls.Close()
		r.count(wasm.Used{})
		if made > 20 || r.outcome.Calls > 20 || len(r.outcome.Logs) > scripting.MaxLogLines || e.options.Places.Free() != 1 {
			t.Errorf("%d calls, %d lines, %d turns", made, len(r.outcome.Logs), e.options.Places.Free())
		}
	})
}
