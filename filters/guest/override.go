package guest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/sdk/abi"
)

// Bounds of what a program is asked about at once, and of what it may say of it.
const (
	maxItems   = 500
	maxItemOps = 16 // for each item
	maxAsked   = 512 << 10
	maxEdited  = 1 << 20 // bytes of an item
)

// overrides is edge.Overrides for the programs of a server.
type overrides struct {
	at     [3][]asked // of tools, prompts, resources
	varies uint8
}

func newOverrides(h *hall) *overrides {
	o := &overrides{at: [3][]asked{h.at[abi.OverrideTools], h.at[abi.OverridePrompts], h.at[abi.OverrideResources]}}
	for _, list := range o.at {
		for _, a := range list {
			o.varies = max(o.varies, a.want.varies)
		}
	}
	return o
}

// Varies implements edge.Overrides.
func (o *overrides) Varies() bool { return o.varies != abi.VariesByNone }

// Key implements edge.Overrides. Groups and roles count in whatever order they
// come.
func (o *overrides) Key(id *edge.Identity) string { return keyOf(id, o.varies) }

// keyOf tells clients apart as far as a program does.
func keyOf(id *edge.Identity, varies uint8) string {
	if id == nil || varies == abi.VariesByNone {
		return ""
	}
	parts := []string{names(id.Claims[claimTenant])}
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

// names is a claim of names in an order of its own.
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

// told is what of an identity a program may know whose answer is kept for all
// clients of one key.
func told(id *edge.Identity, varies uint8) *edge.Identity {
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
		if err := a.overrideAll(ctx, hook, told(id, a.want.varies), backend, thing, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// overrideAll asks a program about all items that it wants to be asked about, a
// batch at a time.
func (a *asked) overrideAll(ctx context.Context, hook abi.Hook, id *edge.Identity, backend string, thing edge.Thing, all []edge.Override) error {
	w := newWork()
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

// nameOf is the name of an item so far: that of a resource is its URI.
func nameOf(thing edge.Thing, o *edge.Override) string {
	switch thing {
	case edge.Resource:
		return mcp.String(mcp.Lookup(o.Item, "uri"))
	case edge.Template:
		return mcp.String(mcp.Lookup(o.Item, "uriTemplate"))
	}
	return cmp.Or(o.Name, mcp.String(mcp.Lookup(o.Item, "name")))
}

// override asks about a batch and does all that the program says of it.
func (a *asked) override(ctx context.Context, w *work, hook abi.Hook, id *edge.Identity, backend string, thing edge.Thing, all []edge.Override, batch []int) error {
	x := edge.Exchange{Identity: id}
	in := w.input(a.want, &x, &subject{backend: backend})
	for _, i := range batch {
		w.record = abi.AppendString(w.record[:0], abi.ItemName, nameOf(thing, &all[i]))
		w.record = abi.AppendString(w.record, abi.ItemBackend, backend)
		w.record = abi.AppendBytes(w.record, abi.ItemJSON, all[i].Item)
		in = abi.AppendBytes(in, abi.CallItem, w.record)
	}
	w.in = in
	ops, out, err := a.ask(a.within(ctx, hook, nil), hook, "", in, w.out[:0], may(hook), maxItemOps*len(batch))
	if w.out = out; err != nil || len(ops) == 0 {
		return err
	}
	changed := make([]edge.Override, len(batch))
	for n, i := range batch {
		changed[n] = all[i]
	}
	for i := range ops {
		o := &ops[i]
		if o.item >= uint64(len(batch)) {
			return a.broke(hook, fmt.Errorf("%s: there is no item %d", opNames[o.kind], o.item))
		}
		if err := edit(&changed[o.item], thing, o); err != nil {
			return a.broke(hook, fmt.Errorf("%s: item %d: %w", opNames[o.kind], o.item, err))
		}
	}
	for n, i := range batch {
		if err := sound(all[i].Item, changed[n].Item); err != nil {
			return a.broke(hook, fmt.Errorf("item %d: %w", n, err))
		}
		all[i] = changed[n]
	}
	return nil
}

// sound says what is wrong with an edited item.
func sound(was, is []byte) error {
	if bytes.Equal(was, is) {
		return nil
	}
	if len(is) > maxEdited {
		return fmt.Errorf("it has %d bytes by now", len(is))
	}
	return mcp.Valid(is)
}

// edit makes one operation on an item.
func edit(to *edge.Override, thing edge.Thing, o *op) (err error) {
	if thing != edge.Tool && o.kind >= abi.OpSetSchema && o.kind <= abi.OpHideArg {
		return errors.New("only tools have arguments")
	}
	switch o.kind {
	case abi.OpRename:
		if thing == edge.Tool || thing == edge.Prompt {
			to.Name = o.name
			return nil
		}
		to.Item, err = put(to.Item, []string{"name"}, mcp.Quote(o.name)) // a URI stays what it is
	case abi.OpDescribe:
		to.Item, err = put(to.Item, []string{"description"}, mcp.Quote(o.text))
	case abi.OpHide:
		to.Hide = true
	case abi.OpAnnotate:
		if at(to.Item, []string{"annotations"}) == nil {
			to.Item = mcp.Change(to.Item, nil, mcp.With("annotations", "{}"))
		}
		to.Item, err = put(to.Item, []string{"annotations", o.name}, o.raw)
	case abi.OpPatchItem:
		tokens, bad := tokensOf(o.pointer)
		if bad != nil || len(tokens) == 0 {
			return errPointer
		}
		switch tokens[0] {
		case "name", "uri", "uriTemplate":
			return fmt.Errorf("%s is what it is known by", tokens[0])
		}
		to.Item, err = put(to.Item, tokens, o.raw)
	case abi.OpSetSchema:
		if o.raw[0] != '{' {
			return errors.New("a schema that is not an object")
		}
		to.Item, err = put(to.Item, []string{"inputSchema"}, o.raw)
	case abi.OpPinArg, abi.OpHideArg:
		tokens, bad := tokensOf(o.pointer)
		if bad != nil || len(tokens) == 0 {
			return errPointer
		}
		fixed := edge.Fixed{Pointer: tokens}
		if o.kind == abi.OpPinArg {
			fixed.Value = bytes.Clone(o.raw)
		}
		to.Fixed = append(slices.Clone(to.Fixed), fixed)
		to.Item, err = unlisted(to.Item, tokens)
	}
	return err
}

// unlisted takes an argument out of the schema of a tool.
func unlisted(item []byte, argument []string) ([]byte, error) {
	place := []string{"inputSchema"}
	for _, t := range argument[:len(argument)-1] {
		place = append(place, "properties", t)
	}
	last := argument[len(argument)-1]
	if at(item, place) == nil {
		return item, nil // the schema does not speak of it
	}
	item, err := cut(item, append(slices.Clone(place), "properties", last))
	if err != nil {
		return nil, err
	}
	required := append(slices.Clone(place), "required")
	list := at(item, required)
	if list == nil {
		return item, nil
	}
	var left [][]byte
	for _, e := range mcp.Elements(list) {
		if mcp.String(e) != last {
			left = append(left, e)
		}
	}
	if len(left) == 0 {
		return cut(item, required)
	}
	return put(item, required, listOf(left))
}

// fix sets what arguments are not the client's to choose, after all programs
// have been asked.
func fix(x *edge.Exchange, arguments []byte) ([]byte, error) {
	var err error
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	for _, f := range x.Target.Fixed {
		if f.Value == nil {
			if arguments, err = cut(arguments, f.Pointer); err != nil {
				return nil, err
			}
			continue
		}
		for n := 1; n < len(f.Pointer); n++ { // what it stands in is there
			if at(arguments, f.Pointer[:n]) == nil {
				if arguments, err = put(arguments, f.Pointer[:n], []byte("{}")); err != nil {
					return nil, err
				}
			}
		}
		if arguments, err = put(arguments, f.Pointer, f.Value); err != nil {
			return nil, err
		}
	}
	return arguments, nil
}
