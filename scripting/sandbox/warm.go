package sandbox

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/wasm"
)

//go:embed warm.star
var warmText string

// warmRun is the run that each instance has behind it when its image is taken. It belongs
// to nobody: what a script could find of it is in this program's sources.
func (e *Engine) warmRun() (*wasm.ScriptRun, error) {
	p, err := scripting.Compile("warm.star", warmText, scripting.Scope{
		Tool: func(name string) (string, bool) { return name, name == "tool" || name == "bad" },
		Data: []string{"data_text", "data_number"},
	})
	if err != nil {
		return nil, fmt.Errorf("sandbox: warm.star: %w", err)
	}
	of := &scripting.Run{
		Program: p,
		Data:    []byte(`{"data_text":"text","data_number":1.5}`),
		Call:    warmCall,
		Limits:  scripting.Limits{Steps: 1_000_000},
	}
	alone := &Engine{options: e.options}
	alone.options.Places = nil // it computes beside nobody
	one, err := alone.prepare("", of)
	if err != nil {
		return nil, err
	}
	return one.script(e.life), nil
}

func warmCall(_ context.Context, c *scripting.Call) scripting.Answer {
	switch {
	case c.Tool == "bad":
		return scripting.Answer{Error: &scripting.Fault{Message: `tool "bad": is bad`, Code: 500, Data: []byte(`{"why":["it","is"]}`)}}
	case c.Kind == scripting.KindList:
		return scripting.Answer{Value: []byte(`["tool","bad"]`)}
	}
	return scripting.Answer{Value: []byte(`{"items":[{"id":1,"name":"one","tags":["a","b"],"price":1.5,"gone":null},{"id":12345678901234567890,"ok":true}],"text":"\u00fcber"}`)}
}

// warmed says whether the warm run came to its end: an instance that failed at it would
// make every run start from a failure.
func warmed(out []byte) error {
	end, err := scripting.LoadEnd(out)
	if err != nil {
		return err
	}
	if e := end.Error; e != nil {
		return fmt.Errorf("warm.star:%d:%d: %s", e.Line, e.Column, e.Message)
	}
	if len(end.Value) == 0 {
		return errors.New("warm.star: no result")
	}
	return nil
}
