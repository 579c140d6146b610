package v1beta1

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// row is what the ledger says of one field.
type row struct {
	kind, path string
	typ        string            // string, boolean, integer, object, any-object, []T, map[string]T
	facts      map[string]string // required, default, enum, pattern, minLength, …
}

var (
	factPattern = regexp.MustCompile(`^(required|default='[^']*'|default=[^,]*|enum=[^,]*|(?:minLength|maxLength|minItems|maxItems|minimum|maximum|maxProperties|format)=[^,]*)(?:, |$)`)
	formPattern = regexp.MustCompile(`^pattern=(.*?)((?:, (?:minLength|maxLength|minItems|maxItems|minimum|maximum|format)=[^,]*)*)$`)
)

// ledger reads testdata/ledger.tsv.
func ledger(t testing.TB) []row {
	t.Helper()
	text, err := os.ReadFile("testdata/ledger.tsv")
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(strings.TrimRight(line, "\n"), "\t")
		r := row{kind: cells[0], path: cells[1], facts: map[string]string{}}
		typ, rest, _ := strings.Cut(cells[2], ", ")
		r.typ = typ
		for rest != "" {
			if m := formPattern.FindStringSubmatch(rest); m != nil {
				r.facts["pattern"], rest = m[1], strings.TrimPrefix(m[2], ", ")
				continue
			}
			m := factPattern.FindStringSubmatch(rest)
			if m == nil {
				t.Fatalf("%s %s: cannot read %q", r.kind, r.path, rest)
			}
			rest = rest[len(m[0]):]
			name, value, _ := strings.Cut(m[1], "=")
			r.facts[name] = strings.Trim(value, "'")
		}
		rows = append(rows, r)
	}
	if len(rows) != 653 {
		t.Fatalf("%d rows, want 653", len(rows))
	}
	return rows
}

// facts returns what a definition says of a field, in the ledger's words.
func facts(parent, s *structural, name string) (string, map[string]string) {
	out := map[string]string{}
	if slices.Contains(parent.Required, name) {
		out["required"] = ""
	}
	if s.Default != nil {
		text := fmt.Sprint(s.Default)
		switch v := s.Default.(type) {
		case bool:
			text = map[bool]string{true: "True", false: "False"}[v]
		case float64:
			text = strconv.FormatFloat(v, 'f', -1, 64)
		}
		out["default"] = text
	}
	if s.Enum != nil {
		values := make([]string, len(s.Enum))
		for i, v := range s.Enum {
			values[i] = fmt.Sprint(v)
		}
		out["enum"] = strings.Join(values, "|")
	}
	if s.Pattern != "" {
		out["pattern"] = s.Pattern
	}
	if s.Format != "" {
		out["format"] = s.Format
	}
	for fact, v := range map[string]*int{"minLength": s.MinLength, "maxLength": s.MaxLength, "minItems": s.MinItems, "maxItems": s.MaxItems, "maxProperties": s.MaxProperties} {
		if v != nil {
			out[fact] = strconv.Itoa(*v)
		}
	}
	for fact, v := range map[string]*float64{"minimum": s.Minimum, "maximum": s.Maximum} {
		if v != nil {
			out[fact] = strconv.FormatFloat(*v, 'f', -1, 64)
		}
	}
	return typeName(s), out
}

func typeName(s *structural) string {
	switch {
	case s.Type == "array":
		return "[]" + typeName(s.Items)
	case s.Type == "object" && s.Values != nil:
		return "map[string]" + typeName(s.Values)
	case s.Open:
		return "any-object"
	}
	return s.Type
}

// difference is where a definition and the ledger do not say the same, on
// purpose.
type difference struct {
	path   string // pattern of the kind and the field
	fact   string // type, required, default, enum, pattern, …
	ours   string // what the definition says; empty for nothing
	reason string
}

const (
	becauseEmpty    = "a required text may not be empty; the documents ask for it and nothing works without"
	becauseDefault  = "the documents give this default in words"
	becauseValues   = "the documents list the values in words"
	becauseDuration = "the documents call it a duration string"
	becauseStrict   = "the fields are known, and an unknown one is refused"
	becauseScript   = "script stands in for steps"
	becauseType     = "the documents give the type in words"
	becauseEntry    = "kind and name are the key of an entry"
)

func differences() []difference {
	const (
		authServer = `(MCPExternalAuthConfig spec\.embeddedAuthServer|VirtualMCPServer spec\.authServerConfig)`
		upstream   = authServer + `\.upstreamProviders\[\]`
		strategy   = `VirtualMCPServer spec\.config\.outgoingAuth\.(default|backends\{\})`
	)
	list := []difference{
		{path: `.*`, fact: "minLength", ours: "1", reason: becauseEmpty},

		{path: authServer + `\.cimd\.cacheFallbackTtl`, fact: "default", ours: "5m", reason: becauseDefault},
		{path: authServer + `\.cimd\.cacheMaxSize`, fact: "default", ours: "256", reason: becauseDefault},
		{path: authServer + `\.tokenLifespans\.accessTokenLifespan`, fact: "default", ours: "1h", reason: becauseDefault},
		{path: authServer + `\.tokenLifespans\.authCodeLifespan`, fact: "default", ours: "10m", reason: becauseDefault},
		{path: authServer + `\.tokenLifespans\.refreshTokenLifespan`, fact: "default", ours: "168h", reason: becauseDefault},
		{path: upstream + `\.oauth2Config\.tokenResponseMapping\.expiresInPath`, fact: "default", ours: "expires_in", reason: becauseDefault},
		{path: upstream + `\.oauth2Config\.tokenResponseMapping\.refreshTokenPath`, fact: "default", ours: "refresh_token", reason: becauseDefault},
		{path: upstream + `\.oauth2Config\.tokenResponseMapping\.scopePath`, fact: "default", ours: "scope", reason: becauseDefault},
		{path: upstream + `\.(oauth2Config\.userInfo|oidcConfig\.userInfoOverride)\.httpMethod`, fact: "default", ours: "GET", reason: becauseDefault},
		{path: upstream + `\.(oauth2Config\.userInfo|oidcConfig\.userInfoOverride)\.fieldMapping\.subjectFields`, fact: "default", ours: "[sub]", reason: becauseDefault},
		{path: upstream + `\.(oauth2Config\.userInfo|oidcConfig\.userInfoOverride)\.fieldMapping\.nameFields`, fact: "default", ours: "[name]", reason: becauseDefault},
		{path: upstream + `\.(oauth2Config\.userInfo|oidcConfig\.userInfoOverride)\.fieldMapping\.emailFields`, fact: "default", ours: "[email]", reason: becauseDefault},
		{path: upstream + `\.oidcConfig\.scopes`, fact: "default", ours: "[openid offline_access]", reason: becauseDefault},
		{path: upstream + `\.oidcConfig\.subjectClaim`, fact: "default", ours: "sub", reason: becauseDefault},
		{path: `MCPExternalAuthConfig spec\.tokenExchange\.subjectTokenType`, fact: "default", ours: "access_token", reason: becauseDefault},
		{path: `MCPExternalAuthConfig spec\.xaa\.subjectTokenType`, fact: "default", ours: TokenTypeID, reason: becauseDefault},
		{path: strategy + `\.tokenExchange\.subjectTokenType`, fact: "default", ours: TokenTypeAccess, reason: becauseDefault},
		{path: strategy + `\.xaa\.subjectTokenType`, fact: "default", ours: TokenTypeID, reason: becauseDefault},
		{path: strategy + `\.cloudSts\.roleClaim`, fact: "default", ours: "groups", reason: becauseDefault},
		{path: strategy + `\.cloudSts\.service`, fact: "default", ours: "cloud-mcp", reason: becauseDefault},
		{path: strategy + `\.cloudSts\.sessionDuration`, fact: "default", ours: "3600", reason: becauseDefault},
		{path: strategy + `\.cloudSts\.sessionNameClaim`, fact: "default", ours: "sub", reason: becauseDefault},
		{path: `VirtualMCPServer spec\.incomingAuth\.oidcConfigRef\.scopes`, fact: "default", ours: "[openid]", reason: becauseDefault},
		{path: `VirtualMCPServer spec\.config\.codeMode\.enabled`, fact: "default", ours: "False", reason: becauseDefault},
		{path: `VirtualMCPServer spec\.config\.incomingAuth\.authz\.entitiesJson`, fact: "default", ours: "[]", reason: becauseDefault},
		{path: `VirtualMCPServer spec\.config\.incomingAuth\.authz\.groupEntityType`, fact: "default", ours: GroupEntityTypeDefault, reason: becauseDefault},
		{path: `VirtualMCPServer spec\.config\.optimizer\.hybridSearchSemanticRatio`, fact: "default", ours: "0.5", reason: becauseDefault},
		{path: `VirtualMCPServer spec\.config\.optimizer\.maxToolsToReturn`, fact: "default", ours: "8", reason: becauseDefault},
		{path: `VirtualMCPServer spec\.config\.optimizer\.semanticDistanceThreshold`, fact: "default", ours: "1.0", reason: becauseDefault},

		{path: `VirtualMCPServer spec\.config\.incomingAuth\.type`, fact: "enum", ours: "oidc|local|anonymous", reason: becauseValues},
		{path: `VirtualMCPServer spec\.config\.incomingAuth\.authz\.type`, fact: "enum", ours: "policy|none", reason: becauseValues},
		{path: `VirtualMCPServer spec\.config\.outgoingAuth\.source`, fact: "enum", ours: "discovered|inline", reason: becauseValues},
		{path: strategy + `\.type`, fact: "enum", ours: "unauthenticated|header_injection|token_exchange|upstream_inject|cloud_sts|obo|xaa", reason: becauseValues},
		{path: `VirtualMCPServer status\.discoveredBackends\[\]\.status`, fact: "enum", ours: "ready|degraded|unavailable|unauthenticated|unknown", reason: becauseValues},
		{path: `MCPExternalAuthConfig status\.referencingWorkloads\[\]\.kind`, fact: "enum", ours: "MCPServer|VirtualMCPServer|MCPRemoteProxy", reason: becauseValues},
		{path: `MCPExternalAuthConfig status\.referencingWorkloads\[\]\.(kind|name)`, fact: "required", reason: becauseEntry},
		{path: `MCPExternalAuthConfig status\.referenceCount`, fact: "format", ours: "int32", reason: becauseType},

		{path: `VirtualMCPServer spec\.config\.rateLimiting\.(tools\[\]\.)?(shared|perUser)\.refillPeriod`, fact: "pattern", ours: durationPattern.String(), reason: becauseDuration},

		{path: `VirtualMCPServer spec\.config`, fact: "type", ours: "object", reason: becauseStrict},
		{path: `VirtualMCPServer spec\.config\.compositeTools\[\]\.steps\[\]\.step`, fact: "type", ours: "object", reason: becauseStrict},
		{path: `VirtualMCPServer spec\.config\.compositeTools\[\]\.steps`, fact: "required", reason: becauseScript},
	}
	return list
}

func TestDefinitionsSayWhatTheLedgerSays(t *testing.T) {
	differences := differences()
	used := make([]bool, len(differences))
	roots := roots(t)
	for _, r := range ledger(t) {
		top := roots[r.kind]
		s := top.at(r.path)
		if s == nil {
			t.Errorf("%s has no %s", r.kind, r.path)
			continue
		}
		cut := strings.LastIndex(r.path, ".")
		typ, have := facts(top.at(r.path[:cut]), s, r.path[cut+1:])
		have["type"], r.facts["type"] = typ, r.typ
		for _, fact := range []string{"type", "required", "default", "enum", "pattern", "minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "maxProperties", "format"} {
			h, hasOurs := have[fact]
			w, hasTheirs := r.facts[fact]
			if h == w && hasOurs == hasTheirs {
				continue
			}
			at := slices.IndexFunc(differences, func(d difference) bool {
				// Ours is the stricter one: the length of an optional text is
				// never bounded below on the quiet.
				if fact == "minLength" && !slices.Contains(top.at(r.path[:cut]).Required, r.path[cut+1:]) {
					return false
				}
				return d.fact == fact && d.ours == h && regexp.MustCompile("^"+d.path+"$").MatchString(r.kind+" "+r.path)
			})
			if at < 0 {
				t.Errorf("%s %s: %s %q (given: %t), the ledger has %q (%t)", r.kind, r.path, fact, h, hasOurs, w, hasTheirs)
				continue
			}
			used[at] = true
		}
	}
	for i, d := range differences {
		if !used[i] {
			t.Errorf("difference %s %s is none any more (%s)", d.path, d.fact, d.reason)
		}
	}
}

// TestTypesHoldWhatTheLedgerSays looks every field of the ledger up in the Go
// types.
func TestTypesHoldWhatTheLedgerSays(t *testing.T) {
	for _, r := range ledger(t) {
		k, _ := KindNamed(r.kind)
		f, ok := goField(reflect.TypeOf(k.New()).Elem(), r.path)
		if !ok {
			t.Errorf("%s has no %s", r.kind, r.path)
			continue
		}
		if want := r.typ; !holds(f.Type, want, r.facts["format"]) {
			t.Errorf("%s %s is a %s, the ledger says %s %s", r.kind, r.path, f.Type, want, r.facts["format"])
		}
		_, required := r.facts["required"]
		optional := strings.Contains(f.Tag.Get("json"), ",omitempty")
		script := r.path == "spec.config.compositeTools[].steps"
		entry := strings.HasPrefix(r.path, "status.referencingWorkloads[].")
		if required == optional && !script && !entry {
			t.Errorf("%s %s: required is %t, left out when empty is %t", r.kind, r.path, required, optional)
		}
		if r.facts["default"] == "True" && f.Type.Kind() != reflect.Pointer {
			t.Errorf("%s %s is true by default, and false cannot be told from absence", r.kind, r.path)
		}
	}
}

// goField returns the struct field at a path of the ledger.
func goField(typ reflect.Type, path string) (reflect.StructField, bool) {
	var f reflect.StructField
	for _, step := range strings.Split(path, ".") {
		name := strings.TrimRight(step, "[]{}")
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct {
			return f, false
		}
		found := false
		for _, candidate := range reflect.VisibleFields(typ) {
			if tag, _, _ := strings.Cut(candidate.Tag.Get("json"), ","); tag == name {
				f, found = candidate, true
			}
		}
		if !found {
			return f, false
		}
		typ = f.Type
	}
	return f, true
}

// holds reports whether a Go type holds values of a type of the ledger.
func holds(typ reflect.Type, ledger, format string) bool {
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if inner, ok := strings.CutPrefix(ledger, "[]"); ok {
		return typ.Kind() == reflect.Slice && holds(typ.Elem(), inner, "")
	}
	if inner, ok := strings.CutPrefix(ledger, "map[string]"); ok {
		return typ.Kind() == reflect.Map && typ.Key().Kind() == reflect.String && holds(typ.Elem(), inner, "")
	}
	switch ledger {
	case "boolean":
		return typ.Kind() == reflect.Bool
	case "integer":
		switch format {
		case "int32":
			return typ.Kind() == reflect.Int32
		case "int64":
			return typ.Kind() == reflect.Int64
		}
		return typ.Kind() == reflect.Int || typ.Kind() == reflect.Int32
	case "string":
		return typ.Kind() == reflect.String && typ != reflect.TypeFor[JSONObject]() && typ != reflect.TypeFor[JSONValue]() ||
			format == "date-time" && typ.Kind() == reflect.Struct
	case "object":
		return typ.Kind() == reflect.Struct
	case "any-object":
		return typ.Kind() == reflect.Struct || typ == reflect.TypeFor[JSONObject]() || typ == reflect.TypeFor[JSONValue]()
	}
	return false
}

// TestOnlyTheLedgersFields: of the owner's two kinds nothing is accepted that
// the documents do not have, but for what this list explains.
func TestOnlyTheLedgersFields(t *testing.T) {
	ours := map[string]string{
		"apiVersion": "every object has it", "kind": "every object has it", "metadata": "every object has it",
		"spec": "the section", "status": "the section",
		"spec.filterRefs": "EdgeFilter is a kind of ours", "spec.config.filterRefs": "EdgeFilter is a kind of ours",
		"spec.incomingAuth.oidcConfigRef.requiredScopes": "an answer insufficient_scope has to name scopes, and scopes are only advertised",
		"spec.config.incomingAuth.oidc.requiredScopes":   "the same",
		"spec.config.compositeTools[].script":            "a workflow as a program, an extension of ours",
	}
	explained := func(path string) bool {
		for p := range ours {
			if path == p || strings.HasPrefix(path, p+"[]") {
				return true
			}
		}
		// The documents name these sections and leave their fields open.
		return strings.HasPrefix(path, "spec.config.compositeTools[].steps[].step.") ||
			strings.HasPrefix(path, "spec.config.compositeTools[].annotations.") ||
			strings.HasPrefix(path, "spec.config.aggregation.tools[].overrides{}.annotations.")
	}
	for _, kind := range []string{"VirtualMCPServer", "MCPExternalAuthConfig"} {
		known := map[string]bool{}
		for _, r := range ledger(t) {
			if r.kind == kind {
				known[r.path] = true
			}
		}
		root(t, kind).walk("", func(path string, s *structural) {
			item := strings.HasSuffix(path, "[]") || strings.HasSuffix(path, "{}")
			if !item && !known[path] && !explained(path) {
				t.Errorf("%s has %s, which is not in the ledger", kind, path)
			}
		})
	}
}
