//go:build wasip1

package weir

import (
	"unsafe"

	"github.com/weir-edge/weir/sdk/abi"
)

// buffer is where the host writes inputs.
var buffer []byte

// kept is the record returned last: the collector must not take it before the
// host has copied it.
var kept []byte

//go:wasmexport weir_abi
func exportABI() uint32 { return abi.Version }

//go:wasmexport weir_buf
func exportBuffer(n uint32) unsafe.Pointer {
	if n > 32<<20 {
		return nil
	}
	if uint32(len(buffer)) < n {
		buffer = make([]byte, n)
	}
	return unsafe.Pointer(unsafe.SliceData(buffer))
}

//go:wasmexport weir_init
func exportInit(n uint32) uint64 { return give(initialize(buffer[:n])) }

func give(record []byte) uint64 {
	if len(record) == 0 {
		return 0
	}
	kept = record
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(record))))<<32 | uint64(len(record))
}

func ask(hook abi.Hook, n uint32) uint64 { return give(dispatch(hook, buffer[:n])) }

//go:wasmexport weir_on_http_request
func exportOnHTTPRequest(n uint32) uint64 { return ask(abi.OnHTTPRequest, n) }

//go:wasmexport weir_authenticate
func exportAuthenticate(n uint32) uint64 { return ask(abi.Authenticate, n) }

//go:wasmexport weir_map_identity
func exportMapIdentity(n uint32) uint64 { return ask(abi.MapIdentity, n) }

//go:wasmexport weir_override_tools
func exportOverrideTools(n uint32) uint64 { return ask(abi.OverrideTools, n) }

//go:wasmexport weir_override_prompts
func exportOverridePrompts(n uint32) uint64 { return ask(abi.OverridePrompts, n) }

//go:wasmexport weir_override_resources
func exportOverrideResources(n uint32) uint64 { return ask(abi.OverrideResources, n) }

//go:wasmexport weir_on_call_request
func exportOnCallRequest(n uint32) uint64 { return ask(abi.OnCallRequest, n) }

//go:wasmexport weir_outgoing_auth
func exportOutgoingAuth(n uint32) uint64 { return ask(abi.OutgoingAuth, n) }

//go:wasmexport weir_on_upstream_request
func exportOnUpstreamRequest(n uint32) uint64 { return ask(abi.OnUpstreamRequest, n) }

//go:wasmexport weir_on_call_response
func exportOnCallResponse(n uint32) uint64 { return ask(abi.OnCallResponse, n) }

//go:wasmexport weir_on_message
func exportOnMessage(n uint32) uint64 { return ask(abi.OnMessage, n) }

//go:wasmexport weir_on_http_response
func exportOnHTTPResponse(n uint32) uint64 { return ask(abi.OnHTTPResponse, n) }

//go:wasmexport weir_on_session_start
func exportOnSessionStart(n uint32) uint64 { return ask(abi.OnSessionStart, n) }

//go:wasmexport weir_on_session_end
func exportOnSessionEnd(n uint32) uint64 { return ask(abi.OnSessionEnd, n) }

//go:wasmexport weir_on_event
func exportOnEvent(n uint32) uint64 { return ask(abi.OnEvent, n) }
