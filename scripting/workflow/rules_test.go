package workflow_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/scripting/workflow"
)

// TestRules holds every rule that a composite tool is held to when it is parsed.
func TestRules(t *testing.T) {
	one := func(step string) string { return "steps: [{id: a, tool: w.t}, {id: b, tool: w.t, " + step + "}]" }
	closed := "parameters: {type: object, properties: {x: {type: string}}, additionalProperties: false}\n"
	for _, c := range []struct{ name, yaml, want string }{
		// The model's rules come too.
		{"the model's rules", "steps: [{id: a, tool: w.t, dependsOn: [z]}]", `steps[0].dependsOn[0]: Invalid value: "z": must be the id of a step`},
		{"neither", "description: x", "steps: Required value: one of steps and script must be set"},
		{"X17 a cycle", "steps: [{id: a, tool: w.t, dependsOn: [b]}, {id: b, tool: w.t, dependsOn: [a]}]", "the steps wait for each other: a → b → a"},
		{"X17 an id twice", "steps: [{id: a, tool: w.t}, {id: a, tool: w.t}]", "steps[1].id: Duplicate value"},
		{"X17 an id with a dot", "steps: [{id: a.b, tool: w.t}]", "steps[0].id: Invalid value"},
		{"X18 a forEach within a forEach", "steps: [{id: a, type: forEach, collection: x, step: {type: forEach, tool: w.t}}]", "steps[0].step.type"},
		{"X18 too many iterations", "steps: [{id: a, type: forEach, collection: x, maxIterations: 1001, step: {tool: w.t}}]", "steps[0].maxIterations"},
		{"X19 too many retries", one("onError: {action: retry, retryCount: 1000000000}"), "steps[1].onError.retryCount"},
		{"X15 defaults of a step that may be skipped", "steps: [{id: a, tool: w.t, condition: \"{{.params.x}}\"}, {id: b, tool: w.t, arguments: {x: \"{{.steps.a.output.y}}\"}}]", "steps[0].defaultResults: Required value"},
		{"a template that cannot be parsed", one(`condition: "{{.a"`), "steps[1].condition: Invalid value"},
		{"X13 a function of nobody", one(`condition: "{{exec 1}}"`), `function "exec" not defined`},

		// Those of this package.
		{"X17 an id that begins with __", "steps: [{id: __proto__, tool: w.t}]", "steps[0].id: must not begin with __"},
		{"a parameter of nobody", closed + one(`arguments: {x: "{{.params.y}}"}`), "steps[1].arguments[x]: there is no parameter y"},
		{"a parameter by index", closed + one(`arguments: {x: "{{index .params \"y\"}}"}`), "steps[1].arguments[x]: there is no parameter y"},
		{"a step of nobody by index", one(`condition: "{{(index .steps \"no-one\").status}}"`), "steps[1].condition: there is no step no-one"},
		{"a part of a step that it does not have", one(`condition: "{{.steps.a.result}}"`), "steps[1].condition: a step has status, output, content and error, and no result"},
		{"a name of nobody", one(`condition: "{{.step.a}}"`), "steps[1].condition: there is no .step: a template reads .params, .steps, .vars, .workflow and .forEach"},
		{"a name of nobody in a workflow", one(`condition: "{{.workflow.name}}"`), "steps[1].condition: a workflow has no name"},
		{"forEach outside", one(`condition: "{{.forEach.item}}"`), "steps[1].condition: .forEach is there only within a forEach"},
		{"a collection reads no forEach", "steps: [{id: a, type: forEach, collection: \"{{.forEach.item}}\", step: {tool: w.t}}]", "steps[0].collection: .forEach is there only within a forEach"},
		{"a name of nobody within", "steps: [{id: a, type: forEach, collection: \"[]\", itemVar: row, step: {tool: w.t, arguments: {x: \"{{.forEach.item}}\"}}}]", "steps[0].step.arguments[x]: .forEach has row and index, and no item"},
		{"a step that reads itself", one(`condition: "{{.steps.b.status}}"`), "steps[1].condition: step b reads itself"},
		{"a read that closes a circle", `steps: [{id: a, tool: w.t, arguments: {x: "{{.steps.b.status}}"}}, {id: b, tool: w.t, dependsOn: [a]}]`, "steps[0].arguments[x]: step a reads step b, which waits for step a: the steps wait for each other"},
		{"two reads that close a circle", `steps: [{id: a, tool: w.t, condition: "{{.steps.b.status}}"}, {id: b, tool: w.t, condition: "{{.steps.a.status}}"}]`, "steps[1].condition: step b reads step a, which waits for step b"},
		{"a default that is not of its type", "steps: [{id: a, tool: w.t}]\noutput: {properties: {p: {type: integer, default: x}}}", `output.properties[p].default: "x" is no integer`},
		{"a default of another type within", "steps: [{id: a, tool: w.t}]\noutput: {properties: {o: {type: object, properties: {p: {type: boolean, default: 1}}}}}", `output.properties[o].properties[p].default: 1 is no boolean`},
		{"defaults of an elicitation", "steps: [{id: a, type: elicitation, message: m, defaultResults: [1]}]", "steps[0].defaultResults: must be an object"},
		{"defaults of a forEach", "steps: [{id: a, type: forEach, collection: \"[]\", step: {tool: w.t}, defaultResults: 3}]", "steps[0].defaultResults: must be an object"},
		{"X20 parameters that are no schema", "parameters: {type: object, properties: {x: {type: 7}}}\nsteps: [{id: a, tool: w.t}]", "parameters: is no JSON Schema: /properties/x/type"},
		{"X20 a reference out of the document", "parameters: {type: object, properties: {x: {$ref: \"https://example.org/x.json\"}}}\nsteps: [{id: a, tool: w.t}]", "parameters: a $ref or $schema leads out of the document"},
		{"X20 a reference to itself", "parameters: {type: object, properties: {x: {$ref: \"#/properties/x\"}}}\nsteps: [{id: a, tool: w.t}]", "parameters: /properties/x: its $ref leads back to itself"},
		{"X20 a reference to itself through others", "parameters: {type: object, $defs: {n: {allOf: [{}, {$ref: \"#/$defs/m\"}]}, m: {$ref: \"#/$defs/n\"}}, properties: {o: {properties: {l: {items: {$ref: \"#/$defs/m\"}}}}}}\nsteps: [{id: a, tool: w.t}]", "parameters: /$defs/m: its $ref leads back to itself"},
		{"X20 a reference to itself that a property has, too", "parameters: {type: object, $defs: {m: {$ref: \"#\"}}, allOf: [{properties: {p: {$ref: \"#/$defs/m\"}}}, {$ref: \"#/$defs/m\"}]}\nsteps: [{id: a, tool: w.t}]", "parameters: /: its $ref leads back to itself"},
		{"X20 a reference to a file", "parameters: {type: object, properties: {x: {$ref: \"file:///etc/passwd\"}}}\nsteps: [{id: a, tool: w.t}]", "parameters: a $ref or $schema leads out of the document"},
		{"X20 a pattern that is none", "parameters: {type: object, properties: {x: {type: string, pattern: \"(\"}}}\nsteps: [{id: a, tool: w.t}]", "parameters: is no JSON Schema"},
		{"a number that no JSON has", "parameters: {type: object, properties: {x: {type: number, minimum: 1e400}}}\nsteps: [{id: a, tool: w.t}]", "parameters: "},
		{"a question that is no schema", "steps: [{id: a, type: elicitation, message: m, schema: {type: object, properties: {x: {type: nothing}}}}]", "steps[0].schema: is no JSON Schema"},
		{"a question that is not flat", "steps: [{id: a, type: elicitation, message: m, schema: {type: object, properties: {x: {type: object}}}}]", "steps[0].schema: properties[x]: must be a string, number, integer, boolean or enum"},
		{"a question with choices of numbers", "steps: [{id: a, type: elicitation, message: m, schema: {type: object, properties: {x: {enum: [a, 1]}}}}]", "steps[0].schema: properties[x].enum: must be one or more strings, with type string or none"},
		{"a question with choices of numbers that are strings", "steps: [{id: a, type: elicitation, message: m, schema: {type: object, properties: {x: {type: string, enum: [1, 2]}}}}]", "steps[0].schema: properties[x].enum: must be one or more strings"},
		{"a question with choices of integers", "steps: [{id: a, type: elicitation, message: m, schema: {type: object, properties: {x: {type: integer, enum: [1, 2]}}}}]", "steps[0].schema: properties[x].enum: must be one or more strings"},
		{"a question with strings that are integers", "steps: [{id: a, type: elicitation, message: m, schema: {type: object, properties: {x: {type: integer, enum: [\"1\"]}}}}]", "steps[0].schema: properties[x].enum: must be one or more strings"},
		{"a question with no choice", "steps: [{id: a, type: elicitation, message: m, schema: {type: object, properties: {x: {type: string, enum: []}}}}]", "steps[0].schema: properties[x].enum: must be one or more strings"},
		{"a question for a text that is longer than it may be", "steps: [{id: a, type: elicitation, message: m, schema: {type: object, properties: {x: {type: string, minLength: 3, maxLength: 2}}}}]", "steps[0].schema: properties[x]: its minimum must not be greater than its maximum: no answer could fit"},
		{"a question for a number that is greater than it may be", "steps: [{id: a, type: elicitation, message: m, schema: {type: object, properties: {x: {type: number, minimum: 0.2, maximum: 0.1}}}}]", "steps[0].schema: properties[x]: its minimum must not be greater"},
		{"a question whose properties are ignored", "steps: [{id: a, type: elicitation, message: m, schema: {$schema: \"http://json-schema.org/draft-07/schema#\", $ref: \"#/definitions/o\", definitions: {o: {}}, type: object, properties: {x: {type: string}}}}]", "steps[0].schema: $ref is not available: the object must be flat"},
		{"a parameter that fits no pattern", "parameters: {type: object, patternProperties: {\"^x_\": {}}, additionalProperties: false}\n" + one(`arguments: {x: "{{.params.y_1}}"}`), "steps[1].arguments[x]: there is no parameter y_1"},
		{"a question with a format of nobody", "steps: [{id: a, type: elicitation, message: m, schema: {type: object, properties: {x: {type: string, format: phone}}}}]", "steps[0].schema: properties[x]: format must be email, uri, date or date-time"},
		{"a question with a default that does not fit", "steps: [{id: a, type: elicitation, message: m, schema: {type: object, properties: {x: {type: string, default: 5}}}}]", "steps[0].schema: properties[x].default: got number, want string"},
		{"a question that is no object", "steps: [{id: a, type: elicitation, message: m, schema: {type: string}}]", "steps[0].schema: type must be object"},
		{"a question with choices of schemas", "steps: [{id: a, type: elicitation, message: m, schema: {type: object, oneOf: [{}]}}]", "steps[0].schema: oneOf is not available"},
		{"a question with conditions", "steps: [{id: a, type: elicitation, message: m, schema: {type: object, properties: {x: {type: string}}, if: {required: [x]}, then: false}}]", "steps[0].schema: if is not available: the object must be flat"},
		{"a question that excludes", "steps: [{id: a, type: elicitation, message: m, schema: {type: object, properties: {x: {type: string}}, not: {required: [x]}}}]", "steps[0].schema: not is not available: the object must be flat"},
		{"a question that nobody can answer", "steps: [{id: a, type: elicitation, message: m, schema: {type: object, properties: {x: {type: string}}, required: [x, y]}}]", `steps[0].schema: required[1]: there is no property y, so that no answer could fit`},
		{"a question with a reference", "steps: [{id: a, type: elicitation, message: m, schema: {type: object, properties: {x: {type: string, $ref: \"http://x/y\"}}}}]", "steps[0].schema: a $ref or $schema leads out of the document"},
		{"a step longer than its workflow", "timeout: 1m\nsteps: [{id: a, tool: w.t, timeout: 2m}]", "steps[0].timeout: must not be longer than that of the workflow, 1m0s"},
		{"an item longer than its step", "steps: [{id: a, type: forEach, timeout: 1m, collection: \"[]\", step: {tool: w.t, timeout: 2m}}]", "steps[0].step.timeout: must not be longer than that of its step, 1m0s"},
		{"a number that does not fit", "steps: [{id: a, tool: w.t, arguments: {x: 1}, defaultResults: {x: " + strings.Repeat("[", 101) + strings.Repeat("]", 101) + "}}]", "steps[0].defaultResults: deeper than 100"},
		{"a program that is too long", "steps: [{id: a, tool: w.t, arguments: {x: \"" + strings.Repeat("x", 40_000) + "\", y: \"" + strings.Repeat("y", 40_000) + "\"}}]", "steps: the program of the workflow has"},

		// Scripts.
		{"a script that is none", "script: 'return ('", "script: 1:9: "},
		{"a name that nobody has", "script: 'return nothing'", "script: 1:8: undefined: nothing"},
		{"a template that is no text", "script: 'return template(params[\"x\"])'", "script: 1:17: the template must stand here as a text"},
		{"a template that cannot be parsed in a script", "script: 'return template(\"{{.a\")'", "script: 1:17: must be a template: "},
		{"a parameter of nobody in a script", closed + "script: 'return template(\"{{.params.y}}\")'", "script: 1:17: there is no parameter y"},
		{"a property that is no template", "script: 'return output({\"p\": prop(\"string\", \"{{\")})'", "script: 1:36: must be a template"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := workflow.Parse(composite(t, c.yaml))
			if err == nil {
				t.Fatal("it is valid")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %s\nwant %s", err, c.want)
			}
		})
	}
}

// TestRulesAtOnce holds that everything that is wrong is told at once, by its field.
func TestRulesAtOnce(t *testing.T) {
	_, err := workflow.Parse(composite(t, `
parameters: {type: object, properties: {x: {type: string}}, additionalProperties: false}
timeout: 1m
steps:
- {id: __a, tool: w.t, timeout: 2m, arguments: {x: "{{.params.y}}"}}
- {id: b, tool: w.t, dependsOn: [nobody], condition: "{{.steps.c.status}}"}
output: {properties: {p: {type: integer, default: x}}}`))
	var faults workflow.Faults
	if !errors.As(err, &faults) {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, f := range faults {
		got[f.Path] = true
	}
	for _, path := range []string{"steps[0].id", "steps[0].timeout", "steps[0].arguments[x]", "steps[1].dependsOn[0]", "steps[1].condition", "output.properties[p].default"} {
		if !got[path] {
			t.Errorf("%s is not among\n%s", path, err)
		}
	}
}

// TestShow holds the text of a program, and that it is the same each time.
func TestShow(t *testing.T) {
	tool := composite(t, `
steps:
- {id: while, tool: w.t, dependsOn: [my-step, step], timeout: 10s, onError: {action: continue}, defaultResults: {x: [1, null, "two\n"]}}
- {id: my-step, tool: w.t, arguments: {k: "{{.params.x}}", f: 1.5}, onError: {action: retry, retryCount: 3, retryDelay: 2s}}
- {id: my_step, type: elicitation, message: "sure?", schema: {type: object, properties: {ok: {type: boolean}}}, onDecline: {action: continue}, onCancel: {action: skip_remaining}}
- {id: step, type: forEach, collection: "{{json .params.l}}", maxIterations: 7, step: {tool: w.u, condition: "{{.forEach.item}}", arguments: {x: "{{.forEach.index}}"}}}
output: {properties: {p: {type: string, value: "{{.steps.while.status}}", default: d}, o: {type: object, properties: {q: {type: integer, value: "1"}}}}, required: [p]}`)
	want := strings.Join([]string{
		`my_step = step("my-step", lambda: retry(3, "2s", lambda: call_step("w.t", {"f": 1.5, "k": template("{{.params.x}}")})))`,
		`my_step_ = step("my_step", lambda: ask("my_step", "sure?", {"properties": {"ok": {"type": "boolean"}}, "type": "object"}, on_decline="continue", on_cancel="skip_remaining"))`,
		`step_ = step("step", lambda: each("step", lambda: items("{{json .params.l}}"), lambda item, index: call_step("w.u", {"x": template("{{.forEach.index}}")}), item="item", max_items=7, parallel=10, when=lambda: condition("{{.forEach.item}}")))`,
		`while_ = step("while", lambda: call_step("w.t"), after=[my_step, step_], on_error="continue", default={"x": [1, None, "two\n"]}, timeout="10s")`,
		`return output({"o": prop("object", properties={"q": prop("integer", "1")}), "p": prop("string", "{{.steps.while.status}}", default="d")}, required=["p"])`,
		``,
	}, "\n")
	for range 5 {
		if got := parse(t, tool).Show(); got != want {
			t.Fatalf("got\n%s\nwant\n%s", got, want)
		}
	}
	parse(t, asScript(parse(t, tool), tool))
}

// TestQuestions: what a question asks for has the members without which clients refuse it,
// and the order in which it was written.
func TestQuestions(t *testing.T) {
	for given, want := range map[string]string{
		`{"type":"object"}`: `{"properties":{},"type":"object"}`,
		`{"type":"object","properties":{"b":{"type":"string","format":"email"},"a\"":{"enum":["x"]}},"required":["b"]}`: `{"type":"object","properties":{"b":{"type":"string","format":"email"},"a\"":{"type":"string","enum":["x"]}},"required":["b"]}`,
	} {
		tool := composite(t, "steps: [{id: a, type: elicitation, message: m}]")
		tool.Steps[0].Schema = v1beta1.JSONObject(given)
		host, asked := (&world{t: t, attempts: map[string]int{}}).host(), ""
		host.Ask = func(_ context.Context, q *workflow.Question) (*workflow.Reply, error) {
			asked = string(q.Schema)
			return &workflow.Reply{Action: "decline"}, nil
		}
		if _, err := parse(t, tool).Run(t.Context(), nil, host); err != nil || asked != want {
			t.Errorf("%s asks for %s, %v", given, asked, err)
		}
	}
}

func TestAnnotations(t *testing.T) {
	yes, no := true, false
	tools := map[string]*workflow.Tool{
		"w.read":  {Hints: workflow.Hints{ReadOnly: &yes, OpenWorld: &no}},
		"w.write": {Hints: workflow.Hints{ReadOnly: &no, Destructive: &no, OpenWorld: &no}},
		"w.none":  {},
		"w.again": {Hints: workflow.Hints{Idempotent: &yes, OpenWorld: &no}},
		"w.once":  {Hints: workflow.Hints{Idempotent: &no, OpenWorld: &no}},
	}
	find := func(name string) (*workflow.Tool, bool) { t, ok := tools[name]; return t, ok }
	for _, c := range []struct{ steps, annotations, want, overruled string }{
		{"w.read w.read", "", `{"readOnlyHint":true,"destructiveHint":false,"openWorldHint":false}`, ""},
		{"w.read w.write", "", `{"readOnlyHint":false,"destructiveHint":false,"openWorldHint":false}`, ""},
		{"w.read w.none", "", `{"readOnlyHint":false,"destructiveHint":true,"openWorldHint":true}`, ""},
		{"w.read w.gone", "", `{"readOnlyHint":false,"destructiveHint":true,"openWorldHint":true}`, ""},
		{"w.read", "readOnlyHint: false, destructiveHint: true, openWorldHint: true, title: T", `{"title":"T","readOnlyHint":false,"destructiveHint":true,"openWorldHint":true}`, ""},
		{"w.none", "readOnlyHint: true, destructiveHint: false, openWorldHint: false, idempotentHint: true", `{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":true}`, "idempotentHint readOnlyHint destructiveHint openWorldHint"},
		{"w.read w.again", "idempotentHint: true", `{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":true,"openWorldHint":false}`, ""},
		{"w.again w.once", "idempotentHint: true", `{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":false}`, "idempotentHint"},
		{"w.again", "idempotentHint: false", `{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":false}`, ""},
	} {
		text := "annotations: {" + c.annotations + "}\nsteps:\n"
		for i, tool := range strings.Fields(c.steps) {
			text += fmt.Sprintf("- {id: s%d, tool: %s}\n", i, tool)
		}
		definition, overruled := parse(t, composite(t, text)).Definition(find)
		if !strings.HasSuffix(string(definition), `"annotations":`+c.want+"}") || strings.Join(overruled, " ") != c.overruled {
			t.Errorf("%s %s\n got %s %q\nwant %s %s", c.steps, c.annotations, definition, overruled, c.want, c.overruled)
		}
	}
	// A script that calls more than it names to call_step() may do anything.
	for _, more := range []string{`call_tool("w.write")`, `call_step("w." + "write")`, `call_step(tool="w.write")`, `attempt(lambda: call_tool_result("w.write"))`, `[f("w.write") for f in [call_tool]]`} {
		tool := composite(t, "{}")
		tool.Script = "step(\"a\", lambda: call_step(\"w.read\"))\nreturn " + more
		if got, _ := parse(t, tool).Definition(find); !strings.Contains(string(got), `"readOnlyHint":false,"destructiveHint":true`) {
			t.Errorf("%s: %s", more, got)
		}
	}
}

func TestDefinition(t *testing.T) {
	w := parse(t, composite(t, `
name: my.tool
description: does "it"
parameters: {type: object, properties: {x: {type: string}}, required: [x]}
steps: [{id: a, tool: w.t}]
output: {properties: {p: {type: string, value: x, description: d}, o: {type: object, properties: {q: {type: integer, value: "1"}}}}, required: [p]}`))
	got, _ := w.Definition(func(string) (*workflow.Tool, bool) { return nil, false })
	want := `{"name":"my.tool","description":"does \"it\"","inputSchema":{"properties":{"x":{"type":"string"}},"required":["x"],"type":"object"},` +
		`"outputSchema":{"type":"object","properties":{"o":{"type":"object","properties":{"q":{"type":"integer"}}},"p":{"type":"string","description":"d"}},"anyOf":[{"required":["p"]},{"required":["error"]}]},` +
		`"annotations":{"readOnlyHint":false,"destructiveHint":true,"openWorldHint":true}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A property that is called error is what a call returns under that name, or why it failed.
func TestDefinitionWithAnError(t *testing.T) {
	w := parse(t, composite(t, `
name: flow
steps: [{id: a, tool: w.fail}]
output: {properties: {error: {type: string, value: x, description: d}}, required: [error]}`))
	got, _ := w.Definition(func(string) (*workflow.Tool, bool) { return nil, false })
	want := `"error":{"anyOf":[{"type":"string","description":"d"},{"type":"object","required":["workflow","message","completed"]}]}`
	if !strings.Contains(string(got), want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var tool struct{ OutputSchema any }
	if err := json.Unmarshal(got, &tool); err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("urn:x", tool.OutputSchema); err != nil {
		t.Fatal(err)
	}
	schema := c.MustCompile("urn:x")
	out, _ := play(t, w, "", nil)
	for _, structured := range [][]byte{mcp.Lookup(out.Result(true), "structuredContent"), []byte(`{"error":"x"}`)} {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(structured))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(value); err != nil {
			t.Errorf("%s: %v", structured, err)
		}
	}
}

func TestLint(t *testing.T) {
	w := parse(t, composite(t, `
steps:
- {id: a, tool: w.t}
- {id: b, tool: w.t, condition: "{{eq 1 1}}", onError: {action: retry, retryCount: 1}, defaultResults: {z: 1}}
- {id: c, tool: w.read, arguments: {x: "{{.steps.b.output.z}}"}, onError: {action: retry, retryCount: 1}}
- {id: d, type: forEach, collection: "[]", dependsOn: [c], step: {tool: w.t, condition: "false", onError: {action: retry, retryCount: 2}}}
- {id: e, type: forEach, collection: "[]", dependsOn: [d], step: {tool: w.gone}, onError: {action: retry, retryCount: 2}}
- {id: f, type: forEach, collection: "[]", dependsOn: [e], step: {tool: w.t}, onError: {action: retry, retryCount: 2}}
- {id: g, tool: w.unknown, dependsOn: [f], onError: {action: retry, retryCount: 2}}
`))
	yes := true
	found := w.Lint(func(name string) (*workflow.Tool, bool) {
		switch name {
		case "w.read":
			return &workflow.Tool{Hints: workflow.Hints{ReadOnly: &yes}}, true
		case "w.gone":
			return nil, false
		case "w.unknown":
			return nil, true
		}
		return &workflow.Tool{}, true
	})
	var lines []string
	for _, f := range found {
		lines = append(lines, f.Error())
	}
	want := []string{
		"steps[0]: nothing reads step a, and no step depends on it",
		"steps[1].condition: always says true",
		"steps[1].onError: calls w.t again, which does not have idempotentHint",
		"steps[2].arguments[x]: reads step b, which is not among dependsOn: the step waits for it",
		"steps[3].step.condition: always says false",
		"steps[3].step.onError: calls w.t again, which does not have idempotentHint",
		"steps[4].step.tool: there is no tool w.gone",
		"steps[5].onError: calls w.t again, which does not have idempotentHint",
	}
	if strings.Join(lines, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	whole := composite(t, "steps: [{id: a, tool: w.t}, {id: b, tool: w.t}]\noutput: {properties: {all: {type: string, value: '{{json .steps}}'}}}")
	if found := parse(t, whole).Lint(nil); len(found) != 0 {
		t.Errorf("the output reads all steps: %v", found)
	}
	if quiet := w.Lint(nil); len(quiet) != 4 {
		t.Errorf("without tools: %v", quiet)
	}
	if again := strings.Join(w.Retried(), " "); again != "w.t w.read w.gone w.unknown" {
		t.Errorf("called again: %s", again)
	}
}

// TestLintUnanswered: a question that was declined or cancelled has no content but that of its defaults.
func TestLintUnanswered(t *testing.T) {
	const told = "steps[1].arguments[x]: reads the content of question a, which has none where its action is decline: give it defaultResults"
	for steps, want := range map[string]string{
		`{%s}, {id: b, tool: w.t, dependsOn: [a], condition: '{{eq .steps.a.output.action "decline"}}', arguments: {x: "{{.steps.a.output.content.y}}"}}`:                                    told,
		`{%s}, {id: b, tool: w.t, dependsOn: [a], condition: '{{- eq .steps.a.output.action "cancel" -}}', arguments: {x: "{{.steps.a.output.content}}"}}`:                                   strings.Replace(told, "decline", "cancel", 1),
		`{%s, defaultResults: {content: {y: n}}}, {id: b, tool: w.t, dependsOn: [a], condition: '{{eq .steps.a.output.action "decline"}}', arguments: {x: "{{.steps.a.output.content.y}}"}}`: "",
		`{%s}, {id: b, tool: w.t, dependsOn: [a], condition: '{{eq .steps.a.output.action "accept"}}', arguments: {x: "{{.steps.a.output.content.y}}"}}`:                                     "",
		`{%s}, {id: b, tool: w.t, dependsOn: [a], condition: '{{eq .steps.a.output.action "decline"}}', arguments: {x: "{{.steps.a.output.action}}{{.steps.a.content}}"}}`:                   "",
		`{%s}, {id: b, tool: w.t, dependsOn: [a], condition: '{{or .params (eq .steps.a.output.action "decline")}}', arguments: {x: "{{.steps.a.output.content.y}}"}}`:                       "",
	} {
		steps = strings.Replace(steps, "%s", "id: a, type: elicitation, message: m, schema: {type: object, properties: {y: {type: string}}}, onDecline: {action: continue}, onCancel: {action: continue}", 1)
		var found []string
		for _, f := range parse(t, composite(t, "steps: ["+steps+"]")).Lint(nil) {
			found = append(found, f.Error())
		}
		if got := strings.Join(found, "\n"); got != want {
			t.Errorf("%s\n%s\nwant %s", steps, got, want)
		}
	}
}

// TestLintParameters: arguments fail that nobody gave, or that nobody can give.
func TestLintParameters(t *testing.T) {
	for schema, want := range map[string]string{
		"{type: object, properties: {x: {type: integer, default: 3}}, required: [x, y]}":                                                                 "",
		"{type: object, properties: {x: {type: integer, default: abc}}}":                                                                                 "parameters: properties[x].default: got string, want integer",
		"{type: object, properties: {o: {type: object, properties: {n: {type: array, items: {type: string}, default: [a, 1]}}}}}":                        "parameters: properties[o].properties[n].default: /1: got number, want string",
		"{type: object, $defs: {n: {minimum: 3}}, properties: {x: {$ref: \"#/$defs/n\", default: 2}}}":                                                   "parameters: properties[x].default: minimum: got 2, want 3",
		"{type: object, $defs: {n: {type: integer, default: abc}}, properties: {x: {$ref: \"#/$defs/n\"}}}":                                              "parameters: properties[x].default: got string, want integer",
		"{type: object, $defs: {m: {$ref: \"#/$defs/n\"}, n: {properties: {y: {type: integer, default: abc}}}}, properties: {x: {$ref: \"#/$defs/m\"}}}": "parameters: properties[x].properties[y].default: got string, want integer",
		"{type: object, $ref: \"#/$defs/n\", $defs: {n: {properties: {y: {type: integer, default: abc}}}}}":                                              "parameters: properties[y].default: got string, want integer",
		"{type: object, properties: {x: {$ref: \"#\"}, y: {$ref: \"#\", default: {}}, z: {type: integer, default: abc}}}":                                "parameters: properties[z].default: got string, want integer",
		"{type: object, properties: {x: {$ref: \"#\"}, y: {$ref: \"#\", default: {}}}}":                                                                  "",
		"{type: object, properties: {x: {}}, patternProperties: {\"^z\": {}}, additionalProperties: false, required: [x, y]}":                            "parameters: required[1]: there is no property y, so that no arguments could fit",
		"{type: object, properties: {x: {}}, additionalProperties: false, required: [x, y]}":                                                             "parameters: required[1]: there is no property y, so that no arguments could fit",
		"{type: object, properties: {x: {}}, patternProperties: {\"^y\": {}}, additionalProperties: false, required: [x, y]}":                            "",
	} {
		var found []string
		for _, f := range parse(t, composite(t, "parameters: "+schema+"\nsteps: [{id: a, tool: w.t}]")).Lint(nil) {
			found = append(found, f.Error())
		}
		if got := strings.Join(found, "\n"); got != want {
			t.Errorf("%s\n got %s\nwant %s", schema, got, want)
		}
	}
}

// TestLintUnmeant: what a call fails for, and what an onError does not do.
func TestLintUnmeant(t *testing.T) {
	w := parse(t, composite(t, `
parameters: {type: object, properties: {since: {type: string}}, required: [until]}
steps:
- {id: a, tool: w.t, arguments: {x: "{{.params.since}} {{.params.until}} {{.params.sinse}}"}}
- {id: b, type: elicitation, message: m, dependsOn: [a], onError: {action: retry, retryCount: 1}}
- {id: c, tool: w.t, dependsOn: [b], timeout: 1s, onError: {action: retry, retryCount: 1, retryDelay: 1s}}`))
	var lines []string
	for _, f := range w.Lint(nil) {
		lines = append(lines, f.Error())
	}
	want := `steps[0].arguments[x]: reads parameter sinse, which is not declared: a call without it fails
steps[1].onError: a question is asked once: retry is abort
steps[2].onError.retryDelay: not less than the time that the step has, 1s: there is no other attempt`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestLintReferences: a parameter that stands where the schema refers to is declared.
func TestLintReferences(t *testing.T) {
	found := parse(t, composite(t, `
parameters: {type: object, $ref: "#/$defs/a", $defs: {a: {$ref: "#/$defs/b", properties: {x: {type: string}}}, b: {type: object, properties: {y: {type: string}}}}}
steps: [{id: a, tool: w.t, arguments: {x: "{{.params.x}}{{.params.y}}{{.params.z}}"}}]`)).Lint(nil)
	if len(found) != 1 || found[0].Error() != "steps[0].arguments[x]: reads parameter z, which is not declared: a call without it fails" {
		t.Errorf("%v", found)
	}
}

// TestLintPatterns: a parameter whose name fits a pattern may be read, and need not be given.
func TestLintPatterns(t *testing.T) {
	found := parse(t, composite(t, `
parameters: {type: object, patternProperties: {"^x_": {type: string}}, required: [x_2], additionalProperties: false}
steps: [{id: a, tool: w.t, arguments: {x: "{{.params.x_1}}{{.params.x_2}}"}}]`)).Lint(nil)
	if len(found) != 1 || found[0].Error() != "steps[0].arguments[x]: reads parameter x_1, which is not declared: a call without it fails" {
		t.Errorf("found %v", found)
	}
}

// TestLintScript: a script is held to the tools that its text names.
func TestLintScript(t *testing.T) {
	w := parse(t, composite(t, `script: 'a = call_step("w.t"); return call_step("w.gone")'`))
	found := w.Lint(func(name string) (*workflow.Tool, bool) { return nil, name == "w.t" })
	if len(found) != 1 || found[0].Error() != "script: there is no tool w.gone" || len(w.Lint(nil)) > 0 {
		t.Errorf("found %v", found)
	}
}

// TestAsks: a question waits as long as its step, its workflow and a question may.
func TestAsks(t *testing.T) {
	w := parse(t, composite(t, `
timeout: 20m
steps:
- {id: a, type: elicitation, message: m}
- {id: b, type: elicitation, message: m, timeout: 15m}
- {id: c, tool: w.t, timeout: 1m}
- {id: d, type: elicitation, message: m, timeout: 30s}`))
	if got := fmt.Sprint(w.Asks()); got != "[{a 5m0s} {b 10m0s} {d 30s}]" {
		t.Errorf("asks %s", got)
	}
}

func TestGraph(t *testing.T) {
	w := parse(t, composite(t, `
steps:
- {id: a, tool: w.t}
- {id: b, type: elicitation, message: m, dependsOn: [a]}
- {id: c, type: forEach, collection: "[]", condition: "{{.steps.b.status}}", step: {tool: w.u}}`))
	want := `flowchart TD
  s0["a<br/>w.t"]
  s1{{"b<br/>asks"}}
  s2[["c<br/>for each: w.u"]]
  s0 --> s1
  s1 -.-> s2
`
	if got := w.Graph(); got != want {
		t.Errorf("got\n%s", got)
	}
}
