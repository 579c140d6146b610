package serve

import (
	"errors"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// answer is how a failure looks on the wire: an HTTP status and the code of a
// JSON-RPC error.
type answer struct{ status, code int }

// failures is the one table from kinds of error to answers, for clients of
// the legacy and of the modern era.
func failures(kind edge.Kind) (legacy, modern answer) {
	same := func(a answer) (answer, answer) { return a, a }
	switch kind {
	case edge.Malformed:
		return same(answer{400, mcp.CodeParse})
	case edge.Invalid:
		return same(answer{400, mcp.CodeInvalidRequest})
	case edge.Params, edge.NotFound:
		return answer{200, mcp.CodeInvalidParams}, answer{400, mcp.CodeInvalidParams}
	case edge.NoMethod:
		return answer{200, mcp.CodeMethodNotFound}, answer{404, mcp.CodeMethodNotFound}
	case edge.NoSession:
		return same(answer{404, mcp.CodeSessionNotFound})
	case edge.Mismatch:
		return same(answer{400, mcp.CodeHeaderMismatch})
	case edge.Capability:
		return same(answer{400, mcp.CodeMissingCapability})
	case edge.Version:
		return answer{400, mcp.CodeInvalidRequest}, answer{400, mcp.CodeVersion}
	case edge.Forbidden:
		return same(answer{403, mcp.CodeInvalidRequest})
	case edge.TooLarge:
		return same(answer{413, mcp.CodeInvalidRequest})
	case edge.MediaType:
		return same(answer{415, mcp.CodeInvalidRequest})
	case edge.NotAcceptable:
		return same(answer{406, mcp.CodeInvalidRequest})
	case edge.MethodNotAllowed:
		return same(answer{405, mcp.CodeInvalidRequest})
	case edge.Overload:
		return same(answer{503, 503})
	case edge.Unavailable:
		return answer{200, 502}, answer{502, 502}
	case edge.Gone:
		return answer{200, mcp.CodeInternal}, answer{500, mcp.CodeInternal}
	case edge.Unauthenticated:
		return same(answer{401, 401})
	case edge.Denied:
		return same(answer{403, 403})
	case edge.Limited:
		return same(answer{429, 429})
	case edge.Timeout:
		return answer{200, 504}, answer{504, 504}
	}
	return same(answer{500, mcp.CodeInternal})
}

// failure is an error as it goes to a client.
type failure struct {
	status int
	body   []byte
	after  time.Duration // for Retry-After; 0 for none
	close  bool          // the connection ends with it

	challenge string // WWW-Authenticate; "" for none
}

// fail makes the answer to an error. id is nil when the message's id could not
// be read. Only the error's own text is told, never what it was doing.
func fail(era mcp.Era, id []byte, err error) failure {
	kind := edge.KindOf(err)
	a, modern := failures(kind)
	if era == mcp.Modern {
		a = modern
	}
	text := "internal error"
	f := failure{status: a.status}
	var e *edge.Error
	if errors.As(err, &e) {
		f.after, f.challenge = e.After, e.Challenge
		if kind != edge.Internal {
			text = e.Err.Error()
		}
		f.body = mcp.AppendError(nil, id, a.code, text, e.Data)
	} else {
		f.body = mcp.AppendError(nil, id, a.code, text, nil)
	}
	if kind == edge.Overload && f.after == 0 {
		f.after = time.Second
	}
	f.close = kind == edge.TooLarge
	return f
}

// seconds is a duration as Retry-After gives it, rounded up.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
