package edge

import (
	"errors"
	"time"

	"github.com/weir-edge/weir/edge/mcp"
)

// onWire is how a failure looks on the wire: an HTTP status and the code of a
// JSON-RPC error.
type onWire struct{ status, code int }

// failures is the one table from kinds of error to answers, for clients of
// the legacy and of the modern era.
func failures(kind Kind) (legacy, modern onWire) {
	same := func(a onWire) (onWire, onWire) { return a, a }
	switch kind {
	case Malformed:
		return same(onWire{400, mcp.CodeParse})
	case Invalid:
		return same(onWire{400, mcp.CodeInvalidRequest})
	case Params, NotFound:
		return onWire{200, mcp.CodeInvalidParams}, onWire{400, mcp.CodeInvalidParams}
	case NoMethod:
		return onWire{200, mcp.CodeMethodNotFound}, onWire{404, mcp.CodeMethodNotFound}
	case NoSession:
		return same(onWire{404, mcp.CodeSessionNotFound})
	case NoServer:
		return same(onWire{404, mcp.CodeInvalidRequest})
	case Mismatch:
		return same(onWire{400, mcp.CodeHeaderMismatch})
	case Capability:
		return same(onWire{400, mcp.CodeMissingCapability})
	case Version:
		return onWire{400, mcp.CodeInvalidRequest}, onWire{400, mcp.CodeVersion}
	case Forbidden:
		return same(onWire{403, mcp.CodeInvalidRequest})
	case TooLarge:
		return same(onWire{413, mcp.CodeInvalidRequest})
	case MediaType:
		return same(onWire{415, mcp.CodeInvalidRequest})
	case NotAcceptable:
		return same(onWire{406, mcp.CodeInvalidRequest})
	case MethodNotAllowed:
		return same(onWire{405, mcp.CodeInvalidRequest})
	case Overload:
		return same(onWire{503, 503})
	case Unavailable:
		return onWire{200, 502}, onWire{502, 502}
	case Gone:
		return onWire{200, mcp.CodeInternal}, onWire{500, mcp.CodeInternal}
	case Unauthenticated:
		return same(onWire{401, 401})
	case Denied:
		return same(onWire{403, 403})
	case Limited:
		return same(onWire{429, 429})
	case Timeout:
		return onWire{200, 504}, onWire{504, 504}
	}
	return same(onWire{500, mcp.CodeInternal})
}

// Failure is an error as it goes to a client.
type Failure struct {
	Status int
	Body   []byte        // JSON text of an answer
	After  time.Duration // for Retry-After; 0 for none
	Close  bool          // the connection ends with it

	Challenge string // WWW-Authenticate; "" for none
}

// OnWire is the HTTP status and the JSON-RPC code of an error of a kind, as clients of
// an era get them.
func OnWire(kind Kind, era mcp.Era) (status, code int) {
	a, modern := failures(kind)
	if era == mcp.Modern {
		a = modern
	}
	return a.status, a.code
}

// Fail makes the answer to an error. id is nil when the message's id could not
// be read. Only the error's own text is told, never what it was doing.
func Fail(era mcp.Era, id []byte, err error) Failure {
	kind := KindOf(err)
	a, modern := failures(kind)
	if era == mcp.Modern {
		a = modern
	}
	text := "internal error"
	f := Failure{Status: a.status}
	var e *Error
	if errors.As(err, &e) {
		f.After, f.Challenge = e.After, e.Challenge
		if kind != Internal {
			text = e.Err.Error()
		}
		f.Body = mcp.AppendError(nil, id, a.code, text, e.Data)
	} else {
		f.Body = mcp.AppendError(nil, id, a.code, text, nil)
	}
	if kind == Overload && f.After == 0 {
		f.After = time.Second
	}
	f.Close = kind == TooLarge
	return f
}
