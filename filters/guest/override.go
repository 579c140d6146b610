package guest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/sdk/abi"
)

// Limits on what a program is asked about at once, and on its answer.
const (
	maxItems   = 500
	maxItemOps = 16 // for each item
	maxOnItem  = 64 // for any one item
	maxAsked   = 512 << 10
	maxEdited  = 1 << 20 // bytes of an item
	maxListed  = 4 << 20 // bytes of lists of required arguments that are read
)

// overrides implements edge.Overrides with the programs of a server.
type overrides struct {
	at     [3][]subscriber // for tools, prompts, resources
	varies uint8
}

func newOverrides(h *openFilters) *overrides {
	o := &overrides{at: [3][]subscriber{h.at[abi.OverrideTools], h.at[abi.OverridePrompts], h.at[abi.OverrideResources]}}
	for _, list := range o.at {
		for _, a := range list {
			o.varies = max(o.varies, a.want.varies)
		}
	}
	return o
}

// Varies implements edge.Overrides.
func (o *overrides) Varies() bool { return o.varies != abi.VariesByNone }

// Key implements edge.Overrides. The order of groups and roles does not
// matter.
func (o *overrides) Key(id *edge.Identity) string { return keyOf(id, o.varies) }

// keyOf tells clients apart as far as a program does.
func keyOf(id *edge.Identity, varies uint8) string {
	if id == nil || varies == abi.VariesByNone {
		return ""
	}
	tenant, _ := id.Claims[claimTenant].(string) // as programs are told it: a list of tenants is none
	parts := []string{tenant}
	if varies >= abi.VariesByGroups {
		parts = append(parts, names(groupsOf(id)), names(id.Claims[claimRoles]))
	}
	if varies >= abi.VariesBySubject {
		parts = append(parts, id.Issuer, id.Subject)
	}
	var b strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&b, "%d:%s", len(p), p)
	}
	return b.String()
}

// names returns the names of a claim in sorted order.
func names(claim any) string {
	var all []string
	switch v := claim.(type) {
	case string:
		all = []string{v}
	case []string:
		all = slices.Clone(v)
	case []any:
		for _, one := range v {
			if name, ok := one.(string); ok {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	var b strings.Builder
	for _, name := range all {
		fmt.Fprintf(&b, "%d:%s", len(name), name)
	}
	return b.String()
}

// visibleTo returns the part of an identity that a program may see if its
// answer is kept for all clients of one key.
func visibleTo(id *edge.Identity, varies uint8) *edge.Identity {
	if id == nil || varies == abi.VariesByNone {
		return nil
	}
	out := &edge.Identity{Claims: map[string]any{}}
	keep := []string{claimTenant}
	if varies >= abi.VariesByGroups {
		keep = append(append(keep, groupClaims[:]...), claimRoles)
	}
	for _, claim := range keep {
		if v, ok := id.Claims[claim]; ok {
			out.Claims[claim] = v
		}
	}
	if varies >= abi.VariesBySubject {
		out.Issuer, out.Subject = id.Issuer, id.Subject
	}
	return out
}

// Override implements edge.Overrides.
func (o *overrides) Override(ctx context.Context, id *edge.Identity, backend string, thing edge.Thing, items [][]byte) ([]edge.Override, error) {
	list, hook := o.at[0], abi.OverrideTools
	switch thing {
	case edge.Prompt:
		list, hook = o.at[1], abi.OverridePrompts
	case edge.Resource, edge.Template:
		list, hook = o.at[2], abi.OverrideResources
	}
	var out []edge.Override
	for i := range list {
		a := &list[i]
		if !anyGlob(a.spec.Match.Backends, backend) || len(items) == 0 {
			continue
		}
		if out == nil {
			for _, item := range items {
				out = append(out, edge.Override{Item: item})
			}
		}
		if err := a.overrideAll(ctx, hook, visibleTo(id, a.want.varies), backend, thing, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// overrideAll asks a program about all items that it subscribed to, in
// batches.
func (a *subscriber) overrideAll(ctx context.Context, hook abi.Hook, id *edge.Identity, backend string, thing edge.Thing, all []edge.Override) error {
	w := newScratch()
	defer w.free()
	var batch []int
	size := 0
	ask := func() error {
		if len(batch) == 0 {
			return nil
		}
		err := a.override(ctx, w, hook, id, backend, thing, all, batch)
		batch, size = batch[:0], 0
		return err
	}
	for i := range all {
		if all[i].Hide || !a.matches(a.want, "", []byte(nameOf(thing, &all[i])), backend) {
			continue
		}
		if len(batch) == maxItems || len(batch) > 0 && size+len(all[i].Item) > maxAsked {
			if err := ask(); err != nil {
				return err
			}
		}
		batch = append(batch, i)
		size += len(all[i].Item)
	}
	return ask()
}

// nameOf returns the current name of an item; the name of a resource is its
// URI.
func nameOf(thing edge.Thing, o *edge.Override) string {
	switch thing {
	case edge.Resource:
		return mcp.String(mcp.Lookup(o.Item, "uri"))
	case edge.Template:
		return mcp.String(mcp.Lookup(o.Item, "uriTemplate"))
	}
	return cmp.Or(o.Name, mcp.String(mcp.Lookup(o.Item, "name")))
}

// override asks about one batch and applies all operations of the answer.
func (a *subscriber) override(ctx context.Context, w *scratch, hook abi.Hook, id *edge.Identity, backend string, thing edge.Thing, all []edge.Override, batch []int) error {
	x := edge.Exchange{Identity: id}
	in := w.input(a.want, &x, &subject{backend: backend})
	uri := thing == edge.Resource || thing == edge.Template
	for _, i := range batch {
		name := a.told(a.want, &subject{tool: []byte(nameOf(thing, &all[i])), uri: uri})
		w.record = abi.AppendBytes(w.record[:0], abi.ItemName, name)
		w.record = abi.AppendString(w.record, abi.ItemBackend, backend)
		w.record = abi.AppendBytes(w.record, abi.ItemJSON, all[i].Item)
		in = abi.AppendBytes(in, abi.CallItem, w.record)
	}
	w.in = in
	ops, out, err := a.ask(a.within(ctx, hook, nil), hook, "", nobody, in, w.out[:0], may(hook), maxItemOps*len(batch))
	if w.out = out; err != nil || len(ops) == 0 {
		return err
	}
	if err := apply(thing, all, batch, ops); err != nil {
		return a.broke(hook, nobody, err)
	}
	return nil
}

// apply applies all operations of an answer to a batch, or none.
func apply(thing edge.Thing, all []edge.Override, batch []int, ops []op) error {
	changed, left := make([]edited, len(batch)), maxListed
	for n, i := range batch {
		changed[n] = edited{Override: all[i], item: draft{text: all[i].Item}, left: &left}
		changed[n].Fixed = slices.Clip(changed[n].Fixed) // so that appending cannot reach the other's
	}
	for i := range ops {
		o := &ops[i]
		if o.item >= uint64(len(batch)) {
			return fmt.Errorf("%s: there is no item %d", opNames[o.kind], o.item)
		}
		if changed[o.item].ops++; changed[o.item].ops > maxOnItem {
			return fmt.Errorf("%s: item %d: more than %d operations", opNames[o.kind], o.item, maxOnItem)
		}
		if err := edit(&changed[o.item], thing, o); err != nil {
			return fmt.Errorf("%s: item %d: %w", opNames[o.kind], o.item, err)
		}
	}
	for n, i := range batch {
		if err := changed[n].settle(); err != nil {
			return fmt.Errorf("item %d: %w", n, err)
		}
		var err error
		if changed[n].Item, err = sound(thing, all[i].Item, changed[n].item.whole()); err != nil {
			return fmt.Errorf("item %d: %w", n, err)
		}
	}
	for n, i := range batch {
		all[i] = changed[n].Override
	}
	return nil
}

// edited is an item being edited. Its text is that of the draft.
type edited struct {
	edge.Override
	item     draft
	ops      int
	unlisted []unlisted
	left     *int // bytes of lists that may still be read, for all items
}

// unlisted holds arguments removed from a schema that must be removed from
// its lists of required ones, too.
type unlisted struct {
	schema []string // where the schema is
	names  map[string]bool
}

// bare has the members that an item of any list needs.
var bare = []byte(`{"name":"x","uri":"x:x","uriTemplate":"x:x","inputSchema":{"type":"object"}}`)

// sound returns an edited item without the nulls that stand for optional members in what the program
// changed, or an error where clients would refuse the whole list for what it changed. What the backend's
// own member had wrong already is not the program's.
func sound(thing edge.Thing, was, is []byte) ([]byte, error) {
	if bytes.Equal(was, is) {
		return is, nil
	}
	if len(is) > maxEdited {
		return nil, fmt.Errorf("it has grown to %d bytes", len(is))
	}
	if err := mcp.Valid(is); err != nil {
		return nil, err
	}
	list := "tools/list"
	switch thing {
	case edge.Prompt:
		list = "prompts/list"
	case edge.Resource:
		list = "resources/list"
	case edge.Template:
		list = "resources/templates/list"
	}
	before := map[string]mcp.Member{}
	for _, m := range mcp.Members(was) {
		before[string(mcp.Unquote(m.Name))] = m
	}
	var drop []string
	var set []mcp.Member
	for _, m := range mcp.Members(is) {
		name := string(mcp.Unquote(m.Name))
		old, known := before[name]
		if known && bytes.Equal(old.Value, m.Value) {
			continue
		}
		clean, changed, why := mcp.CheckItem(list, mcp.Change(bare, nil, m))
		if wrong := cmp.Or(why, changed); wrong != "" {
			if known {
				_, changed, why = mcp.CheckItem(list, mcp.Change(bare, nil, old))
			}
			if !known || cmp.Or(why, changed) != wrong {
				return nil, fmt.Errorf("%s: clients refuse the whole list", strings.TrimPrefix(wrong, "it."))
			}
			continue
		}
		if value := mcp.Lookup(clean, name); value == nil {
			drop = append(drop, name)
		} else if !bytes.Equal(value, m.Value) {
			set = append(set, mcp.Member{Name: m.Name, Value: value})
		}
	}
	if drop != nil || set != nil {
		is = mcp.Change(is, drop, set...)
	}
	return is, nil
}

// edit applies one operation to an item.
func edit(to *edited, thing edge.Thing, o *op) (err error) {
	if thing != edge.Tool && o.kind >= abi.OpSetSchema && o.kind <= abi.OpHideArg {
		return errors.New("only tools have arguments")
	}
	switch o.kind {
	case abi.OpRename:
		if thing == edge.Tool || thing == edge.Prompt {
			to.Name = o.name
			return nil
		}
		err = to.item.put([]string{"name"}, mcp.Quote(o.name)) // a URI stays as it is
	case abi.OpDescribe:
		err = to.item.put([]string{"description"}, mcp.Quote(o.text))
	case abi.OpHide:
		to.Hide = true
	case abi.OpAnnotate:
		if !to.item.has("annotations") {
			err = to.item.put([]string{"annotations"}, []byte("{}"))
		}
		if err != nil {
			return err
		}
		err = to.item.put([]string{"annotations", o.name}, o.raw)
	case abi.OpPatchItem:
		tokens, bad := tokensOf(o.pointer)
		if bad != nil || len(tokens) == 0 {
			return errPointer
		}
		switch tokens[0] {
		case "name", "uri", "uriTemplate":
			return fmt.Errorf("%s identifies the item and cannot change", tokens[0])
		case inputSchema:
			if err := to.settle(); err != nil {
				return err
			}
		}
		err = to.item.put(tokens, o.raw)
	case abi.OpSetSchema:
		if o.raw[0] != '{' {
			return errors.New("the schema is not an object")
		}
		to.unlisted = nil // of the replaced schema
		err = to.item.put([]string{inputSchema}, o.raw)
	case abi.OpPinArg, abi.OpHideArg:
		tokens, bad := tokensOf(o.pointer)
		if bad != nil || len(tokens) == 0 {
			return errPointer
		}
		fixed := edge.Fixed{Pointer: tokens}
		if o.kind == abi.OpPinArg {
			fixed.Value = bytes.Clone(o.raw)
		}
		to.Fixed = append(to.Fixed, fixed)
		err = to.unlist(tokens)
	}
	return err
}

const inputSchema = "inputSchema"

// unlist removes an argument from the schema of a tool.
func (to *edited) unlist(argument []string) error {
	schema := []string{inputSchema}
	for _, t := range argument[:len(argument)-1] {
		schema = append(schema, "properties", t)
	}
	last := argument[len(argument)-1]
	if !to.item.has(schema...) {
		return nil // the schema does not mention it
	}
	if err := to.item.cut(append(slices.Clone(schema), "properties", last)); err != nil {
		return err
	}
	for _, u := range to.unlisted {
		if slices.Equal(u.schema, schema) {
			u.names[last] = true
			return nil
		}
	}
	to.unlisted = append(to.unlisted, unlisted{schema, map[string]bool{last: true}})
	return nil
}

// settle removes the unlisted arguments from the lists of required ones,
// walking through each list once.
func (to *edited) settle() error {
	all := to.unlisted
	to.unlisted = nil
	for _, u := range all {
		required := append(slices.Clone(u.schema), "required")
		list := to.item.at().Get(required)
		if list == nil {
			continue
		}
		if *to.left -= len(list); *to.left < 0 {
			return fmt.Errorf("more than %d bytes of required arguments", maxListed)
		}
		var o mcp.Outline
		if err := o.Read(list, mcp.Bounds{}); err != nil {
			return err
		}
		left := append(make([]byte, 0, len(list)), '[')
		for n := o.First(0); n < o.End(0); n = o.After(n) {
			v := o.Value(n)
			if v[0] == '"' && u.names[string(mcp.Unquote(v[1:len(v)-1]))] {
				continue
			}
			if len(left) > 1 {
				left = append(left, ',')
			}
			left = append(left, v...)
		}
		var err error
		if len(left) == 1 {
			err = to.item.cut(required)
		} else {
			err = to.item.put(required, append(left, ']'))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fix sets the fixed arguments after all programs have been asked. Values
// that the client sent for them are removed, in whatever case it wrote their
// names.
func fix(x *edge.Exchange, arguments []byte) ([]byte, error) {
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	d := draft{text: arguments}
	cutLike(&d, x.Target.Fixed)
	for _, f := range x.Target.Fixed {
		if f.Value == nil {
			if err := d.cut(f.Pointer); err != nil {
				return nil, err
			}
			continue
		}
		for n := 1; n < len(f.Pointer); n++ { // its parents exist
			if !d.has(f.Pointer[:n]...) {
				if err := d.put(f.Pointer[:n], []byte("{}")); err != nil {
					return nil, err
				}
			}
		}
		if err := d.put(f.Pointer, f.Value); err != nil {
			return nil, err
		}
	}
	return d.whole(), nil
}

// cutLike removes arguments that a backend which ignores case would take for
// a fixed argument or for one of its parents.
func cutLike(d *draft, fixed []edge.Fixed) {
	type place struct {
		path  []string
		names map[string]struct{} // fixed names at this level
	}
	var order []*place
	places := map[string]*place{}
	var key []byte
	for i := range fixed {
		pointer := fixed[i].Pointer
		key = key[:0]
		for n, token := range pointer {
			p := places[string(key)]
			if p == nil {
				p = &place{pointer[:n], map[string]struct{}{}}
				places[string(key)], order = p, append(order, p)
			}
			p.names[token] = struct{}{}
			key = append(append(strconv.AppendInt(key, int64(len(token)), 10), ':'), token...)
		}
	}
	for _, p := range order {
		d.at().CutFolded(p.path, p.names)
	}
}
