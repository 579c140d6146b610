//go:build caller

package main

import (
	"strconv"
	"strings"
	"unsafe"

	"github.com/weir-edge/weir/sdk/abi"
)

//go:wasmimport weir_v1 http_call
func httpCall(p unsafe.Pointer, n uint32, out unsafe.Pointer, room uint32) int64

//go:wasmimport weir_v1 call_tool
func callTool(p unsafe.Pointer, n uint32, out unsafe.Pointer, room uint32) int64

//go:wasmimport weir_v1 answer
func lastAnswer(out unsafe.Pointer, room uint32) int64

//go:wasmimport weir_v1 emit
func emit(name unsafe.Pointer, n uint32, data unsafe.Pointer, dataN uint32) int32

func at(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// init adds what asks others. What came of it is $got.
//
//	fetch|METHOD URL|BODY|NAME: VALUE|…   "STATUS BODY", or "failed CODE"
//	tool|NAME|ARGUMENTS                   "result JSON" or "error JSON", or "failed CODE"
//	emit|NAME|DATA                        "0", or "failed CODE"
//	again|N|OP|…                          the same so often; $got is of the last
func init() { outside = ask }

func ask(in *input, f []string, arg func(int) string) bool {
	switch f[2] {
	case "again":
		n, _ := strconv.Atoi(f[3])
		for range n {
			ask(in, append([]string{f[0], f[1]}, f[4:]...), func(i int) string { return arg(i + 2) })
		}
	case "fetch":
		method, url, _ := strings.Cut(arg(0), " ")
		q := abi.AppendString(abi.AppendString(nil, abi.FetchMethod, method), abi.FetchURL, url)
		for i := 2; i+3 < len(f); i++ {
			name, value, _ := strings.Cut(arg(i), ": ")
			if name == "timeout" {
				ms, _ := strconv.Atoi(value)
				q = abi.AppendUint(q, abi.FetchTimeout, uint64(ms))
				continue
			}
			value = strings.ReplaceAll(value, "CRLF", "\r\n")
			q = abi.AppendBytes(q, abi.FetchHeader, abi.AppendString(abi.AppendString(nil, abi.HeaderName, name), abi.HeaderValue, value))
		}
		q = abi.AppendString(q, abi.FetchBody, arg(1))
		got, failed := sent(httpCall, q)
		if in.got = failed; failed == "" {
			status, body := "", ""
			r := abi.Reader{B: got}
			for r.Next() {
				switch r.Num {
				case abi.FetchedStatus:
					status = strconv.FormatUint(r.Uint, 10)
				case abi.FetchedBody:
					body = string(r.Data)
				}
			}
			in.got = status + " " + body
		}
	case "tool":
		got, failed := sent(callTool, abi.AppendString(abi.AppendString(nil, abi.ToolName, arg(0)), abi.ToolArguments, arg(1)))
		if in.got = failed; failed == "" {
			r := abi.Reader{B: got}
			for r.Next() {
				in.got = map[int]string{abi.ToolResult: "result ", abi.ToolError: "error "}[r.Num] + string(r.Data)
			}
		}
	case "emit":
		name, data := []byte(arg(0)), []byte(arg(1))
		if in.got = strconv.Itoa(int(emit(at(name), uint32(len(name)), at(data), uint32(len(data))))); in.got != "0" {
			in.got = "failed " + in.got
		}
	default:
		return false
	}
	return true
}

// sent asks with too little room at first, as a guest may.
func sent(f func(unsafe.Pointer, uint32, unsafe.Pointer, uint32) int64, q []byte) (got []byte, failed string) {
	got = make([]byte, 8)
	n := f(at(q), uint32(len(q)), at(got), uint32(len(got)))
	if n > int64(len(got)) {
		got = make([]byte, n)
		n = lastAnswer(at(got), uint32(n))
	}
	if n < 0 {
		return nil, "failed " + strconv.FormatInt(n, 10)
	}
	return got[:n], ""
}
