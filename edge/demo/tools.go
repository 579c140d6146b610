package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	wire "github.com/weir-edge/weir/edge/mcp"
)

const instructions = `This server is built into Weir so that there is something to try.
Start with the tool echo. countdown shows progress, ask_name asks you a question,
slow shows a call that takes its time; the resource demo://weather/today is a
weather report that is made up and never changes.`

// demo is what the tools share.
type demo struct {
	stopped context.Context // done when the server ends
	pace    time.Duration   // between two numbers of a countdown
}

// offer makes the server and all that it offers. stopped ends what waits.
func offer(stopped context.Context, pace time.Duration) *mcp.Server {
	d := demo{stopped: stopped, pace: pace}
	s := mcp.NewServer(&mcp.Implementation{
		Name:        "weir-demo",
		Title:       "Weir demo",
		Description: "A small server of both protocol eras, built into Weir.",
		Version:     "1.0.0",
	}, &mcp.ServerOptions{
		Instructions:      instructions,
		CompletionHandler: complete,
		// Nothing here ever changes, so no list is said to.
		Capabilities: &mcp.ServerCapabilities{
			Logging:   &mcp.LoggingCapabilities{},
			Tools:     &mcp.ToolCapabilities{},
			Prompts:   &mcp.PromptCapabilities{},
			Resources: &mcp.ResourceCapabilities{},
		},
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) {
			c.TTLMs, c.CacheScope = 60_000, "public"
		},
	})
	mcp.AddTool(s, &mcp.Tool{
		Name:        "echo",
		Title:       "Echo",
		Description: "Answers with the text that it is given, and logs that it did.",
		Annotations: harmless(),
		InputSchema: schema(`"text":{"type":"string","description":"What to say back."}`, "text"),
	}, d.echo)
	mcp.AddTool(s, &mcp.Tool{
		Name:        "add",
		Title:       "Add",
		Description: "Adds two numbers and answers with their sum, as text and as structured content.",
		Annotations: harmless(),
		InputSchema: schema(`"a":{"type":"number","description":"The first number."},`+
			`"b":{"type":"number","description":"The second number."}`, "a", "b"),
		OutputSchema: schema(`"sum":{"type":"number","description":"a plus b."}`, "sum"),
	}, d.add)
	mcp.AddTool(s, &mcp.Tool{
		Name:  "countdown",
		Title: "Count down",
		Description: "Counts down to zero, four numbers a second, with a progress notification for each " +
			"when the caller asks for progress.",
		Annotations: harmless(),
		InputSchema: schema(`"from":{"type":"integer","minimum":1,"maximum":100,"description":"Where to start."}`, "from"),
	}, d.countdown)
	mcp.AddTool(s, &mcp.Tool{
		Name:        "ask_name",
		Title:       "Ask for a name",
		Description: "Asks the user for a name (an elicitation) and answers with a greeting.",
		Annotations: harmless(),
		InputSchema: schema(``),
	}, d.askName)
	mcp.AddTool(s, &mcp.Tool{
		Name:        "slow",
		Title:       "Take time",
		Description: "Answers after so many seconds, unless the call is cancelled before.",
		Annotations: harmless(),
		InputSchema: schema(`"seconds":{"type":"number","minimum":0,"maximum":20,"description":"How long to take."}`, "seconds"),
	}, d.slow)
	addWeather(s)
	s.AddPrompt(&mcp.Prompt{
		Name:        "greet",
		Title:       "Greet somebody",
		Description: "Asks the model for a short greeting.",
		Arguments: []*mcp.PromptArgument{
			{Name: "name", Title: "Name", Description: "Who is greeted.", Required: true},
		},
	}, greet)
	return s
}

// schema is the JSON Schema of an object with the properties given as JSON
// text, and no others.
func schema(properties string, required ...string) json.RawMessage {
	if len(required) == 0 {
		return json.RawMessage(`{"type":"object","properties":{` + properties + `},"additionalProperties":false}`)
	}
	return json.RawMessage(`{"type":"object","properties":{` + properties + `},"required":["` +
		strings.Join(required, `","`) + `"],"additionalProperties":false}`)
}

// harmless are the annotations of a tool that changes nothing anywhere.
func harmless() *mcp.ToolAnnotations {
	no := false
	return &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, DestructiveHint: &no, OpenWorldHint: &no}
}

func text(format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

type echoInput struct {
	Text string `json:"text"`
}

func (d demo) echo(ctx context.Context, r *mcp.CallToolRequest, in echoInput) (*mcp.CallToolResult, any, error) {
	// The SDK sends it only to a client that asked for this level or a lower
	// one; a client that has gone misses nothing else.
	_ = r.Session.Log(ctx, &mcp.LoggingMessageParams{
		Level: "info", Logger: "demo", Data: fmt.Sprintf("echoed %d characters", utf8.RuneCountInString(in.Text)),
	})
	return text("%s", in.Text), nil, nil
}

type addInput struct {
	A float64 `json:"a"`
	B float64 `json:"b"`
}

type addOutput struct {
	Sum float64 `json:"sum"`
}

func (d demo) add(_ context.Context, _ *mcp.CallToolRequest, in addInput) (*mcp.CallToolResult, addOutput, error) {
	sum := in.A + in.B
	if math.IsInf(sum, 0) {
		return nil, addOutput{}, fmt.Errorf("the sum of %g and %g is too large to say", in.A, in.B)
	}
	number, err := json.Marshal(sum)
	if err != nil {
		return nil, addOutput{}, err
	}
	return text("%s", number), addOutput{Sum: sum}, nil
}

type countdownInput struct {
	From int `json:"from"`
}

func (d demo) countdown(ctx context.Context, r *mcp.CallToolRequest, in countdownInput) (*mcp.CallToolResult, any, error) {
	token := r.Params.GetProgressToken()
	for left := in.From; left > 0; left-- {
		if token != nil {
			_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token,
				Progress:      float64(in.From - left + 1),
				Total:         float64(in.From),
				Message:       fmt.Sprintf("%d …", left),
			})
		}
		if err := d.wait(ctx, d.pace); err != nil {
			return nil, nil, err
		}
	}
	return text("Lift-off!"), nil, nil
}

type slowInput struct {
	Seconds float64 `json:"seconds"`
}

func (d demo) slow(ctx context.Context, _ *mcp.CallToolRequest, in slowInput) (*mcp.CallToolResult, any, error) {
	if err := d.wait(ctx, time.Duration(in.Seconds*float64(time.Second))); err != nil {
		return nil, nil, err
	}
	return text("That took %g seconds.", in.Seconds), nil, nil
}

// wait returns after so long, or with an error when the call is cancelled or
// the server ends before.
func (d demo) wait(ctx context.Context, long time.Duration) error {
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the call ended early: %w", context.Cause(ctx))
	case <-d.stopped.Done():
		return errors.New("the server is ending")
	}
}

// askName returns the question for the client to answer. In the modern era
// that is the result, and the client calls again with the answer; for an older
// client the SDK asks during the call and calls again itself.
func (d demo) askName(_ context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
	if answer, ok := r.Params.InputResponses["name"].(*mcp.ElicitResult); ok && answer != nil {
		name, _ := answer.Content["name"].(string)
		if answer.Action == "accept" && name != "" {
			return text("Hello, %s!", name), nil, nil
		}
		return text("Hello, whoever you are!"), nil, nil
	}
	if c := r.ClientCapabilities(); c == nil || c.Elicitation == nil || (c.Elicitation.Form == nil && c.Elicitation.URL != nil) {
		return nil, nil, cannotAsk(r)
	}
	return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"name": &mcp.ElicitParams{
		Mode:    "form",
		Message: "What is your name?",
		RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string","title":"Name",` +
			`"description":"What the greeting calls you."}},"required":["name"]}`),
	}}}, nil, nil
}

// cannotAsk is the error for a client that has not said it can ask its user:
// in the modern era -32021 with the capabilities that are needed (2026-07-28,
// lifecycle), in the older one, which has no code for it, a failed tool.
func cannotAsk(r *mcp.CallToolRequest) error {
	const what = "ask_name needs a client that can ask its user: declare the elicitation capability"
	if p := r.Session.InitializeParams(); p != nil && p.ProtocolVersion < wire.V2607 {
		return errors.New(what)
	}
	return &jsonrpc.Error{
		Code:    mcp.CodeMissingRequiredClientCapabilities,
		Message: what,
		Data:    json.RawMessage(`{"requiredCapabilities":{"elicitation":{"form":{}}}}`),
	}
}

func greet(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	name := r.Params.Arguments["name"]
	if name == "" {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "greet needs the argument name"}
	}
	return &mcp.GetPromptResult{
		Description: "A greeting for " + name,
		Messages: []*mcp.PromptMessage{{
			Role:    "user",
			Content: &mcp.TextContent{Text: "Greet " + name + " in one short and friendly sentence."},
		}},
	}, nil
}
