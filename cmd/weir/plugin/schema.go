package plugin

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/weir-edge/weir/edge/compile"
)

// SchemaNames are the files that Schema knows.
func SchemaNames() []string { return []string{"fixtures", "plugin"} }

// Schema returns the JSON Schema (draft 2020-12) of fixtures.yaml, "fixtures",
// or of plugin.yaml, "plugin". It is made of the types that the files are read
// into.
func Schema(name string) (json.RawMessage, error) {
	var s map[string]any
	switch name {
	case "fixtures":
		s = schemaOf(reflect.TypeFor[Fixtures](), "", fixtureFields())
		s["title"], s["description"] = "fixtures.yaml", "Cases of what a guest is asked and must answer."
		s["required"] = []string{"cases"}
		cases := s["properties"].(map[string]any)["cases"].(map[string]any)
		cases["minItems"] = 1
		cases["items"].(map[string]any)["required"] = []string{"name"}
	case "plugin":
		s = schemaOf(reflect.TypeFor[Project](), "", projectFields())
		s["title"], s["description"] = "plugin.yaml", "What a guest is, and what trying it out needs."
		s["required"] = []string{"name", "version"}
	default:
		return nil, fmt.Errorf("schema of %s: no such file", name)
	}
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	return json.Marshal(s)
}

// about is what a schema says of a field, beside its type.
type about struct {
	text  string
	names []string // the only values; of a list those of its items
	more  map[string]any
	out   bool // the file may not have it
}

// schemaOf makes the schema of a type. path is that of the field, with [] for
// an item of a list, under which fields says more of it.
func schemaOf(t reflect.Type, path string, fields map[string]about) map[string]any {
	s := map[string]any{}
	switch {
	case t.Kind() == reflect.Pointer:
		return schemaOf(t.Elem(), path, fields)
	case t == reflect.TypeFor[json.RawMessage](): // anything, unless the table says more
	case t.Kind() == reflect.Struct:
		properties := map[string]any{}
		for _, f := range compile.Fields(t) {
			at := strings.TrimPrefix(path+"."+f.Name, ".")
			if a := fields[at]; !a.out {
				properties[f.Name] = schemaOf(t.FieldByIndex(f.Index).Type, at, fields)
			}
		}
		s["type"], s["properties"], s["additionalProperties"] = "object", properties, false
	case t.Kind() == reflect.Map:
		s["type"], s["additionalProperties"] = "object", schemaOf(t.Elem(), path+"{}", fields)
	case t.Kind() == reflect.Slice:
		s["type"], s["items"] = "array", schemaOf(t.Elem(), path+"[]", fields)
	case t.Kind() == reflect.Bool:
		s["type"] = "boolean"
	case t.Kind() == reflect.String:
		s["type"] = "string"
	case t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uint64:
		s["type"], s["minimum"] = "integer", 0
	default:
		s["type"] = "integer"
	}
	a := fields[path]
	if a.text != "" {
		s["description"] = a.text
	}
	if items, ok := s["items"].(map[string]any); ok && a.names != nil {
		items["enum"] = a.names
	} else if a.names != nil {
		s["enum"] = a.names
	}
	for key, value := range a.more {
		s[key] = value
	}
	return s
}

// object is the type of a field that holds JSON text of an object.
func object() map[string]any { return map[string]any{"type": "object"} }

// fixtureFields says what the fields of fixtures.yaml are.
func fixtureFields() map[string]about {
	all := map[string]about{"cases": {text: "What is asked, each of a guest of its own."}}
	for _, of := range []struct{ path, whom string }{{"", "every case that has none"}, {"cases[].", "this case"}} {
		all[of.path+"config"] = about{text: "The configuration for " + of.whom + ".", more: object()}
		all[of.path+"grants"] = about{text: "The grants for " + of.whom + ".", names: grantNames}
		all[of.path+"keys"] = about{text: "Made-up secrets of the grant keys, by name, for " + of.whom + "."}
		all[of.path+"isolation"] = about{text: "What a call finds in the guest's memory, as limits.isolation of an EdgeFilter, for " + of.whom + ".", names: isolations}
		all[of.path+"http"] = about{text: "What answers HTTP requests, by METHOD URL, for " + of.whom + ". Other requests are not granted."}
		all[of.path+"http{}.status"] = about{text: "The status code."}
		all[of.path+"http{}.headers"] = about{text: "Header lines by name."}
		all[of.path+"http{}.body"] = about{text: "The body."}
		all[of.path+"http{}.repeat"] = about{text: "How often the body stands in the answer."}
		all[of.path+"tools"] = about{text: "What tools answer, by the name that clients see, for " + of.whom + ". Other tools are not granted."}
		all[of.path+"tools{}.result"] = about{text: "The result.", more: object()}
		all[of.path+"tools{}.error"] = about{text: "The error, in place of a result.", more: object()}
	}
	for field, a := range map[string]about{
		"name":          {text: "What is asked, in words; no two cases have the same."},
		"after":         {text: "Names of cases above that the same guest is asked before."},
		"hook":          {text: "The hook that is asked. Without one the guest is only started.", names: hookNames()},
		"input":         {text: "What it is asked about. The guest sees what it subscribed to."},
		"ops":           {text: "The operations that must come back, in their order; none when it is absent."},
		"ops[]":         {more: operationSchema()},
		"asked":         {text: "false when no subscription may match."},
		"error":         {text: "A part of the text with which the guest must fail, or refuse its configuration."},
		"log":           {text: "The lines that must be written, each LEVEL: TEXT. Not compared when absent."},
		"sent":          {text: "What others were asked, in their order: METHOD URL, header lines and body, or the name and arguments of a tool. Not compared when absent."},
		"events":        {text: "The events that must be told of, each NAME: DATA. Not compared when absent."},
		"metrics":       {text: "The counters and gauges after the case. Not compared when absent."},
		"subscriptions": {text: "The subscriptions that the guest must have. Not compared when absent."},
	} {
		all["cases[]."+field] = a
	}
	for field, a := range map[string]about{
		"tool":             {text: "The name of the tool, prompt or resource."},
		"backend":          {text: "The name of the backend."},
		"session":          {text: "What the guest knows the session by."},
		"method":           {text: "The method of the message, tools/call in hooks of calls; of an HTTP request GET, POST or DELETE."},
		"requestId":        {text: "The id of the request.", more: map[string]any{"type": []string{"string", "integer"}}},
		"principal":        {text: "Who the client is."},
		"principal.groups": {text: "Its groups."}, "principal.roles": {text: "Its roles."}, "principal.scopes": {text: "Its scopes."},
		"principal.subject": {text: "Its subject."}, "principal.tenant": {text: "Its tenant."}, "principal.issuer": {text: "Who issued its token."},
		"headers":      {text: "Header lines of the client by name."},
		"arguments":    {text: "The arguments of a call; the params of another message."},
		"now":          {text: "The time, in milliseconds since 1970."},
		"result":       {text: "The result of an answer."},
		"error":        {text: "The error of an answer."},
		"items":        {text: "What a backend offers."},
		"items[].name": {text: "Its name; the URI of a resource."}, "items[].backend": {text: "The backend that offers it."}, "items[].json": {text: "All that the backend says of it."},
		"claims":   {text: "The claims of the token. The guest sees all of them in map_identity, and those that it subscribed to elsewhere."},
		"attrs":    {text: "What filters said of the client, by name."},
		"carry":    {text: "What the guest carried from the request to its answer."},
		"status":   {text: "The status code of an HTTP answer."},
		"path":     {text: "The path of an HTTP request."},
		"issuer":   {text: "Who issued the token."},
		"event":    {text: "An audit record."},
		"verbatim": {text: "JSON texts by the names of fields beside it, handed over as they are written.", more: map[string]any{"propertyNames": map[string]any{"enum": []string{"requestId", "arguments", "result", "error", "claims", "event"}}}},
	} {
		all["cases[].input."+field] = a
	}
	for field, a := range map[string]about{
		"hook":        {text: "The hook.", names: hookNames()},
		"methods":     {text: "Globs of methods."},
		"tools":       {text: "Globs of tools."},
		"backends":    {text: "Globs of backends."},
		"fields":      {text: "The numbers of the fields that it sees; none for all."},
		"headers":     {text: "The header lines that it sees."},
		"pointers":    {text: "JSON pointers to the values that it sees."},
		"variesBy":    {text: "What of a client its answer depends on.", names: []string{"tenant", "groups", "subject"}},
		"inlineLimit": {text: "The most bytes of arguments that it sees."},
		"cacheMillis": {text: "How long its answer holds."},
		"blocking":    {text: "It may wait for others."},
		"claims":      {text: "JSON pointers to the claims that it sees."},
	} {
		all["cases[].subscriptions[]."+field] = a
	}
	return all
}

// operationSchema is that of an operation: an object with its name.
func operationSchema() map[string]any {
	properties := map[string]any{}
	for _, v := range verbs {
		if v.name == "" {
			continue
		}
		fields := map[string]any{}
		var required []string
		for _, letter := range v.fields {
			name := fieldNames[strings.ToLower(string(letter))[0]]
			switch letter {
			case 'r', 'R':
				fields[name] = map[string]any{}
			case 'c':
				fields[name] = map[string]any{"enum": codes}
			case 'i', 'x':
				fields[name] = map[string]any{"type": "integer", "minimum": 0}
			default:
				fields[name] = map[string]any{"type": "string"}
			}
			if letter < 'a' {
				required = append(required, name)
			}
		}
		one := map[string]any{"type": []string{"object", "null"}, "properties": fields, "additionalProperties": false}
		if required != nil {
			one["required"] = required
		}
		properties[v.name] = one
	}
	return map[string]any{"type": "object", "properties": properties, "additionalProperties": false, "minProperties": 1, "maxProperties": 1}
}

// projectFields says what the fields of plugin.yaml are.
func projectFields() map[string]about {
	return map[string]about{
		"name":           {text: "The name of the guest, and of its EdgeFilter.", more: map[string]any{"pattern": projectName.String()}},
		"version":        {text: "Its version.", more: map[string]any{"minLength": 1}},
		"description":    {text: "What it does, in a sentence."},
		"license":        {text: "Its licence."},
		"abi":            {out: true}, // the module itself says it
		"hooks":          {out: true},
		"grants":         {text: "The grants that it does not work without.", names: grantNames},
		"optionalGrants": {text: "The grants that it uses where it has them, and does without.", names: grantNames},
		"configSchema":   {text: "The JSON Schema of its configuration, which the edge holds spec.config to.", more: object()},
		"language":       {text: "The language of its sources; found out when it is absent.", names: LanguageNames()},
		"config":         {text: "A configuration that it accepts: an example, and that of the EdgeFilter that is printed.", more: object()},
		"keys":           {text: "Made-up secrets of the grant keys, by name."},
		"credentials":    {text: "Names of MCPExternalAuthConfigs, for the grant credentials."},
		"http":           {text: "Hosts, for the grant http."},
		"tools":          {text: "Globs of tools, for the grant tools."},
		"claims":         {text: "JSON pointers to claims, for the grant claims."},
	}
}
