package v1beta1

import (
	"fmt"
	"strings"
	"testing"
)

func TestCompositeTool(t *testing.T) {
	step := func(more obj) obj {
		out := obj{"id": "a", "tool": "w.t"}
		for k, v := range more {
			out[k] = v
		}
		return out
	}
	steps := func(name string, want []string, steps ...any) wrong {
		return wrong{name, "spec.script", at{"spec.script": gone{}, "spec.steps": steps}, want}
	}
	property := func(p obj) at {
		return at{"spec.script": gone{}, "spec.steps": arr{step(nil)}, "spec.output": obj{"properties": obj{"p": p}}}
	}
	deep := any(obj{"type": "string"})
	for range 12 {
		deep = obj{"type": "object", "properties": obj{"p": deep}}
	}
	runWrong(t, "VirtualMCPCompositeToolDefinition", []wrong{
		{"neither steps nor script", "spec.script", at{"spec.script": gone{}}, []string{"spec.steps"}},
		{"steps and script", "spec.script", at{"spec.steps": arr{step(nil)}}, []string{"spec.script"}},
		{"no name", "spec.script", at{"spec.name": gone{}}, []string{"spec.name"}},
		{"a name with a space", "spec.script", at{"spec.name": "a b"}, []string{"spec.name"}},
		{"a name that starts with a dot", "spec.script", at{"spec.name": ".a"}, []string{"spec.name"}},
		{"a name of the edge", "spec.script", at{"spec.name": "find_tool"}, []string{"spec.name"}},
		{"a long name", "spec.script", at{"spec.name": strings.Repeat("a", 129)}, []string{"spec.name"}},
		{"a long script", "spec.script", at{"spec.script": strings.Repeat("#", maxScript+1)}, []string{"spec.script"}},
		{"a zero timeout", "spec.script", at{"spec.timeout": "0s"}, []string{"spec.timeout"}},
		{"parameters that are a list", "spec.script", at{"spec.parameters": arr{}}, []string{"spec.parameters"}},
		{"parameters of another type", "spec.script", at{"spec.parameters": obj{"type": "array", "properties": arr{}, "required": arr{1}}}, []string{"spec.parameters.properties", "spec.parameters.required", "spec.parameters.type"}},
		steps("ids", []string{"spec.steps[1].id", "spec.steps[2].id", "spec.steps[3].id"}, step(nil), step(nil), step(obj{"id": ""}), step(obj{"id": "a b"})),
		steps("ids of a length", []string{"spec.steps[1].id"}, step(obj{"id": strings.Repeat("a", 128)}), step(obj{"id": strings.Repeat("b", 129)})),
		steps("a dependency on nothing", []string{"spec.steps[0].dependsOn[0]"}, step(obj{"dependsOn": arr{"b"}})),
		steps("a dependency twice", []string{"spec.steps[1].dependsOn[1]"}, step(nil), step(obj{"id": "b", "dependsOn": arr{"a", "a"}})),
		steps("a dependency on itself", []string{"spec.steps[0].dependsOn[0]"}, step(obj{"dependsOn": arr{"a"}})),
		steps("a cycle", []string{"spec.steps[2].dependsOn[0]"}, step(obj{"dependsOn": arr{"b"}}), step(obj{"id": "b", "dependsOn": arr{"c"}}), step(obj{"id": "c", "dependsOn": arr{"a"}})),
		steps("a cycle beside the start", []string{"spec.steps[2].dependsOn[0]"}, step(obj{"dependsOn": arr{"b"}}), step(obj{"id": "b", "dependsOn": arr{"c"}}), step(obj{"id": "c", "dependsOn": arr{"b"}})),
		steps("a diamond is no cycle", nil, step(nil), step(obj{"id": "b", "dependsOn": arr{"a"}}), step(obj{"id": "c", "dependsOn": arr{"a"}}), step(obj{"id": "d", "dependsOn": arr{"b", "c"}})),
		steps("no tool", []string{"spec.steps[0].tool"}, obj{"id": "a"}),
		steps("a tool that is no name", []string{"spec.steps[0].tool"}, step(obj{"tool": "a/b"})),
		steps("fields of other types", []string{"spec.steps[0].collection", "spec.steps[0].maxParallel", "spec.steps[0].message", "spec.steps[0].onCancel", "spec.steps[0].step"},
			step(obj{"collection": "x", "maxParallel": 3, "message": "m", "onCancel": obj{}, "step": obj{"tool": "w.t"}})),
		steps("an elicitation with a tool", []string{"spec.steps[0].message", "spec.steps[0].tool"}, step(obj{"type": "elicitation"})),
		steps("a forEach with nothing", []string{"spec.steps[0].collection", "spec.steps[0].step"}, obj{"id": "a", "type": "forEach"}),
		steps("a forEach of an elicitation", []string{"spec.steps[0].step.type"}, obj{"id": "a", "type": "forEach", "collection": "x", "step": obj{"tool": "w.t", "type": "elicitation"}}),
		steps("bounds of a forEach", []string{"spec.steps[0].itemVar", "spec.steps[0].maxIterations", "spec.steps[0].maxParallel"},
			obj{"id": "a", "type": "forEach", "collection": "x", "step": obj{"tool": "w.t"}, "itemVar": "index", "maxIterations": 1001, "maxParallel": 51}),
		steps("no iterations", []string{"spec.steps[0].maxIterations"}, obj{"id": "a", "type": "forEach", "collection": "x", "step": obj{"tool": "w.t"}, "maxIterations": 0}),
		steps("an inner step without a tool", []string{"spec.steps[0].step.tool"}, obj{"id": "a", "type": "forEach", "collection": "x", "step": obj{}}),
		steps("retry without a count", []string{"spec.steps[0].onError.retryCount"}, step(obj{"onError": obj{"action": "retry"}})),
		steps("too many retries", []string{"spec.steps[0].onError.retryCount"}, step(obj{"onError": obj{"action": "retry", "retryCount": 11}})),
		steps("a count without retry", []string{"spec.steps[0].onError.retryCount", "spec.steps[0].onError.retryDelay"}, step(obj{"onError": obj{"action": "abort", "retryCount": 1, "retryDelay": "1s"}})),
		steps("templates", []string{"spec.steps[0].arguments[x]", "spec.steps[0].condition"}, step(obj{"arguments": obj{"x": "{{.a", "y": 1}, "condition": "{{unknown 1}}"})),
		steps("a template that reads no step", []string{"spec.steps[0].arguments[x]"}, step(obj{"arguments": obj{"x": "{{.steps.b.output}}"}})),
		steps("a template that reads no step, from the root", []string{"spec.steps[0].condition"}, step(obj{"condition": "{{range .params.l}}{{$.steps.b.status}}{{end}}"})),
		steps("a name of an item is no step", nil, step(obj{"arguments": obj{"x": "{{range .params.l}}{{.steps.b.output}}{{end}}{{with .params}}{{.steps.c}}{{else}}{{.params}}{{end}}"}})),
		steps("arguments that are a list", []string{"spec.steps[0].arguments"}, step(obj{"arguments": arr{}})),
		steps("a schema that is too deep", []string{"spec.steps[0].schema"}, obj{"id": "a", "type": "elicitation", "message": "m", "schema": deep}),
		steps("a schema that is too large", []string{"spec.steps[0].schema"}, obj{"id": "a", "type": "elicitation", "message": "m", "schema": obj{"x": strings.Repeat("a", maxSchema)}}),
		steps("no default results", []string{"spec.steps[0].defaultResults"}, step(obj{"condition": "{{.params.x}}"}), step(obj{"id": "b", "arguments": obj{"x": "{{.steps.a.output.y}}", "z": "{{.steps.a.output.z}}"}})),
		steps("no default results of a failure", []string{"spec.steps[0].defaultResults"}, step(obj{"onError": obj{"action": "continue"}}), step(obj{"id": "b", "condition": "{{.steps.a.output}}"})),
		steps("no default results of a question that may get no answer", []string{"spec.steps[0].defaultResults"}, obj{"id": "a", "type": "elicitation", "message": "m", "onDecline": obj{"action": "continue"}}, step(obj{"id": "b", "condition": "{{.steps.a.output.content.ok}}"})),
		steps("default results of a question without the field", []string{"spec.steps[0].defaultResults[content]"}, obj{"id": "a", "type": "elicitation", "message": "m", "onCancel": obj{"action": "continue"}, "defaultResults": obj{}}, step(obj{"id": "b", "condition": "{{.steps.a.output.content.ok}}"})),
		steps("what a question without an answer has", nil, obj{"id": "a", "type": "elicitation", "message": "m", "onCancel": obj{"action": "continue"}}, step(obj{"id": "b", "condition": "{{.steps.a.output.action}}{{.steps.a.output}}"})),
		steps("an answer that is read under a condition that asks for it", nil, obj{"id": "a", "type": "elicitation", "message": "m", "onDecline": obj{"action": "continue"}}, step(obj{"id": "b", "condition": "{{eq .steps.a.output.action \"accept\"}}", "arguments": obj{"x": "{{.steps.a.output.content.name}}"}})),
		steps("an answer that is read in a text that asks for it", nil, obj{"id": "a", "type": "elicitation", "message": "m", "onDecline": obj{"action": "continue"}}, step(obj{"id": "b", "arguments": obj{"x": "{{if eq .steps.a.output.action \"accept\"}}{{.steps.a.output.content.name}}{{else}}nobody{{end}}"}})),
		steps("an answer that is read within a forEach that asks for it", nil, obj{"id": "a", "type": "elicitation", "message": "m", "onDecline": obj{"action": "continue"}}, obj{"id": "b", "type": "forEach", "collection": "[1]", "step": obj{"tool": "w.t", "condition": "{{eq .steps.a.output.action \"accept\"}}", "arguments": obj{"x": "{{.steps.a.output.content.name}}"}}}),
		steps("an answer that is read before the forEach asks for it", []string{"spec.steps[0].defaultResults"}, obj{"id": "a", "type": "elicitation", "message": "m", "onDecline": obj{"action": "continue"}}, obj{"id": "b", "type": "forEach", "collection": "{{json .steps.a.output.content}}", "step": obj{"tool": "w.t", "condition": "{{eq .steps.a.output.action \"accept\"}}"}}),
		steps("an answer that is read where another text asks for it", []string{"spec.steps[0].defaultResults"}, obj{"id": "a", "type": "elicitation", "message": "m", "onDecline": obj{"action": "continue"}}, step(obj{"id": "b", "arguments": obj{"x": "{{.steps.a.output.content.name}}", "y": "{{eq .steps.a.output.action \"accept\"}}"}})),
		steps("an answer that is read where another step asks for it", []string{"spec.steps[0].defaultResults"}, obj{"id": "a", "type": "elicitation", "message": "m", "onDecline": obj{"action": "continue"}}, step(obj{"id": "b", "condition": "{{eq .steps.a.output.action \"accept\"}}"}), step(obj{"id": "c", "arguments": obj{"x": "{{.steps.a.output.content.name}}"}})),
		steps("an answer of a question that may be skipped", []string{"spec.steps[0].defaultResults"}, obj{"id": "a", "type": "elicitation", "message": "m", "condition": "{{.params.x}}", "onDecline": obj{"action": "continue"}}, step(obj{"id": "b", "condition": "{{eq .steps.a.output.action \"accept\"}}", "arguments": obj{"x": "{{.steps.a.output.content.name}}"}})),
		steps("a question that ends without an answer", nil, obj{"id": "a", "type": "elicitation", "message": "m", "onCancel": obj{"action": "abort"}}, step(obj{"id": "b", "condition": "{{.steps.a.output.content.ok}}"})),
		steps("default results without the field", []string{"spec.steps[0].defaultResults[y]"}, step(obj{"condition": "{{.params.x}}", "defaultResults": obj{"z": 1}}), step(obj{"id": "b", "arguments": obj{"x": "{{.steps.a.output.y}} {{.steps.a.output.y.deep}} {{.steps.a.output.z}}"}})),
		steps("default results that are not read", nil, step(obj{"condition": "{{.params.x}}"}), step(obj{"id": "b", "arguments": obj{"x": "{{.steps.a.status}}"}})),
		{"too many steps", "spec.script", at{"spec.script": gone{}, "spec.steps": many(101, step)}, []string{"spec.steps"}},
		{"an output of nothing", "spec.script", at{"spec.output": obj{"properties": obj{}, "required": arr{"x"}}}, []string{"spec.output.properties", "spec.output.required[0]"}},
		{"a property of nothing", "spec.script", property(obj{"type": "string"}), []string{"spec.output.properties[p].value"}},
		{"properties of a string", "spec.script", property(obj{"type": "string", "properties": obj{}}), []string{"spec.output.properties[p].properties"}},
		{"properties and a value", "spec.script", property(obj{"type": "object", "properties": obj{}, "value": "x"}), []string{"spec.output.properties[p].properties"}},
		{"a nested property with a misspelt field", "spec.script", property(obj{"type": "object", "properties": obj{"q": obj{"typ": "string"}}}), []string{"spec.output.properties[p].properties"}},
		{"a nested property without a value", "spec.script", property(obj{"type": "object", "properties": obj{"q": obj{"type": "string"}}}), []string{"spec.output.properties[p].properties[q].value"}},
		{"an output that reads a step that may be skipped", "spec.script", at{"spec.script": gone{}, "spec.steps": arr{step(obj{"condition": "{{.params.x}}"})}, "spec.output": obj{"properties": obj{"p": obj{"type": "string", "value": "{{.steps.a.output.x}}"}}}}, []string{"spec.steps[0].defaultResults"}},
		{"a deep output", "spec.script", property(deep.(obj)), []string{"spec.output.properties[p]" + strings.Repeat(".properties[p]", 9) + ".properties"}},
	})
}

func many(n int, step func(obj) obj) arr {
	var out arr
	for i := range n {
		out = append(out, step(obj{"id": fmt.Sprintf("s%d", i)}))
	}
	return out
}
