package weir

import (
	"iter"

	"github.com/weir-edge/weir/sdk/abi"
)

// The inputs of the hooks, each with the operations that the hook may use. A
// function receives the same value in every call.
type (
	// HTTPRequest is a request before authentication.
	HTTPRequest struct {
		HTTP
		HeaderEdits
		Answer
		Refusal
		Attributes
	}

	// Credential is one that nothing else claimed.
	Credential struct {
		HTTP
		Assertion
		Refusal
	}

	// VerifiedToken is a token that was verified.
	VerifiedToken struct {
		HTTP
		Assertion
		Attributes
		Refusal
	}

	// Catalog is what backends offer: tools, prompts or resources.
	Catalog struct{}

	// Call is a call of a tool, before authorization.
	Call struct {
		Request
		ArgumentEdits
		HeaderEdits
		Answer
		Refusal
		Attributes
		LogFields
	}

	// Outgoing is a backend that a credential is chosen for.
	Outgoing struct {
		Request
		HeaderEdits
		Refusal
	}

	// BackendRequest is a request before it leaves for a backend.
	BackendRequest struct {
		Request
		HeaderEdits
	}

	// CallResult is the result, or the error, of a call.
	CallResult struct {
		Request
		ResultEdits
		Answer
		Refusal
		LogFields
	}

	// Message is a message that no other hook is for.
	Message struct {
		Request
		ResultEdits
		Refusal
	}

	// HTTPResponse is a response before its headers are sent.
	HTTPResponse struct {
		HTTP
		HeaderEdits
	}

	// Session is one that begins or ends.
	Session struct {
		Request
		Attributes
		Refusal
	}

	// Event is a copy of the record of a message.
	Event struct{}

	// Notification is what a client or a server tells, which nobody answers.
	Notification struct {
		Request
		ParamsEdits
		Refusal
		LogFields
	}

	// Question is what a server asks a client in the middle of a call, or what
	// the client answers.
	Question struct {
		Request
		ParamsEdits
		Refusal
		LogFields
	}
)

// OnHTTPRequest registers a function for requests before authentication.
func OnHTTPRequest(f func(*HTTPRequest), options ...Option) {
	in := new(HTTPRequest)
	on(abi.OnHTTPRequest, func() { f(in) }, options)
}

// OnAuthenticate registers a function that says who a client is by a
// credential that nothing else claimed. SetPrincipal needs the grant identity.
func OnAuthenticate(f func(*Credential), options ...Option) {
	in := new(Credential)
	on(abi.Authenticate, func() { f(in) }, options)
}

// Challenge asks the client for a credential: text is the value of a
// WWW-Authenticate header.
func (*Credential) Challenge(text string) { add(abi.OpChallenge, &arg{text: text}) }

// OnIdentity registers a function that says who a client is by the claims of a
// verified token.
func OnIdentity(f func(*VerifiedToken), options ...Option) {
	in := new(VerifiedToken)
	on(abi.MapIdentity, func() { f(in) }, options)
}

// Issuer of the token.
func (*VerifiedToken) Issuer() View { return text(abi.CallIssuer) }

// Claims of the token, an object.
func (*VerifiedToken) Claims() Value { return value(abi.CallClaims) }

// Principal is who the client is so far.
func (*VerifiedToken) Principal() Principal { return who() }

// OnTools registers a function that changes how tools are offered. It is asked
// once for what a backend offers, and for each value of what VariesBy names.
func OnTools(f func(*Catalog), options ...Option) {
	in := new(Catalog)
	on(abi.OverrideTools, func() { f(in) }, options)
}

// OnPrompts registers a function that changes how prompts are offered.
func OnPrompts(f func(*Catalog), options ...Option) {
	in := new(Catalog)
	on(abi.OverridePrompts, func() { f(in) }, options)
}

// OnResources registers a function that changes how resources are offered.
func OnResources(f func(*Catalog), options ...Option) {
	in := new(Catalog)
	on(abi.OverrideResources, func() { f(in) }, options)
}

// Backend whose offer it is.
func (*Catalog) Backend() View { return text(abi.CallBackend) }

// Principal is somebody who asks, of those that VariesBy puts together.
func (*Catalog) Principal() Principal { return who() }

// Items goes over what is offered, of that which the function is for: see Tools.
func (*Catalog) Items() iter.Seq[Item] {
	return func(yield func(Item) bool) {
		r := reader{b: call.record}
		for index := uint64(0); r.next(); {
			if r.field != abi.CallItem {
				continue
			}
			item := Item{r.data(), index}
			name := first(item.record, abi.ItemName) // none for a URI that can be anything
			if index++; len(call.tools) > 0 && len(name) > 0 && !anyOf(call.tools, name) {
				continue // another function asked for it
			}
			if !yield(item) {
				return
			}
		}
	}
}

// Rename offers the item under another name.
func (i Item) Rename(name string) {
	add(abi.OpRename, &arg{name: name, item: i.index})
}

// Describe replaces the description of the item.
func (i Item) Describe(text string) {
	add(abi.OpDescribe, &arg{text: text, item: i.index})
}

// Hide does not offer the item. Whoever knows its name is not kept from it:
// deny calls, too, where that matters.
func (i Item) Hide() { add(abi.OpHide, &arg{item: i.index}) }

// Annotate sets an annotation of the item.
func (i Item) Annotate(name string, value JSON) {
	add(abi.OpAnnotate, &arg{name: name, raw: string(value), item: i.index})
}

// Patch sets the member of what the backend says of the item behind a JSON
// pointer, such as /icons. What it is known by, its name or URI, stays.
func (i Item) Patch(pointer string, value JSON) {
	add(abi.OpPatchItem, &arg{pointer: pointer, raw: string(value), item: i.index})
}

// SetSchema replaces the schema of the item's input.
func (i Item) SetSchema(schema JSON) {
	add(abi.OpSetSchema, &arg{raw: string(schema), item: i.index})
}

// PinArg gives an argument one value for good, and takes it out of the schema.
func (i Item) PinArg(pointer string, value JSON) {
	add(abi.OpPinArg, &arg{pointer: pointer, raw: string(value), item: i.index})
}

// HideArg takes an argument out of the schema.
func (i Item) HideArg(pointer string) {
	add(abi.OpHideArg, &arg{pointer: pointer, item: i.index})
}

// OnCall registers a function for calls of tools.
func OnCall(f func(*Call), options ...Option) {
	in := new(Call)
	on(abi.OnCallRequest, func() { f(in) }, options)
}

// Arguments of the call. They do not exist when they are above the limit of
// InlineLimit.
func (*Call) Arguments() Value { return value(abi.CallArguments) }

// Selected returns the argument at pointer i of the option Pointers.
func (*Call) Selected(i int) Value { return selected(i) }

// Claim returns the claim of the client at pointer i of the option Claims.
func (*Call) Claim(i int) Value { return claim(i) }

// Carry leaves bytes for OnResult to find.
func (*Call) Carry(bytes string) { add(abi.OpSetCarry, &arg{raw: bytes}) }

// OnOutgoing registers a function that chooses a credential for a backend.
func OnOutgoing(f func(*Outgoing), options ...Option) {
	in := new(Outgoing)
	on(abi.OutgoingAuth, func() { f(in) }, options)
}

// Claim returns the claim of the client at pointer i of the option Claims.
func (*Outgoing) Claim(i int) Value { return claim(i) }

// UseCredential chooses a credential that was granted, by its name.
func (*Outgoing) UseCredential(name string) {
	add(abi.OpUseCredential, &arg{name: name})
}

// OnBackendRequest registers a function for requests that leave for a backend.
func OnBackendRequest(f func(*BackendRequest), options ...Option) {
	in := new(BackendRequest)
	on(abi.OnUpstreamRequest, func() { f(in) }, options)
}

// OnResult registers a function for results and errors of calls.
func OnResult(f func(*CallResult), options ...Option) {
	in := new(CallResult)
	on(abi.OnCallResponse, func() { f(in) }, options)
}

// Result of the call; does not exist when there is an error.
func (*CallResult) Result() Value { return value(abi.CallResult) }

// Error object of the call; does not exist when there is a result.
func (*CallResult) Error() Value { return value(abi.CallError) }

// Selected returns the part of the result at pointer i of the option Pointers.
func (*CallResult) Selected(i int) Value { return selected(i) }

// Carried is what Carry left in the request.
func (*CallResult) Carried() View { return text(abi.CallCarry) }

// DropContent removes a block of the result's content, by its index.
func (*CallResult) DropContent(index int) { add(abi.OpDropContent, &arg{index: uint64(index)}) }

// OnMessage registers a function for methods that no other hook is for.
func OnMessage(f func(*Message), options ...Option) {
	in := new(Message)
	on(abi.OnMessage, func() { f(in) }, options)
}

// Arguments of the message; do not exist in an answer.
func (*Message) Arguments() Value { return value(abi.CallArguments) }

// Result of the message; exists in an answer only.
func (*Message) Result() Value { return value(abi.CallResult) }

// Error object of the message; exists in an answer only.
func (*Message) Error() Value { return value(abi.CallError) }

// Selected returns the value at pointer i of the option Pointers.
func (*Message) Selected(i int) Value { return selected(i) }

// OnHTTPResponse registers a function for responses before their headers are
// sent.
func OnHTTPResponse(f func(*HTTPResponse), options ...Option) {
	in := new(HTTPResponse)
	on(abi.OnHTTPResponse, func() { f(in) }, options)
}

// Status of the response.
func (*HTTPResponse) Status() int { return int(call.status) }

// OnSessionStart registers a function for sessions that begin.
func OnSessionStart(f func(*Session), options ...Option) {
	in := new(Session)
	on(abi.OnSessionStart, func() { f(in) }, options)
}

// OnSessionEnd registers a function for sessions that end.
func OnSessionEnd(f func(*Session), options ...Option) {
	in := new(Session)
	on(abi.OnSessionEnd, func() { f(in) }, options)
}

// OnEvent registers a function that sees a copy of the record of each message.
func OnEvent(f func(*Event), options ...Option) {
	in := new(Event)
	on(abi.OnEvent, func() { f(in) }, options)
}

// Record of the message, an object.
func (*Event) Record() Value { return value(abi.CallEvent) }

// OnNotification registers a function for what clients and servers tell: progress,
// log messages, changes. Deny drops it.
func OnNotification(f func(*Notification), options ...Option) {
	in := new(Notification)
	on(abi.OnNotification, func() { f(in) }, options)
}

// FromServer says whether a server tells it, and not the client.
func (*Notification) FromServer() bool { return call.from == abi.FromServer }

// Params of the notification.
func (*Notification) Params() Value { return value(abi.CallArguments) }

// Selected returns the value of the params at pointer i of the option Pointers.
func (*Notification) Selected(i int) Value { return selected(i) }

// OnQuestion registers a function for what servers ask clients, and for what these
// answer: elicitation, sampling and roots.
func OnQuestion(f func(*Question), options ...Option) {
	in := new(Question)
	on(abi.OnQuestion, func() { f(in) }, options)
}

// FromServer says whether it is the question, and not the answer of the client.
func (*Question) FromServer() bool { return call.from == abi.FromServer }

// Params of the question. With the answer of a client of the modern era they do
// not come, nor does the method.
func (*Question) Params() Value { return value(abi.CallArguments) }

// Result is what the client answers; exists in an answer only.
func (*Question) Result() Value { return value(abi.CallResult) }

// Error object that the client answers with; exists in an answer only.
func (*Question) Error() Value { return value(abi.CallError) }

// Selected returns the value at pointer i of the option Pointers: of the params of a
// question, of the result of an answer.
func (*Question) Selected(i int) Value { return selected(i) }

// Patch replaces the value of the answer behind a JSON pointer.
func (*Question) Patch(pointer string, value JSON) {
	add(abi.OpPatchResult, &arg{pointer: pointer, raw: string(value)})
}
