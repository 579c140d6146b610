package starlark

import (
	"fmt"

	"go.starlark.net/starlark"

	"github.com/weir-edge/weir/sdk/abi"
)

// field is a field of the input by its name in texts.
type field struct {
	name   string
	number int // abi.Call…
	make   func(in *input) (starlark.Value, error)
}

// fields are those of the ABI's Input. What is JSON has its text too, as it came: for
// checksums, and for numbers whose form counts. An absent text is empty, an absent JSON text None, an
// absent number 0, an absent list empty.
func fields() []field {
	texts := func(number int) func(*input) (starlark.Value, error) {
		return func(in *input) (starlark.Value, error) { return in.text(in.data(number)) }
	}
	values := func(number int) func(*input) (starlark.Value, error) {
		return func(in *input) (starlark.Value, error) { return in.value(in.data(number)) }
	}
	lists := func(number int) func(*input) (starlark.Value, error) {
		return func(in *input) (starlark.Value, error) { return in.list(number, in.value) }
	}
	numbers := func(number int) func(*input) (starlark.Value, error) {
		return func(in *input) (starlark.Value, error) { return starlark.MakeUint64(in.numbers[number]), nil }
	}
	return []field{
		{"args", abi.CallArguments, values(abi.CallArguments)},
		{"attrs", abi.CallAttr, func(in *input) (starlark.Value, error) { return in.attrs() }},
		{"backend", abi.CallBackend, texts(abi.CallBackend)},
		{"carry", abi.CallCarry, texts(abi.CallCarry)},
		{"claims", abi.CallClaims, values(abi.CallClaims)},
		{"error", abi.CallError, values(abi.CallError)},
		{"event", abi.CallEvent, values(abi.CallEvent)},
		{"header_lines", abi.CallHeader, func(in *input) (starlark.Value, error) { return in.headerLines() }},
		{"headers", abi.CallHeader, func(in *input) (starlark.Value, error) { return in.headers() }},
		{"issuer", abi.CallIssuer, texts(abi.CallIssuer)},
		{"items", abi.CallItem, func(in *input) (starlark.Value, error) { return in.items() }},
		{"method", abi.CallMethod, texts(abi.CallMethod)},
		{"now", abi.CallNow, numbers(abi.CallNow)},
		{"path", abi.CallPath, texts(abi.CallPath)},
		{"raw_args", abi.CallArguments, texts(abi.CallArguments)},
		{"raw_result", abi.CallResult, texts(abi.CallResult)},
		{"raw_selected", abi.CallSelected, func(in *input) (starlark.Value, error) { return in.list(abi.CallSelected, in.text) }},
		{"principal", abi.CallPrincipal, func(in *input) (starlark.Value, error) { return &in.principal, nil }},
		{"request_id", abi.CallRequestID, values(abi.CallRequestID)},
		{"result", abi.CallResult, values(abi.CallResult)},
		{"selected", abi.CallSelected, lists(abi.CallSelected)},
		{"selected_claims", abi.CallClaim, lists(abi.CallClaim)},
		{"sender", abi.CallFrom, func(in *input) (starlark.Value, error) { return sender(in.numbers[abi.CallFrom]), nil }},
		{"session", abi.CallSession, texts(abi.CallSession)},
		{"status", abi.CallStatus, numbers(abi.CallStatus)},
		{"tool", abi.CallTool, texts(abi.CallTool)},
	}
}

func fieldNamed(name string) *field {
	for _, f := range fields() {
		if f.name == name {
			return &f
		}
	}
	return nil
}

func fieldNames() []string {
	var names []string
	for _, f := range fields() {
		names = append(names, f.name)
	}
	return names
}

// always are fields that the input has whatever a subscription asks for.
const always = 1<<abi.CallFrom | 1<<abi.CallHeader | 1<<abi.CallSelected | 1<<abi.CallClaim

const maxField = abi.CallClaim + 1

// input is what a function is asked about: a record, of which each field is decoded when it
// is first read. It lives as long as the call.
type input struct {
	c         *call
	record    []byte
	at        [maxField]span
	numbers   [maxField]uint64
	made      [28]starlark.Value // by the place of the field in fields
	principal principal
}

// span is where a field is in the record: the first of those that are repeated begins at
// first, with its number, and the data of the last is between from and to.
type span struct{ first, from, to uint32 }

// data is that of a field, of one that is repeated the last.
func (in *input) data(number int) []byte {
	at := &in.at[number]
	return in.record[at.from:at.to:at.to]
}

// read notes where the fields of a record are.
func (in *input) read(record []byte) bool {
	in.record = record
	r := abi.Reader{B: record}
	for began := 0; r.Next(); began = len(record) - len(r.B) {
		if r.Num >= maxField {
			continue
		}
		to, at := len(record)-len(r.B), &in.at[r.Num]
		if at.to == 0 {
			at.first = uint32(began)
		}
		at.from, at.to, in.numbers[r.Num] = uint32(to-len(r.Data)), uint32(to), r.Uint
	}
	in.principal.in, in.principal.record = in, in.data(abi.CallPrincipal)
	return !r.Bad
}

// forget drops what a call had.
func (in *input) forget() {
	c := in.c
	*in = input{c: c}
}

// String, Type, Freeze, Truth and Hash make it a value of the language.
func (in *input) String() string        { return "input" }
func (in *input) Type() string          { return "input" }
func (in *input) Freeze()               {}
func (in *input) Truth() starlark.Bool  { return starlark.True }
func (in *input) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable type: input") }

// AttrNames returns the names of its fields.
func (in *input) AttrNames() []string { return fieldNames() }

// Attr returns a field.
func (in *input) Attr(name string) (starlark.Value, error) {
	g := in.c.guest
	i, ok := g.fieldIndex[name]
	if !ok {
		return nil, nil
	}
	if v := in.made[i]; v != nil {
		return v, nil
	}
	f := &g.fields[i]
	if has := g.reads[in.c.hook]; has != 0 && (has|always)>>f.number&1 == 0 {
		return nil, fmt.Errorf("the input has no %s here: name it among the fields of subscribe(%q)", name, in.c.hook.String())
	}
	v, err := f.make(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	in.made[i] = v
	return v, nil
}

// Short texts, such as names of tools and groups, are kept for later calls, so that they are
// made once: mostKept of them at a time, of at most maxKept bytes.
const (
	maxKept  = 64
	mostKept = 256
)

// text makes a text.
func (in *input) text(b []byte) (starlark.Value, error) {
	if len(b) == 0 {
		return starlark.String(""), nil
	}
	if err := in.c.task().Allocate(len(b) + 32); err != nil || len(b) > maxKept {
		return starlark.String(b), err
	}
	v, ok := in.c.kept[string(b)]
	if !ok {
		if v = starlark.String(b); len(in.c.kept) == mostKept {
			clear(in.c.kept)
		}
		in.c.kept[string(b)] = v
	}
	return v, nil
}

// value makes a value of a JSON text; None where there is none.
func (in *input) value(text []byte) (starlark.Value, error) {
	if len(text) == 0 {
		return starlark.None, nil
	}
	return in.c.task().Value(text)
}

// each calls a function for each time that the record has a field of bytes.
func (in *input) each(number int, f func(data []byte) error) error {
	at := in.at[number]
	r := abi.Reader{B: in.record[at.first:at.to]}
	for r.Next() {
		if r.Num == number {
			if err := f(r.Data); err != nil {
				return err
			}
		}
	}
	return nil
}

// list makes a tuple of what a repeated field holds.
func (in *input) list(number int, decode func([]byte) (starlark.Value, error)) (starlark.Value, error) {
	all := make(starlark.Tuple, 0, 1)
	err := in.each(number, func(data []byte) error {
		v, err := decode(data)
		all = append(all, v)
		return err
	})
	return all, err
}

// two returns a text and bytes of a record within the record.
func two(record []byte, first, second int) (a, b []byte) {
	r := abi.Reader{B: record}
	for r.Next() {
		switch r.Num {
		case first:
			a = r.Data
		case second:
			b = r.Data
		}
	}
	return a, b
}

func (in *input) headers() (starlark.Value, error) {
	d := starlark.NewDict(4)
	err := in.each(abi.CallHeader, func(data []byte) error {
		name, value := two(data, abi.HeaderName, abi.HeaderValue)
		key := starlark.String(name)
		if _, there, _ := d.Get(key); there {
			return nil
		}
		v, err := in.text(value)
		if err != nil {
			return err
		}
		return d.SetKey(key, v)
	})
	return d, err
}

func (in *input) headerLines() (starlark.Value, error) {
	all := make(starlark.Tuple, 0, 4)
	err := in.each(abi.CallHeader, func(data []byte) error {
		name, value := two(data, abi.HeaderName, abi.HeaderValue)
		v, err := in.text(value)
		all = append(all, starlark.Tuple{starlark.String(name), v})
		return err
	})
	return all, err
}

func (in *input) attrs() (starlark.Value, error) {
	d := starlark.NewDict(4)
	err := in.each(abi.CallAttr, func(data []byte) error {
		name, text := two(data, abi.AttrName, abi.AttrJSON)
		v, err := in.value(text)
		if err != nil {
			return err
		}
		return d.SetKey(starlark.String(name), v)
	})
	return d, err
}

func (in *input) items() (starlark.Value, error) {
	var all starlark.Tuple
	err := in.each(abi.CallItem, func(data []byte) error {
		all = append(all, &item{in: in, index: len(all), record: data})
		return in.c.task().Allocate(128)
	})
	return all, err
}

func sender(from uint64) starlark.Value {
	switch from {
	case abi.FromClient:
		return starlark.String("client")
	case abi.FromServer:
		return starlark.String("server")
	}
	return starlark.String("")
}

// principal is who a client is. It is false for one that nobody knows.
type principal struct {
	in     *input
	record []byte
	made   [6]starlark.Value // likewise
}

// principalNames are its fields, by their number less one.
func principalNames() []string {
	return []string{"subject", "tenant", "groups", "roles", "scopes", "issuer"}
}

func (p *principal) String() string        { return "principal" }
func (p *principal) Type() string          { return "principal" }
func (p *principal) Freeze()               {}
func (p *principal) Truth() starlark.Bool  { return len(p.record) > 0 }
func (p *principal) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable type: principal") }

// AttrNames returns the names of its fields.
func (p *principal) AttrNames() []string { return principalNames() }

// Attr returns a field.
func (p *principal) Attr(name string) (starlark.Value, error) {
	number := 0
	switch name {
	case "subject":
		number = abi.PrincipalSubject
	case "tenant":
		number = abi.PrincipalTenant
	case "groups":
		number = abi.PrincipalGroup
	case "roles":
		number = abi.PrincipalRole
	case "scopes":
		number = abi.PrincipalScope
	case "issuer":
		number = abi.PrincipalIssuer
	default:
		return nil, nil
	}
	if v := p.made[number-1]; v != nil {
		return v, nil
	}
	several := number == abi.PrincipalGroup || number == abi.PrincipalRole || number == abi.PrincipalScope
	var (
		all  starlark.Tuple
		last []byte
	)
	r := abi.Reader{B: p.record}
	for r.Next() {
		if r.Num != number {
			continue
		}
		if last = r.Data; several {
			v, err := p.in.text(r.Data)
			if err != nil {
				return nil, err
			}
			if all == nil {
				all = make(starlark.Tuple, 0, 4)
			}
			all = append(all, v)
		}
	}
	var v starlark.Value = all
	if !several {
		var err error
		if v, err = p.in.text(last); err != nil {
			return nil, err
		}
	}
	p.made[number-1] = v
	return v, nil
}

// item is a tool, a prompt or a resource of a backend.
type item struct {
	in     *input
	index  int
	record []byte
	made   [4]starlark.Value // likewise, and the last is the text of json
}

func (i *item) String() string        { return fmt.Sprintf("item %d", i.index) }
func (i *item) Type() string          { return "item" }
func (i *item) Freeze()               {}
func (i *item) Truth() starlark.Bool  { return starlark.True }
func (i *item) Hash() (uint32, error) { return uint32(i.index), nil }

// AttrNames returns the names of its fields.
func (i *item) AttrNames() []string { return []string{"backend", "json", "name", "raw"} }

// Attr returns a field.
func (i *item) Attr(name string) (starlark.Value, error) {
	number := 0
	switch name {
	case "name":
		number = abi.ItemName
	case "backend":
		number = abi.ItemBackend
	case "json", "raw":
		number = abi.ItemJSON
	default:
		return nil, nil
	}
	kept := &i.made[number-1]
	if name == "raw" {
		kept = &i.made[len(i.made)-1]
	}
	if v := *kept; v != nil {
		return v, nil
	}
	var data []byte
	r := abi.Reader{B: i.record}
	for r.Next() {
		if r.Num == number {
			data = r.Data
		}
	}
	decode := i.in.text
	if name == "json" {
		decode = i.in.value
	}
	v, err := decode(data)
	if err == nil {
		*kept = v
	}
	return v, err
}
