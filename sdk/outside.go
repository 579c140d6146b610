package weir

import "github.com/weir-edge/weir/sdk/abi"

// Outbound is an HTTP request to another party.
type Outbound = abi.HTTPRequest

// Inbound is the answer to one.
type Inbound = abi.HTTPAnswer

// Fetch sends a request to a host that the operator granted, and waits for the
// answer. An answer of any status is no error; redirects are not followed. It
// needs the grant http, and a function that is registered with Blocking.
func Fetch(q Outbound) (Inbound, error) {
	answer, err := answered(hostFetch, q.Append(nil))
	return abi.ReadHTTPAnswer(answer), err
}

// CallTool calls a tool, by the name that clients see, for the client whose message
// the function is asked about, and waits for the answer: a result, or the object of
// an error. It needs the grant tools, and a function that is registered with Blocking.
func CallTool(name string, arguments JSON) (result, failed Value, err error) {
	record := abi.AppendString(nil, abi.ToolName, name)
	if arguments != "" {
		record = abi.AppendString(record, abi.ToolArguments, string(arguments))
	}
	answer, err := answered(hostTool, record)
	return Value{first(answer, abi.ToolResult)}, Value{first(answer, abi.ToolError)}, err
}

// answered asks others, and fetches an answer that there was no room for.
func answered(ask func(record, out []byte) int64, record []byte) ([]byte, error) {
	out := make([]byte, 1<<10)
	n := ask(record, out)
	if n > int64(len(out)) {
		out = make([]byte, n)
		n = hostAnswer(out)
	}
	if n < 0 {
		return nil, Failure(n)
	}
	return out[:n], nil
}

// Emit tells of an event, in the audit log of the server. The name has at most 64 of
// a-z, 0-9 and _, and the data at most 4 KiB. It needs the grant events.
func Emit(name string, data JSON) error { return failure(int64(hostEmit(name, string(data)))) }
