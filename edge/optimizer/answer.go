package optimizer

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// bytesPerToken is how many bytes of JSON count as one token.
const bytesPerToken = 4

// MetaExplain is the member of a request's _meta that asks for the scores of what is found.
const MetaExplain = "weir.dev/explain"

// RunFind answers a call of find_tool. It is a route.LocalTool.
func (o *Optimizer) RunFind(ctx context.Context, x *edge.Exchange, arguments []byte, _ func(edge.Client) edge.Caller) (*edge.Response, error) {
	began := time.Now()
	if err := object(arguments); err != nil {
		return nil, err
	}
	q, why := readFind(arguments)
	if why != "" {
		o.Counters.find.done(time.Since(began), true)
		return misused(x, why)
	}
	a, err := o.search(ctx, x, q)
	o.Counters.find.done(time.Since(began), err != nil)
	if err != nil {
		return nil, err
	}
	return a.reply(x, o.Counters)
}

// Pass makes a call in place of that of call_tool: the client's own message, with another
// name and other arguments. there is whether there is such a tool.
type Pass func(ctx context.Context, tool string, arguments []byte) (r *edge.Response, there bool, err error)

// RunCall answers a call of call_tool.
func (o *Optimizer) RunCall(ctx context.Context, x *edge.Exchange, arguments []byte, pass Pass) (*edge.Response, error) {
	began := time.Now()
	if err := object(arguments); err != nil {
		return nil, err
	}
	tool, parameters, why := ReadCall(arguments)
	if why != "" {
		o.Counters.call.done(time.Since(began), true)
		return misused(x, why)
	}
	r, there, err := pass(ctx, tool, parameters)
	o.Counters.call.done(time.Since(began), err != nil)
	if !there {
		o.Counters.missed.Add(1)
	}
	if !there && edge.KindOf(err) == edge.NotFound { // no policy has said more of it
		return failed(x, "tool not found: "+edge.Brief(tool)+"; find_tool tells what there is")
	}
	return r, err
}

// object refuses arguments that are no object.
func object(arguments []byte) error {
	if len(arguments) > 0 && arguments[0] != '{' && arguments[0] != 'n' {
		return edge.Errorf(edge.Params, "optimizer", "params.arguments is not an object")
	}
	return nil
}

// misused answers a call with a wrong argument, which a model reads and mends.
func misused(x *edge.Exchange, why string) (*edge.Response, error) {
	return failed(x, "invalid arguments: "+why)
}

func failed(x *edge.Exchange, what string) (*edge.Response, error) {
	out := append(begin(x), `"content":[{"type":"text","text":`...)
	return edge.Reply(x.Request, append(mcp.AppendString(out, what), `}],"isError":true}`...))
}

// begin begins a result.
func begin(x *edge.Exchange) []byte {
	if x.Era == mcp.Modern {
		return []byte(`{"resultType":"complete",`)
	}
	return []byte{'{'}
}

// reply makes the answer of find_tool.
func (a *answered) reply(x *edge.Exchange, c *Counters) (*edge.Response, error) {
	tools := []byte{'['}
	for i, t := range a.tools {
		if i > 0 {
			tools = append(tools, ',')
		}
		tools = append(tools, t.definition...)
	}
	tools = append(tools, ']')
	baseline, returned := a.baseline/bytesPerToken, len(tools)/bytesPerToken
	saved := 0.0
	if baseline > returned {
		saved = math.Round(1000*float64(baseline-returned)/float64(baseline)) / 10
	}
	c.found(len(a.tools), saved)

	structured := append(append([]byte(`{"tools":`), tools...), `,"token_metrics":{"baseline_tokens":`...)
	structured = append(strconv.AppendInt(structured, int64(baseline), 10), `,"returned_tokens":`...)
	structured = append(strconv.AppendInt(structured, int64(returned), 10), `,"savings_percent":`...)
	structured = append(strconv.AppendFloat(structured, saved, 'f', -1, 64), "}}"...)

	out := append(begin(x), `"content":[{"type":"text","text":`...)
	out = append(append(mcp.AppendString(out, string(structured)), `}],"structuredContent":`...), structured...)
	out = append(out, `,"_meta":{"weir.dev/search":"`...)
	if a.hybrid {
		out = append(out, `hybrid"`...)
	} else {
		out = append(out, `keyword"`...)
	}
	if bytes.Equal(x.Request.Meta(MetaExplain).Of(x.Request.Raw), []byte("true")) {
		scores, err := json.Marshal(a.scores())
		if err != nil {
			return nil, edge.Errorf(edge.Internal, "optimizer", "%w", err)
		}
		out = append(append(out, `,"weir.dev/scores":`...), scores...)
	}
	return edge.Reply(x.Request, append(out, "}}"...))
}

// score says why a tool was found: both parts of its score, and the words that it has.
type score struct {
	Name    string   `json:"name"`
	Keyword float64  `json:"keyword"`
	Vector  float64  `json:"vector"`
	Words   []string `json:"words"`
}

func (a *answered) scores() []score {
	all := []score{}
	for _, t := range a.tools {
		all = append(all, score{t.name, t.keyword, t.vector, t.words})
	}
	return all
}
