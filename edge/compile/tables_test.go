package compile

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/v1beta1"
)

// trim takes the [] and {} of items off the end of a pattern.
func trim(pattern string) string { return strings.TrimRight(pattern, "[]{}") }

func leavesOf(k v1beta1.Kind) []string { return Leaves(reflect.TypeOf(k.New()).Elem()) }

// Nothing is accepted and ignored: testdata/served.txt has every field that is
// served, and a test through the edge for what each says stands in the ledger. A
// field that is new to the model fails here until somebody says what becomes of
// it, in a table or in that file (-update writes it).
func TestServedFields(t *testing.T) {
	tables := newTables(unsupportedFields())
	var served strings.Builder
	fields := 0
	for _, k := range v1beta1.Kinds() {
		for _, leaf := range leavesOf(k) {
			fields++
			e := tables.find(k.Name, leaf)
			if e.class == classServed {
				fmt.Fprintln(&served, k.Name, leaf)
				continue
			}
			same := 0
			for _, kind := range []string{k.Name, "*"} {
				for _, other := range tables.entries[kind] {
					if other.path == e.path {
						same++
					}
				}
			}
			if same != 1 {
				t.Errorf("%s %s is %d times in the tables", k.Name, e.path, same)
			}
		}
	}
	if fields < 1000 {
		t.Errorf("walked %d fields, which cannot be all", fields)
	}
	const golden = "testdata/served.txt"
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(golden, []byte(served.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	now, before := strings.Split(served.String(), "\n"), strings.Split(string(want), "\n")
	for _, f := range now {
		if !slices.Contains(before, f) {
			t.Errorf("%s would be served: make it so and write the file anew, or refuse it in unsupported.go", f)
		}
	}
	for _, f := range before {
		if !slices.Contains(now, f) {
			t.Errorf("%s was served, and is no longer", f)
		}
	}
}

// The README says what is not there, and no more than that: a feature that
// arrives leaves its table, too.
func TestZ25ReadmeListsWhatIsUnsupported(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{} // the row, by kind and field
	quoted := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || !strings.Contains(cells[2], "`") {
			continue
		}
		for _, part := range strings.Split(cells[2], ";") {
			names := quoted.FindAllStringSubmatch(part, -1)
			if len(names) == 0 || !slices.ContainsFunc(v1beta1.Kinds(), func(k v1beta1.Kind) bool { return k.Name == names[0][1] }) {
				continue // another table
			}
			if len(names) == 1 {
				said[names[0][1]+" spec"] = part
			}
			for _, name := range names[1:] {
				said[names[0][1]+" spec."+name[1]] = part
			}
		}
	}
	for _, u := range unsupportedFields() {
		if u.with != "" {
			continue // refused with another
		}
		row, ok := said[u.kind+" "+u.path]
		if !ok {
			t.Errorf("README.md does not say that %s %s is not supported", u.kind, u.path)
		}
		delete(said, u.kind+" "+u.path)
		for _, value := range u.allow {
			if !strings.Contains(row, value) {
				t.Errorf("README.md does not say that %s %s may be %q", u.kind, u.path, value)
			}
		}
	}
	for field := range said {
		t.Errorf("README.md says that %s is not supported, and it is", field)
	}
}

// Every line of a table is about a field or a section that exists.
func TestTablesNameRealFields(t *testing.T) {
	leaves := map[string][]string{}
	for _, k := range v1beta1.Kinds() {
		leaves[k.Name] = leavesOf(k)
		leaves["*"] = append(leaves["*"], leaves[k.Name]...)
	}
	exists := func(kind, path string) bool {
		return slices.ContainsFunc(leaves[kind], func(l string) bool { return under(l, path) })
	}
	for kind, entries := range newTables(unsupportedFields()).entries {
		for _, e := range entries {
			if !exists(kind, e.path) {
				t.Errorf("%s has no %s", kind, e.path)
			}
		}
	}
	for _, u := range unsupportedFields() {
		if u.enabled != "" && !exists(u.kind, u.path+"."+u.enabled) {
			t.Errorf("%s has no %s.%s", u.kind, u.path, u.enabled)
		}
		if u.with != "" && !exists(u.kind, u.with) {
			t.Errorf("%s has no %s", u.kind, u.with)
		}
	}
	for _, c := range conditionTypes() {
		if !exists(c.kind, c.path) {
			t.Errorf("%s has no %s", c.kind, c.path)
		}
	}
	for _, r := range references() {
		parent := r.path[:strings.LastIndexByte(r.path, '.')]
		for _, path := range []string{r.path, parent + "." + r.key, parent + "." + r.when} {
			if !strings.HasSuffix(path, ".") && !exists(r.kind, path) {
				t.Errorf("%s has no %s", r.kind, path)
			}
		}
	}
}

// Every field that names an object is followed, but for SecretRefs.
func TestReferencesAreComplete(t *testing.T) {
	for _, k := range v1beta1.Kinds() {
		leaves := leavesOf(k)
		for _, leaf := range leaves {
			section, ok := strings.CutSuffix(leaf, ".name")
			last := trim(section[strings.LastIndexByte(section, '.')+1:])
			if !ok || strings.HasPrefix(leaf, "status") {
				continue
			}
			isRef := strings.HasSuffix(last, "Ref") || strings.HasSuffix(last, "Refs") || last == "configMap" || last == "credentials" || last == "permissionProfile"
			secret := strings.Contains(strings.ToLower(last), "secretref") || strings.Contains(strings.ToLower(last), "secretkeyref") || strings.Contains(last, "TokenRef") || last == "passwordRef"
			if !isRef || secret {
				continue
			}
			if !slices.ContainsFunc(references(), func(r reference) bool { return r.kind == k.Name && r.path == leaf }) {
				t.Errorf("%s %s names an object, and nothing follows it", k.Name, leaf)
			}
		}
	}
}

// Every field of what is served that is not supported is really refused, and every other is
// not.
func TestEveryFieldIsTreatedAsItsClass(t *testing.T) {
	for _, make := range []func() v1beta1.Object{
		func() v1beta1.Object { return minimal() },
		func() v1beta1.Object {
			s := &v1beta1.MCPServer{}
			s.Name, s.Spec.Image = "demo", "npx"
			s.Spec.PermissionProfile = &v1beta1.PermissionProfileRef{Type: v1beta1.ProfileBuiltin, Name: v1beta1.ProfileNone}
			return s
		},
		func() v1beta1.Object {
			s := &v1beta1.MCPRemoteProxy{}
			s.Name, s.Spec.RemoteURL = "demo", "https://example.com/mcp"
			return s
		},
	} {
		everyField(t, make)
	}
}

func everyField(t *testing.T, make func() v1beta1.Object) {
	tables := newTables(unsupportedFields())
	of := reflect.TypeOf(make()).Elem()
	kind := of.Name()
	for _, leaf := range Leaves(of) {
		e := tables.find(kind, leaf)
		s := make()
		set(reflect.ValueOf(s).Elem(), leaf, e.class == classUnsupported)
		if e.class == classUnsupported && e.rule.enabled != "" {
			set(reflect.ValueOf(s).Elem(), e.path+"."+e.rule.enabled, false)
		}
		plan, report := Compile(Set{Objects: []Object{{Value: s}, {Value: named("tools")}}, Starts: []Form{FormLocal}})
		about := func(class string) bool {
			return slices.ContainsFunc(report.Findings, func(f Finding) bool {
				return f.Reason == class && (under(trim(leaf), unindexed(f.Path)) || strings.Contains(f.Message, e.path))
			})
		}
		switch e.class {
		case classUnsupported:
			if plan != nil || !about(ReasonUnsupported) && !about(ReasonInvalid) && !about(ReasonNotFound) {
				t.Errorf("%s %s is not refused: %v", kind, leaf, report.Findings)
			}
		case classClusterOnly:
			if !about(ReasonClusterOnly) {
				t.Errorf("%s %s is not listed as only in a cluster: %v", kind, leaf, report.Findings)
			}
		case classDoor:
			if !about(ReasonNotHere) {
				t.Errorf("%s %s is not listed as only at a door of its own: %v", kind, leaf, report.Findings)
			}
		default:
			if leaf != "spec.image" && slices.ContainsFunc(report.Findings, func(f Finding) bool { return f.Reason == ReasonUnsupported }) {
				t.Errorf("%s %s is refused: %v", kind, leaf, report.Findings)
			}
		}
	}
}

// unindexed turns a path into a pattern without the [] and {} of items.
func unindexed(path string) string {
	var b strings.Builder
	inside := false
	for _, c := range path {
		switch c {
		case '[':
			inside = true
			b.WriteString("[]")
		case ']':
			inside = false
		default:
			if !inside {
				b.WriteRune(c)
			}
		}
	}
	return strings.ReplaceAll(b.String(), "outgoingAuth.backends[]", "outgoingAuth.backends{}")
}

// minimal is a server that the edge serves.
func minimal() *v1beta1.VirtualMCPServer {
	s := &v1beta1.VirtualMCPServer{}
	s.Name = "demo"
	s.Spec.GroupRef.Name = "tools"
	s.Spec.IncomingAuth = &v1beta1.IncomingAuth{Type: v1beta1.IncomingAnonymous}
	s.Spec.Config = &v1beta1.ServerConfig{
		Backends:    []v1beta1.StaticBackend{{Name: "one", URL: "https://example.com/mcp", Transport: v1beta1.TransportStreamableHTTP, Type: v1beta1.BackendEntry}},
		Aggregation: &v1beta1.Aggregation{ConflictResolution: v1beta1.ConflictPriority},
	}
	return s
}

func named(name string) *v1beta1.MCPGroup {
	g := &v1beta1.MCPGroup{}
	g.Name = name
	return g
}

// set gives the field at pattern a value. Text that is there stays unless other
// is true.
func set(v reflect.Value, pattern string, other bool) {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	switch {
	case pattern == "":
		switch {
		case v.Kind() == reflect.String && (other || v.String() == ""):
			v.SetString("tei")
		case v.Kind() == reflect.String: // The minimal server has a good value.
		case v.Kind() == reflect.Bool:
			v.SetBool(true)
		case v.CanInt():
			v.SetInt(7)
		case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8:
			v.SetBytes([]byte("{}"))
		case v.Kind() == reflect.Struct: // Times and the like.
			if f := v.Field(0); f.CanSet() && v.Type().String() == "v1.Time" {
				v.Set(reflect.ValueOf(someTime()))
			}
		}
	case strings.HasPrefix(pattern, "[]"):
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		set(v.Index(0), strings.TrimPrefix(pattern[2:], "."), other)
	case strings.HasPrefix(pattern, "{}"):
		e := reflect.New(v.Type().Elem()).Elem()
		set(e, strings.TrimPrefix(pattern[2:], "."), other)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("one"), e)
	default:
		end := strings.IndexAny(pattern, ".[{")
		if end < 0 {
			end = len(pattern)
		}
		for _, f := range Fields(v.Type()) {
			if f.Name == pattern[:end] {
				set(v.FieldByIndex(f.Index), strings.TrimPrefix(pattern[end:], "."), other)
			}
		}
	}
}
