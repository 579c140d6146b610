package audit

import (
	"cmp"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/filters/audit/mask"
)

// entry holds the data of a record.
type entry struct {
	typ                           Type
	outcome                       Outcome
	x                             *edge.Exchange // nil for nobody's
	m                             *mcp.Message   // nil for what is no message
	r                             *edge.Response // nil for none
	component, method, name, kind string
	status                        int
	coded                         bool // code is known
	code                          int
	message, reason, cause        string
	told                          []byte // JSON text; nil for none
}

// line is a buffer for one record. It keeps the second of the last one that was
// written into it, which most often is that of the next.
type line struct {
	text   []byte
	second int64
	stamp  [len("2006-01-02T15:04:05")]byte
}

// time appends a moment as time.RFC3339Nano has it.
func (v *line) time(dst []byte, at time.Time) []byte {
	if second := at.Unix(); second != v.second || second == 0 {
		at = at.UTC()
		if at.Year() < 0 || at.Year() > 9999 {
			return at.AppendFormat(dst, time.RFC3339Nano)
		}
		at.AppendFormat(v.stamp[:0], "2006-01-02T15:04:05")
		v.second = second
	}
	dst = append(dst, v.stamp[:]...)
	if ns := at.Nanosecond(); ns > 0 {
		var digits [10]byte
		n := len(digits)
		for i := n - 1; i > 0; i-- {
			if digits[i] = byte('0' + ns%10); digits[i] == '0' && n == i+1 {
				n = i
			}
			ns /= 10
		}
		digits[0] = '.'
		dst = append(dst, digits[:n]...)
	}
	return append(dst, 'Z')
}

// lines keeps buffers for records. Large ones are left to the collector.
type lines struct{ pool sync.Pool }

const keep = 64 << 10

func (l *lines) get() *line {
	if v, ok := l.pool.Get().(*line); ok {
		return v
	}
	return &line{text: make([]byte, 0, 2<<10)}
}

func (l *lines) put(v *line) {
	if cap(v.text) <= keep {
		v.text = v.text[:0]
		l.pool.Put(v)
	}
}

func (l *Log) write(e *entry, began time.Time) {
	v := l.queue.lines.get()
	v.text = l.append(v, e, began)
	l.queue.add(v.text)
	if l.Copy != nil {
		l.Copy(v.text)
	}
	l.queue.lines.put(v)
}

// append appends a record and a line feed. All in it that comes from outside
// is bounded and escaped.
func (l *Log) append(v *line, e *entry, began time.Time) []byte {
	now := l.now()
	dst := append(v.text, `{"time":"`...)
	from := len(dst)
	dst = v.time(dst, now)
	to := len(dst)
	dst = append(dst, `","level":"AUDIT","msg":"audit_event","audit_id":"`...)
	if e.m != nil && e.x.Record != "" {
		dst = append(dst, e.x.Record...)
	} else {
		dst = appendID(dst)
	}
	if of := recordAround(e); of != "" {
		dst = append(append(dst, `","parent_id":"`...), of...)
	}
	dst = append(dst, `","type":"`...)
	dst = append(dst, e.typ.String()...)
	dst = append(dst, `","logged_at":"`...)
	dst = append(dst, dst[from:to]...)
	dst = append(dst, `","outcome":"`...)
	dst = append(dst, e.outcome.String()...)
	dst = append(dst, `","component":`...)
	dst = text(dst, cmp.Or(e.component, l.component))
	dst = l.who(dst, e)
	dst = l.what(dst, e)
	dst = l.extra(dst, e, now.Sub(began))
	if e.m != nil && (l.request || l.response) {
		dst = append(dst, `,"data":{`...)
		if l.request {
			dst = append(dst, `"request":`...)
			dst = l.data(dst, e.m.Raw, len(e.m.Raw))
		}
		if l.response && e.r != nil && len(e.r.Raw) > 0 {
			if l.request {
				dst = append(dst, ',')
			}
			dst = append(dst, `"response":`...)
			dst = l.data(dst, l.text(e.r), sizeOf(e.r))
		}
		dst = append(dst, '}')
	}
	if len(e.told) > 0 {
		dst = append(dst, `,"data":{"event":`...)
		dst = append(l.told(dst, e.told), '}')
	}
	return append(dst, "}\n"...)
}

// recordAround is the id of the record that an entry belongs to: an event to that of its
// exchange, where that has an id before it is written, a call of a tool to that of the tool.
func recordAround(e *entry) string {
	switch {
	case e.x == nil:
		return ""
	case e.m == nil && e.x.Record != "":
		return e.x.Record
	case e.x.Parent != nil:
		return e.x.Parent.Record
	}
	return ""
}

// maxTold bounds what a program tells of in one event, in bytes.
const maxTold = 4 << 10

// told appends what a program tells of without secrets.
func (l *Log) told(dst, raw []byte) []byte {
	from := len(dst)
	dst, whole := mask.Append(dst, raw, maxTold)
	if whole {
		return dst
	}
	return mask.AppendText(dst[:from], string(dst[from:])+"…")
}

// who appends source and subjects.
func (l *Log) who(dst []byte, e *entry) []byte {
	var head *edge.Head
	var id *edge.Identity
	if e.x != nil {
		head, id = &e.x.Head, e.x.Identity
	} else {
		head = &edge.Head{}
	}
	dst = append(dst, `,"source":{"type":"network","value":`...)
	dst = text(dst, cmp.Or(head.Source, head.Remote))
	dst = append(dst, `,"extra":{"user_agent":`...)
	dst = text(dst, head.Agent)
	if head.RequestID != "" {
		dst = append(dst, `,"request_id":`...)
		dst = text(dst, head.RequestID)
	}
	dst = append(dst, `}},"subjects":{"user":`...)
	if id == nil {
		dst = append(dst, `"anonymous","user_id":""`...)
	} else {
		dst = text(dst, cmp.Or(id.Name, id.Email, id.Subject))
		dst = append(dst, `,"user_id":`...)
		dst = text(dst, id.Subject)
		if id.Issuer != "" {
			dst = append(dst, `,"issuer":`...)
			dst = text(dst, id.Issuer)
		}
	}
	if info := clientInfo(e); info != nil {
		name, version := mcp.LookupTwo(info, "name", "version")
		if name != nil {
			dst = append(dst, `,"client_name":`...)
			dst = text(dst, string(mcp.Unquote(inner(name))))
		}
		if version != nil {
			dst = append(dst, `,"client_version":`...)
			dst = text(dst, string(mcp.Unquote(inner(version))))
		}
	}
	return append(dst, '}')
}

// clientInfo is the JSON text in which the client says what it is. A call that a tool of the
// edge makes has the edge's own name in it, and an event none: the client's message has it.
func clientInfo(e *entry) []byte {
	m := e.m
	if e.x != nil && (m == nil || e.x.Parent != nil) {
		x := e.x
		// The memory of a request is another's once it was answered, which the calls that were
		// made for it may outlive: what is made in its place has what it says of the client, and
		// a call that the edge answers itself keeps that for the others.
		for x.Parent != nil && !x.Passed {
			x = x.Parent
		}
		switch {
		case x == e.x || x.Info == nil:
			m = x.Request
		case len(x.Info) > 0:
			return x.Info
		default:
			return sessionInfo(e.x)
		}
	}
	if m != nil {
		if info := m.Meta(mcp.MetaClientInfo); info.OK() {
			return info.Of(m.Raw)
		}
		if e.typ == Initialize {
			return m.Get("clientInfo").Of(m.Raw)
		}
	}
	return sessionInfo(e.x)
}

func sessionInfo(x *edge.Exchange) []byte {
	if x != nil && x.Session != nil {
		return x.Session.Info
	}
	return nil
}

// inner is what stands between the quotes of a string, bounded; nil for
// another value.
func inner(v []byte) []byte {
	if len(v) < 2 || v[0] != '"' {
		return nil
	}
	v = v[1 : len(v)-1]
	if len(v) > 4*maxWord {
		return nil
	}
	return v
}

// what appends target.
func (l *Log) what(dst []byte, e *entry) []byte {
	dst = append(dst, `,"target":{"endpoint":`...)
	dst = text(dst, l.endpoint)
	dst = append(dst, `,"method":`...)
	dst = text(dst, e.method)
	name, kind := e.name, e.kind
	if e.m != nil {
		name, kind = target(e)
	}
	if name != "" {
		dst = append(dst, `,"name":`...)
		dst = text(dst, name)
	}
	if kind != "" {
		dst = append(dst, `,"type":`...)
		dst = text(dst, kind)
	}
	return append(dst, '}')
}

// target is what a message names: what the catalog calls it when it knows it,
// else what the client does.
func target(e *entry) (name, kind string) {
	member := "name"
	switch e.m.Method {
	case "tools/call":
		kind = "tool"
	case "prompts/get":
		kind = "prompt"
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		kind, member = "resource", "uri"
	case "tasks/get", "tasks/result", "tasks/cancel", "tasks/update":
		kind, member = "task", "taskId"
	default:
		return "", ""
	}
	if t := e.x.Target; t != nil && t.Thing != edge.NoThing && t.Name != "" && t.Thing != edge.Template {
		name = t.Name
	} else {
		name = e.m.Text(member)
	}
	if kind == "resource" {
		name = safeURI(name)
	}
	return name, kind
}

// maxURI is how much of a URI is looked at.
const maxURI = 64 << 10

// safeURI is a URI without its secrets, or its beginning.
func safeURI(uri string) string { return mask.URI(uri[:min(len(uri), maxURI)]) }

// extra appends metadata.
func (l *Log) extra(dst []byte, e *entry, took time.Duration) []byte {
	transport := "streamable-http"
	if l.Transport != nil && e.x != nil {
		transport = l.Transport(e.x)
	}
	dst = append(dst, `,"metadata":{"extra":{"duration_ms":`...)
	dst = milliseconds(dst, took.Microseconds())
	dst = append(dst, `,"transport":`...)
	dst = text(dst, transport)
	dst = append(dst, `,"response_size_bytes":`...)
	dst = strconv.AppendInt(dst, int64(sizeOf(e.r)), 10)
	if l.server != "" {
		dst = append(dst, `,"server":`...)
		dst = text(dst, l.server)
	}
	if e.x != nil && e.x.Target != nil && e.x.Target.Backend != "" {
		dst = append(dst, `,"backend_name":`...)
		dst = text(dst, e.x.Target.Backend)
	}
	if e.status != 0 {
		dst = append(dst, `,"status":`...)
		dst = strconv.AppendInt(dst, int64(e.status), 10)
	}
	if e.reason != "" {
		dst = append(dst, `,"error":`...)
		dst = text(dst, e.reason)
	}
	if e.cause != "" {
		dst = append(dst, `,"cause":`...)
		dst = text(dst, e.cause)
	}
	if e.coded {
		dst = append(dst, `,"jsonrpc_error_code":`...)
		dst = strconv.AppendInt(dst, int64(e.code), 10)
	}
	if e.message != "" {
		dst = append(dst, `,"jsonrpc_error_message":`...)
		dst = text(dst, mask.URI(e.message))
	}
	if e.x != nil && e.x.Parent != nil {
		dst = append(dst, `,"inner":true`...)
	}
	if e.x != nil {
		dst = attributes(dst, e.x.PrincipalAttributes())
		dst = notes(dst, e.x.Notes)
	}
	if e.m != nil && l.Script != nil {
		if sum := l.Script(e.x); sum != "" {
			dst = append(append(dst, `,"script_sha256":"`...), sum...)
			dst = append(dst, '"')
		}
	}
	if e.m != nil && l.Decision != nil {
		if d, ok := l.Decision(e.x); ok {
			dst = decision(dst, &d)
		}
	}
	return append(dst, "}}"...)
}

// maxAttributes bounds what programs say of a principal in one record, in bytes.
const maxAttributes = 4 << 10

// attributes appends what programs say of a principal without secrets, or the
// beginning of it as a string.
func attributes(dst []byte, all edge.Attributes) []byte {
	if len(all) == 0 {
		return dst
	}
	raw := []byte{'{'}
	for i := range all {
		if i > 0 {
			raw = append(raw, ',')
		}
		raw = append(append(mcp.AppendString(raw, all[i].Name), ':'), all[i].Value...)
	}
	return masked(append(dst, `,"attributes":`...), append(raw, '}'), maxAttributes)
}

// maxNotes bounds what programs note on a message in one record, in bytes.
const maxNotes = 4 << 10

// notes appends what programs note on a message without secrets, or the beginning of
// it as a string: an object for each note, since a filter may use one name twice.
func notes(dst []byte, all []edge.Note) []byte {
	if len(all) == 0 {
		return dst
	}
	raw := []byte{'['}
	for i := range all {
		if i > 0 {
			raw = append(raw, ',')
		}
		raw = append(mcp.AppendString(append(raw, `{"filter":`...), all[i].By), `,"note":{`...)
		raw = append(mcp.AppendString(append(mcp.AppendString(raw, all[i].Name), ':'), all[i].Text), "}}"...)
	}
	return masked(append(dst, `,"notes":`...), append(raw, ']'), maxNotes)
}

// masked appends JSON text without secrets, or the beginning of it as a string where it
// is longer than so many bytes.
func masked(dst, raw []byte, most int) []byte {
	from := len(dst)
	dst, whole := mask.Append(dst, raw, most)
	if whole {
		return dst
	}
	return mask.AppendText(dst[:from], string(dst[from:])+"…")
}

// milliseconds appends so many microseconds as milliseconds, in a tenth of the
// time that a conversion of a float takes.
func milliseconds(dst []byte, us int64) []byte {
	dst = strconv.AppendInt(dst, us/1000, 10)
	if us %= 1000; us <= 0 {
		return dst
	}
	dst = append(dst, '.', byte('0'+us/100), byte('0'+us/10%10), byte('0'+us%10))
	for dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
	}
	return dst
}

// maxPolicies is how many policies of a decision a record names.
const maxPolicies = 32

func decision(dst []byte, d *Decision) []byte {
	dst = append(dst, `,"decision":{"allowed":`...)
	dst = strconv.AppendBool(dst, d.Allowed)
	dst = append(dst, `,"reason":`...)
	dst = text(dst, d.Reason)
	dst = append(dst, `,"policies":[`...)
	for i, id := range d.Policies[:min(len(d.Policies), maxPolicies)] {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = text(dst, id)
	}
	dst = append(dst, ']')
	if d.Version != "" {
		dst = append(dst, `,"version":`...)
		dst = text(dst, d.Version)
	}
	return append(dst, '}')
}

// sizeOf is how many bytes an answer has; 0 for none.
func sizeOf(r *edge.Response) int {
	switch {
	case r == nil:
		return 0
	case r.Shared == nil:
		return len(r.Raw)
	}
	return len(r.Raw) + len(r.Shared) + len("}")
}

// text is the text of an answer in one piece. Of a result that many answers
// share, it is as much as a record may have need of.
func (l *Log) text(r *edge.Response) []byte {
	if r.Shared == nil {
		return r.Raw
	}
	most := min(len(r.Shared), 32*l.size+128<<10)
	return append(append(append(make([]byte, 0, len(r.Raw)+most+1), r.Raw...), r.Shared[:most]...), '}')
}

// data appends a message of so many bytes without its secrets. One that is
// longer than maxDataSize becomes a string of its beginning and a marker.
func (l *Log) data(dst, raw []byte, size int) []byte {
	from := len(dst)
	dst, whole := mask.Append(dst, raw, l.size)
	if whole {
		return dst
	}
	cut := string(dst[from:]) + "…[truncated: " + strconv.Itoa(size) + " bytes]"
	return mask.AppendText(dst[:from], cut)
}

// text appends a word of a record as a JSON string, cut to maxWord bytes.
func text(dst []byte, s string) []byte {
	if len(s) > maxWord {
		s = strings.ToValidUTF8(s[:maxWord], "") + "…"
	}
	return mask.AppendText(dst, s)
}

const digits = "0123456789abcdef"

// appendID appends a random UUID (RFC 9562 §5.4). It tells records apart, and
// is nobody's secret.
func appendID(dst []byte) []byte {
	a, b := rand.Uint64(), rand.Uint64()
	var id [16]byte
	for i := range 8 {
		id[i], id[8+i] = byte(a>>(8*i)), byte(b>>(8*i))
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	var text [36]byte
	at := 0
	for i, b := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			text[at] = '-'
			at++
		}
		text[at], text[at+1] = digits[b>>4], digits[b&15]
		at += 2
	}
	return append(dst, text[:]...)
}

// Masked is JSON text without its secrets, as records have it.
func Masked(raw []byte) []byte {
	out, _ := mask.Append(nil, raw, 4*len(raw)+maxTold)
	return out
}
