package codemode

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/scripting"
)

// maxFrames is how many places of a failed script are told.
const maxFrames = 20

// answer makes the answer of a run.
func (t *Tool) answer(x *edge.Exchange, o *scripting.Outcome) (*edge.Response, error) {
	logs := o.Logs
	if o.Dropped > 0 {
		logs = append(logs[:len(logs):len(logs)], "… "+thousands(o.Dropped)+" bytes more")
	}
	var content, structured []byte
	if o.Error == nil {
		content = appendText(nil, string(o.Value))
		structured = append([]byte(`{"result":`), o.Value...)
	} else {
		content = appendText(nil, failure(o.Error))
		structured = quoted([]byte(`{"error":`), struct {
			Message string `json:"message"`
			Line    int    `json:"line,omitempty"`
			Column  int    `json:"column,omitempty"`
			Tool    string `json:"tool,omitempty"`
		}{o.Error.Message, o.Error.Line, o.Error.Column, o.Error.Tool})
	}
	if len(logs) > 0 {
		content = appendText(append(content, ','), "Script logs:\n"+strings.Join(logs, "\n"))
		structured = quoted(append(structured, `,"logs":`...), logs)
	}
	structured = append(structured, '}')
	return reply(x, content, []mcp.Member{
		mcp.Raw("structuredContent", structured),
		mcp.With("_meta", fmt.Sprintf(`{"weir.dev/script":{"steps":%d,"calls":%d,"cpuMs":%s,"memoryBytes":%d}}`, o.Steps, o.Calls, milliseconds(o.CPU), o.Memory)),
	}, o.Error != nil)
}

// failure is the text of a failed script: what is wrong where, and how it came there.
func failure(e *scripting.Error) string {
	var b strings.Builder
	b.WriteString("script execution failed: ")
	if e.Line > 0 {
		fmt.Fprintf(&b, "%s:%d:%d: ", file, e.Line, e.Column)
	}
	b.WriteString(e.Message)
	for _, f := range e.Frames[:min(len(e.Frames), maxFrames)] {
		b.WriteString("\n  " + f)
	}
	return b.String()
}

// reply answers an exchange with the result of a tool: content, JSON texts of blocks, and
// further members.
func reply(x *edge.Exchange, content []byte, more []mcp.Member, isError bool) (*edge.Response, error) {
	out := []byte{'{'}
	if x.Era == mcp.Modern {
		out = append(out, `"resultType":"complete",`...)
	}
	out = append(append(append(out, `"content":[`...), content...), ']')
	for _, m := range more {
		out = append(append(append(append(out, `,"`...), m.Name...), `":`...), m.Value...)
	}
	if isError {
		out = append(out, `,"isError":true`...)
	}
	return edge.Reply(x.Request, append(out, '}'))
}

// appendText appends a block of text.
func appendText(dst []byte, text string) []byte {
	return append(mcp.AppendString(append(dst, `{"type":"text","text":`...), text), '}')
}

// milliseconds writes a duration in milliseconds.
func milliseconds(d time.Duration) string {
	return strconv.FormatFloat(float64(d.Microseconds())/1000, 'f', -1, 64)
}

// thousands writes a number in groups of three digits.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
