package composite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/scripting/workflow"
)

// stepClient is the way back from a call of a step: what the backend asks reaches the
// client under a name that begins with that of the step.
type stepClient struct {
	edge.Client
	request context.Context // of the client's own call
	step    string
	wait    time.Duration
}

// stepOf names the step of a call, and the item of a forEach.
func stepOf(c *workflow.Call) string {
	if c.Item >= 0 {
		return c.Step + "." + strconv.Itoa(c.Item)
	}
	return c.Step
}

// Ask puts the questions to the client.
func (s *stepClient) Ask(ctx context.Context, questions map[string]edge.Question) (map[string]edge.Answer, error) {
	if s.Client == nil {
		return edge.NoClient{}.Ask(ctx, questions)
	}
	named := make(map[string]edge.Question, len(questions))
	for key, q := range questions {
		q.Key = edge.Cut(strings.TrimPrefix(s.step+"."+key, "."), maxKey)
		named[key] = q
	}
	ctx, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	_ = s.request.Done() // so it is not used again: the question may outlive the call
	asked, end := withdrawn(ctx, s.request, "the step goes on without an answer")
	defer end()
	answers, err := s.Client.Ask(asked, named)
	if err != nil && ctx.Err() != nil {
		err = edge.Errorf(edge.Gone, "ask", "%w", context.Cause(ctx))
	}
	return answers, err
}

// withdrawn returns the context of a question that is asked until ctx ends, and what ends it when
// it was answered. Who asks no longer says so (2025-11-25, basic/utilities/cancellation), unless
// the client itself has ended its request.
func withdrawn(ctx, request context.Context, why string) (context.Context, func()) {
	asked, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if request.Err() != nil {
			end(context.Cause(request))
			return
		}
		w := &edge.Withdrawn{Reason: why}
		_ = errors.As(context.Cause(ctx), &w) // the server itself has withdrawn it, perhaps, and says why
		end(w)
	})
	return asked, func() { stop(); end(nil) }
}

// maxKey bounds the key of a question, in bytes.
const maxKey = 256

// Unanswered is Ask where the client has said that it cannot be asked.
func (s *stepClient) Unanswered() { unanswered(s.Client) }

// unanswered says to a client that wants to know that it was not asked.
func unanswered(c edge.Client) {
	if c, ok := c.(interface{ Unanswered() }); ok {
		c.Unanswered()
	}
}

var errNobody = errors.New("the client cannot be asked")

// ask asks the client, in its era.
func (r *run) ask(ctx context.Context, q *workflow.Question) (*workflow.Reply, error) {
	params := mcp.Change([]byte("{}"), nil, mcp.With("message", string(mcp.Quote(q.Message))), mcp.Raw("requestedSchema", q.Schema))
	caps := r.x.Request.Meta(mcp.MetaCapabilities).Of(r.x.Request.Raw)
	if r.x.Era == mcp.Legacy && r.x.Session != nil {
		caps = r.x.Session.Capabilities
	}
	if r.x.Client == nil || !mcp.Can(caps, "elicitation/create", params) {
		unanswered(r.x.Client)
		return nil, errNobody
	}
	patient, cancel := context.WithTimeout(ctx, r.tool.o.Wait)
	defer cancel()
	asked, end := withdrawn(patient, r.request, "the workflow goes on without an answer")
	defer end()
	answers, err := r.x.Client.Ask(asked, map[string]edge.Question{q.Step: {Method: "elicitation/create", Params: params, Key: q.Step}})
	var e *edge.Error
	switch {
	case errors.As(err, &e) && e.Kind == edge.NoMethod:
		return nil, errNobody
	case err != nil && ctx.Err() == nil && (patient.Err() != nil || edge.KindOf(err) == edge.Gone): // nobody answered, or is there any longer, which is to cancel
		return &workflow.Reply{Action: "cancel"}, nil
	case err != nil:
		return nil, err
	}
	a := answers[q.Step]
	if a.Result == nil {
		return nil, errors.New("the client cannot be asked: " + edge.Clean(edge.Brief(mcp.String(mcp.Lookup(a.Error, "message")))))
	}
	return &workflow.Reply{Action: mcp.String(mcp.Lookup(a.Result, "action")), Content: mcp.Lookup(a.Result, "content")}, nil
}

// begin begins a step for traces.
func (r *run) begin(ctx context.Context, step string) (context.Context, func(failed string)) {
	return r.tool.o.Begin(ctx, r.tool.w.Name(), step)
}

// observe has what happens recorded, and tells the client which steps have ended.
func (r *run) observe(e workflow.Event) {
	if e.Kind == workflow.StepRetried {
		r.tool.o.Counters.retried()
	}
	if r.tool.o.Observe != nil {
		r.tool.o.Observe(r.x, e)
	}
	switch e.Kind {
	case workflow.StepCompleted, workflow.StepFailed, workflow.StepSkipped:
		if r.told {
			r.outer.Progress(float64(e.Done), float64(e.Steps), fmt.Sprintf("step %s: %s", e.Step, strings.TrimPrefix(string(e.Kind), "step_")))
		}
	}
}

// progress tells what a script says of itself.
func (r *run) progress(done, total float64, message string) {
	if r.told {
		r.outer.Progress(done, total, message)
	}
}

// other answers list_tools() and describe_tool() of a script: what a workflow may call, by
// whole names.
func (r *run) other(_ context.Context, kind scripting.Kind, tool string) scripting.Answer {
	if kind == scripting.KindList {
		names, _ := json.Marshal(r.catalog.Wholes()) // texts
		return scripting.Answer{Value: names}
	}
	at := target(r.catalog, tool)
	if at == nil {
		return scripting.Answer{Error: &scripting.Fault{Message: fmt.Sprintf("tool %q: not found", edge.Brief(tool)), Code: 404}}
	}
	definition := r.catalog.Definition(at)
	set := []mcp.Member{mcp.Raw("name", mcp.Quote(tool))}
	for _, member := range []string{"title", "description", "inputSchema", "outputSchema", "annotations"} {
		if v := mcp.Lookup(definition, member); v != nil {
			set = append(set, mcp.Raw(member, v))
		}
	}
	return scripting.Answer{Value: mcp.Change(nil, nil, set...)}
}
