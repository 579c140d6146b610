package registry

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/oauth"
)

// The members of _meta that are read.
const (
	officialMeta  = "io.modelcontextprotocol.registry/official"
	publisherMeta = "io.modelcontextprotocol.registry/publisher-provided"
	publisher     = "io.github.stacklok"
)

// document is what one text of a registry holds, of any format.
type document struct {
	format  string            // for people
	servers []json.RawMessage // server.json each, not yet looked at
	next    string            // cursor of the next page of an API; "" for the last
	updated string            // when it was made, by its own word; "" for unknown
	others  []string          // parts besides servers, such as groups, which nobody reads
}

// errTooMany is a registry with more entries than are read.
var errTooMany = &Error{Kind: Broken, Message: fmt.Sprintf("the registry has more than %d entries", MaxEntries)}

// errTooLarge is a registry with more text than is read.
var errTooLarge = &Error{Kind: Broken, Message: fmt.Sprintf("the registry has more than %d MiB", MaxBytes>>20)}

// read reads a text of a registry: a server.json, the reference's format or its older flat
// one, or a page of the registry API.
func read(text []byte) (*document, error) {
	if len(text) > MaxBytes {
		return nil, errTooLarge
	}
	text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	top, err := oauth.ParseObject(text, maxDepth)
	if err != nil {
		return nil, &Error{Kind: Broken, Message: "no JSON that can be read: " + err.Error()}
	}
	data, servers := top["data"], top["servers"]
	switch {
	case is(data, '{') && list(member(data, "servers")):
		d := &document{format: "the reference's format", updated: moment(member(top["meta"], "last_updated"))}
		for _, m := range mcp.Members(data) {
			if name := string(mcp.Unquote(m.Name)); name != "servers" && string(m.Value) != "[]" && string(m.Value) != "null" {
				d.others = append(d.others, "data."+name)
			}
		}
		return d, d.take(member(data, "servers"))
	case is(servers, '['), list(servers) && !is(top["remote_servers"], '{') && !top.Has("name"):
		d := &document{format: "the registry API"}
		if d.next, err = cursor(top["metadata"]); err != nil {
			return nil, err
		}
		return d, d.take(servers)
	case is(servers, '{') || is(top["remote_servers"], '{'):
		d := &document{format: "the older flat format", updated: moment(top["last_updated"])}
		if groups := top["groups"]; is(groups, '[') && len(mcp.Elements(groups)) > 0 {
			d.others = []string{"groups"}
		}
		return d, d.flat(servers, top["remote_servers"])
	case top.Has("name") && (top.Has("packages") || top.Has("remotes") || top.Has("version") || top.Has("description")):
		return &document{format: "server.json", servers: []json.RawMessage{text}}, nil
	}
	names := slices.Sorted(maps.Keys(top))
	return nil, &Error{Kind: Broken, Message: fmt.Sprintf("neither a registry nor a server.json: it has %s", shown(strings.Join(names[:min(len(names), 8)], ", ")))}
}

// moment is a time as it was written; "" for what is none.
func moment(value []byte) string {
	text := mcp.String(value)
	if _, err := time.Parse(time.RFC3339, text); err != nil {
		return ""
	}
	return text
}

// is reports whether a value begins so.
func is(value []byte, first byte) bool { return len(value) > 0 && value[0] == first }

// list reports whether a value is an array, or the null that programs in Go write for an
// empty one.
func list(value []byte) bool { return is(value, '[') || string(value) == "null" }

// member is a member of an object that was checked; nil for none.
func member(object []byte, name string) json.RawMessage {
	for _, m := range mcp.Members(object) {
		if string(mcp.Unquote(m.Name)) == name {
			return m.Value
		}
	}
	return nil
}

// cursor is the cursor of the next page.
func cursor(metadata []byte) (string, error) {
	var m struct {
		NextCursor string `json:"nextCursor"`
	}
	if len(metadata) > 0 && json.Unmarshal(metadata, &m) != nil || len(m.NextCursor) > maxValue {
		return "", &Error{Kind: Broken, Message: "metadata.nextCursor: no cursor"}
	}
	return m.NextCursor, nil
}

// take takes the elements of an array of entries. Those of a page of the API have what the
// registry says of them beside.
func (d *document) take(array []byte) error {
	all := mcp.Elements(array)
	if len(all) > MaxEntries {
		return errTooMany
	}
	d.servers = make([]json.RawMessage, 0, len(all))
	for _, one := range all {
		if server := member(one, "server"); is(server, '{') {
			one = official(server, member(member(one, "_meta"), officialMeta))
		}
		d.servers = append(d.servers, one)
	}
	return nil
}

// official is a server.json with what the registry says of it, in place of what it says
// itself.
func official(server, said []byte) []byte {
	meta := map[string]json.RawMessage{}
	if own := member(server, "_meta"); is(own, '{') {
		for _, m := range mcp.Members(own) {
			meta[string(mcp.Unquote(m.Name))] = m.Value
		}
	}
	delete(meta, officialMeta)
	if is(said, '{') {
		meta[officialMeta] = said
	}
	text, err := json.Marshal(meta)
	if err != nil {
		return server // it was checked: it has no other way to fail than to be no JSON
	}
	return mcp.Change(server, []string{"_meta"}, mcp.Raw("_meta", text))
}

// namePattern is what names of entries are like (schema of server.json).
var namePattern = regexp.MustCompile(`^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$`)

// parse reads one server.json that was checked to be JSON. Its error says why it cannot be
// right.
func parse(text []byte) (*Entry, error) {
	switch {
	case len(text) > maxEntry:
		return nil, fmt.Errorf("an entry has more than %d KiB", maxEntry>>10)
	case !is(bytes.TrimLeft(text, " \t\r\n"), '{'):
		return nil, errors.New("an entry is no object")
	}
	var own struct {
		Entry
		Status     string `json:"status"`
		WebsiteURL string `json:"websiteUrl"`
		Repository struct {
			URL string `json:"url"`
		} `json:"repository"`
		Meta struct {
			Official struct {
				Status      string `json:"status"`
				PublishedAt string `json:"publishedAt"`
				IsLatest    bool   `json:"isLatest"`
			} `json:"io.modelcontextprotocol.registry/official"`
			Publisher map[string]json.RawMessage `json:"io.modelcontextprotocol.registry/publisher-provided"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(text, &own); err != nil {
		return nil, fmt.Errorf("%s: %s", shown(mcp.String(member(text, "name"))), wrongType(err))
	}
	e := &own.Entry
	switch {
	case len(e.Name) < 3 || len(e.Name) > 200 || !namePattern.MatchString(e.Name):
		return nil, fmt.Errorf("name: %s is not NAMESPACE/NAME of letters, digits, dots and -", shown(e.Name))
	case len(e.Version) > 255:
		return nil, fmt.Errorf("%s: version: it has more than 255 bytes", e.Name)
	}
	e.Version = Plain(e.Version)
	e.Title, e.Description = Plain(e.Title), Plain(e.Description)
	e.Website, e.Repository = webpage(own.WebsiteURL), webpage(own.Repository.URL)
	e.Latest = own.Meta.Official.IsLatest
	e.Published, _ = time.Parse(time.RFC3339, own.Meta.Official.PublishedAt) // the zero time for what is none
	if err := e.bounded(); err != nil {
		return nil, fmt.Errorf("%s: %w", e.Name, err)
	}
	if err := e.extend(own.Meta.Publisher[publisher]); err != nil {
		return nil, fmt.Errorf("%s: %w", e.Name, err)
	}
	e.Status = "active"
	for _, status := range []string{own.Status, own.Meta.Official.Status} {
		if status = strings.ToLower(status); status == "deprecated" || status == "deleted" {
			e.Status = status
		}
	}
	e.Text = text
	return e, nil
}

// wrongType says what a member has that it should not have.
func wrongType(err error) string {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return strings.TrimPrefix(wrong.Field, "Entry.") + ": a value of another type belongs here"
	}
	return shown(err.Error())
}

// webpage is a URL that people may open; "" for what is none.
func webpage(text string) string {
	if u, err := url.Parse(text); err != nil || len(text) > 2048 || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || Plain(text) != text {
		return ""
	}
	return text
}

// bounded holds the lists and values of an entry to their bounds.
func (e *Entry) bounded() error {
	if len(e.Packages) > maxItems || len(e.Remotes) > maxItems {
		return fmt.Errorf("more than %d packages or remotes", maxItems)
	}
	for i, p := range e.Packages {
		at := fmt.Sprintf("packages[%d].", i)
		if len(p.Identifier) > maxValue || len(p.Version) > 255 {
			return errors.New(at + "identifier: it is too long")
		}
		for field, list := range map[string][]Input{"runtimeArguments": p.RuntimeArguments, "packageArguments": p.PackageArguments, "environmentVariables": p.EnvironmentVariables, "transport.headers": p.Transport.Headers} {
			if err := boundedInputs(at+field, list); err != nil {
				return err
			}
		}
	}
	for i, r := range e.Remotes {
		at := fmt.Sprintf("remotes[%d].", i)
		if err := errors.Join(boundedInputs(at+"headers", r.Headers), boundedVariables(at+"variables", r.Variables)); err != nil {
			return err
		}
	}
	return nil
}

func boundedInputs(field string, list []Input) error {
	if len(list) > maxItems {
		return fmt.Errorf("%s: more than %d", field, maxItems)
	}
	for i := range list {
		if err := list[i].bounded(fmt.Sprintf("%s[%d]", field, i)); err != nil {
			return err
		}
	}
	return nil
}

func boundedVariables(field string, all map[string]Input) error {
	if len(all) > maxItems {
		return fmt.Errorf("%s: more than %d", field, maxItems)
	}
	for name, in := range all {
		if err := in.bounded(field + "." + Plain(name)); err != nil {
			return err
		}
		if len(in.Variables) > 0 {
			return fmt.Errorf("%s.%s.variables: a variable has none of its own", field, Plain(name))
		}
	}
	return nil
}

func (in *Input) bounded(field string) error {
	if len(in.Choices) > maxItems {
		return fmt.Errorf("%s.choices: more than %d", field, maxItems)
	}
	values := append([]string{in.Name, in.ValueHint, in.Default, in.Placeholder, in.Format}, in.Choices...)
	if in.Value != nil {
		values = append(values, *in.Value)
	}
	for _, v := range values {
		if len(v) > maxValue {
			return fmt.Errorf("%s: a value of more than %d bytes", field, maxValue)
		}
		if strings.ContainsRune(v, 0) {
			return fmt.Errorf("%s: a value with a NUL byte", field)
		}
	}
	return boundedVariables(field+".variables", in.Variables)
}

// extend reads what the reference's publisher says of packages and remotes.
func (e *Entry) extend(said []byte) error {
	if !is(said, '{') {
		return nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(said, &all); err != nil {
		return errors.New("_meta: " + wrongType(err))
	}
	of := func(what string, into *Extra) error {
		text := all[what]
		if !is(text, '{') {
			return nil
		}
		if err := json.Unmarshal(text, into); err != nil {
			return fmt.Errorf("_meta.%s: %s", publisher, wrongType(err))
		}
		for _, list := range [][]string{into.Tags, into.Tools, into.Args} {
			if len(list) > maxItems {
				return fmt.Errorf("_meta.%s: a list of more than %d", publisher, maxItems)
			}
		}
		if strings.EqualFold(into.Status, "deprecated") {
			e.Status = "deprecated"
		}
		return nil
	}
	for i := range e.Packages {
		if err := of(e.Packages[i].Identifier, &e.Packages[i].Extra); err != nil {
			return err
		}
	}
	for i := range e.Remotes {
		if err := of(e.Remotes[i].URL, &e.Remotes[i].Extra); err != nil {
			return err
		}
	}
	return nil
}

// Digest is sha256: and 64 hexadecimal digits of the entry, but for what the registry itself
// says of it. It is the same wherever the entry was read.
func (e *Entry) Digest() string {
	own := []byte(e.Text)
	if is(member(own, "_meta"), '{') {
		if own = official(own, nil); string(member(own, "_meta")) == "{}" {
			own = mcp.Change(own, []string{"_meta"})
		}
	}
	// Members stand in the order of their names: blanks and order do not matter.
	var value any
	d := json.NewDecoder(bytes.NewReader(own))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return "" // it was checked when it was read
	}
	canonical, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(canonical)
	return "sha256:" + hex.EncodeToString(sum[:])
}
