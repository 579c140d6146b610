package optimizer

import (
	"fmt"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// Bounds of a question.
const (
	maxQuestion = 4096 // bytes
	maxKeywords = 32
	maxKeyword  = 128 // bytes
)

const findTool = `{"name":"find_tool","title":"Find tools","description":"Find the tools for a task. Say in tool_description what is to be done, in a sentence; tool_keywords may add words that the tool's name or description is likely to have. The best tools come first, each with its definition. Call one of them with call_tool.",` +
	`"inputSchema":{"type":"object","properties":{` +
	`"tool_description":{"type":"string","minLength":1,"description":"What the tool is to do"},` +
	`"tool_keywords":{"type":"array","items":{"type":"string"},"maxItems":32,"description":"Words to look for, too"}},` +
	`"required":["tool_description"]},` +
	`"outputSchema":{"type":"object","properties":{` +
	`"tools":{"type":"array","items":{"type":"object"},"description":"Definitions of the tools, the best first"},` +
	`"token_metrics":{"type":"object","properties":{"baseline_tokens":{"type":"integer"},"returned_tokens":{"type":"integer"},"savings_percent":{"type":"number"}},` +
	`"required":["baseline_tokens","returned_tokens","savings_percent"]}},"required":["tools","token_metrics"]},` +
	`"annotations":{"title":"Find tools","readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}}`

const callTool = `{"name":"call_tool","title":"Call a tool","description":"Call a tool that find_tool has found, by its name, with parameters as its inputSchema says. The answer is that of the tool.",` +
	`"inputSchema":{"type":"object","properties":{` +
	`"tool_name":{"type":"string","description":"Name of the tool"},` +
	`"parameters":{"type":"object","description":"Arguments of the tool"}},` +
	`"required":["tool_name","parameters"]},` +
	`"annotations":{"title":"Call a tool","readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":true}}`

// fresh is for how long a modern client may keep the list, in milliseconds: it changes with
// the configuration alone.
const fresh = 60_000

// List returns the result of tools/list, which all clients of an era are given.
func List(era mcp.Era) []byte {
	list := `"tools":[` + callTool + `,` + findTool + `]`
	if era == mcp.Legacy {
		return []byte(`{` + list + `}`)
	}
	return fmt.Appendf(nil, `{"resultType":"complete",%s,"ttlMs":%d,"cacheScope":"public"}`, list, fresh)
}

// FindTarget and CallTarget are what policies may know of the tools. Neither is judged by its
// name: what is found is filtered, and what is called is judged.
func FindTarget() edge.Target {
	yes, no := true, false
	return edge.Target{ReadOnly: &yes, Destructive: &no, Idempotent: &yes, OpenWorld: &no, Unjudged: true}
}

// CallTarget is FindTarget for call_tool.
func CallTarget() edge.Target {
	yes, no := true, false
	return edge.Target{ReadOnly: &no, Destructive: &yes, Idempotent: &no, OpenWorld: &yes, Unjudged: true}
}

// asked is the arguments of find_tool.
type asked struct {
	description string
	keywords    []string
}

// text is all that is searched for.
func (q *asked) text() string {
	return strings.Join(append([]string{q.description}, q.keywords...), " ")
}

// readFind reads the arguments of find_tool. It returns what is wrong with them, by a JSON
// pointer (RFC 6901); "" for nothing.
func readFind(arguments []byte) (q *asked, why string) {
	q = &asked{}
	given := false
	mcp.Each(arguments, func(name, value []byte) bool {
		switch name := string(mcp.Unquote(name)); {
		case name == "tool_description":
			given = true
			q.description, why = text("/tool_description", value, maxQuestion)
		case name == "tool_keywords" && value[0] == 'n':
		case name == "tool_keywords":
			why = q.take(value)
		default:
			why = fmt.Sprintf("/%s: there is no such argument: there are tool_description and tool_keywords", escaped(name))
		}
		return why == ""
	})
	if why == "" && !given {
		why = "/tool_description: missing"
	}
	return q, why
}

func (q *asked) take(keywords []byte) (why string) {
	all := mcp.Elements(keywords)
	switch {
	case keywords[0] != '[':
		return "/tool_keywords: not an array"
	case len(all) > maxKeywords:
		return fmt.Sprintf("/tool_keywords: more than %d", maxKeywords)
	}
	q.keywords = nil
	for i, one := range all {
		if string(one) == `""` { // it says nothing
			continue
		}
		word, why := text(fmt.Sprintf("/tool_keywords/%d", i), one, maxKeyword)
		if why != "" {
			return why
		}
		q.keywords = append(q.keywords, word)
	}
	return ""
}

// text reads a text of 1 to most bytes.
func text(at string, value []byte, most int) (string, string) {
	if value[0] != '"' {
		return "", at + ": not a string"
	}
	s := mcp.String(value)
	switch {
	case s == "":
		return "", at + ": empty"
	case len(s) > most:
		return "", fmt.Sprintf("%s: longer than %d bytes", at, most)
	}
	return s, ""
}

func escaped(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(edge.Brief(name))
}

// ReadCall reads the arguments of call_tool: which tool is to be called, and with what, JSON
// text of an object as the client wrote it. It returns what is wrong with them, as readFind
// does.
func ReadCall(arguments []byte) (tool string, parameters []byte, why string) {
	named := false
	mcp.Each(arguments, func(name, value []byte) bool {
		switch name = mcp.Unquote(name); { // a conversion in a comparison copies nothing
		case string(name) == "tool_name":
			named = true
			tool, why = text("/tool_name", value, maxQuestion)
		case string(name) == "parameters" && value[0] == '{':
			parameters = value
		case string(name) == "parameters" && value[0] == 'n':
		case string(name) == "parameters":
			why = "/parameters: not an object"
		default:
			why = fmt.Sprintf("/%s: there is no such argument: there are tool_name and parameters", escaped(string(name)))
		}
		return why == ""
	})
	if !named && why == "" {
		within := mcp.Lookup(parameters, "tool_name")
		if within == nil {
			return "", parameters, "/tool_name: missing"
		}
		tool, why = text("/parameters/tool_name", within, maxQuestion)
		parameters = mcp.Change(parameters, []string{"tool_name"})
	}
	if parameters == nil {
		parameters = []byte("{}")
	}
	return tool, parameters, why
}
