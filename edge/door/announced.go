package door

import (
	"strconv"

	"github.com/valyala/fasthttp"
)

// InChunks is the size of a body that does not say it.
const InChunks = -1

// Awaited is a body that a head has announced.
type Awaited struct {
	Size    int  // of what has not been read; InChunks, or 0 for none
	Expects bool // the client sends it when it is asked to (RFC 9110 §10.1.1)
}

// announcement is the method of a request whose body the HTTP server is not to
// read: only a POST has one. It is no token, so that no client can send it.
const announcement = '['

// Announce has the HTTP server take a request for one without a body, and the
// door learn what its head said.
func Announce(h *fasthttp.RequestHeader, a Awaited) {
	var text [24]byte
	method := append(text[:0], announcement)
	if a.Expects {
		method = append(method, '+')
	}
	h.SetMethodBytes(strconv.AppendInt(method, int64(a.Size), 10))
	h.SetContentLength(0)
	if a.Expects {
		h.Del("Expect")
	}
}

// Announced reads what Announce wrote, and gives the header back its words.
func Announced(h *fasthttp.RequestHeader) (a Awaited) {
	text := h.Method()
	if len(text) == 0 || text[0] != announcement {
		return a
	}
	text = text[1:]
	if text[0] == '+' {
		a.Expects, text = true, text[1:]
	}
	negative := text[0] == '-'
	if negative {
		text = text[1:]
	}
	for _, c := range text {
		a.Size = 10*a.Size + int(c-'0')
	}
	if negative {
		a.Size = -a.Size
	}
	h.SetMethod("POST")
	h.SetContentLength(a.Size) // InChunks is how the server itself says it
	return a
}
