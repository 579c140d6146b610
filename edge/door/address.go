package door

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge"
)

// LookAt says whether a door could be at an address, which a flag names. handOver
// reports that one could take over from the edge that is there.
func LookAt(ctx context.Context, flag, address string, handOver bool) edge.Finding {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err == nil {
		err = ln.Close()
	}
	choose := "choose another address with --" + flag
	var dns *net.DNSError
	switch {
	case err == nil:
		return edge.Fine("free")
	case InUse(err) && edgeAt(ctx, address) && handOver:
		return edge.Finding{Level: edge.LevelNote, Cause: "an edge listens there, which a new one takes over from at --hand-over"}
	case InUse(err) && edgeAt(ctx, address):
		return edge.Warning(edge.ClassAddress, "`weir status` shows it; stop it before another is started, or "+choose, "an edge listens there already")
	case InUse(err):
		return edge.Problem(edge.ClassAddress, "stop it, or choose another port with --"+flag+" (0 lets the system choose)", "another process listens there")
	case errors.Is(err, syscall.EACCES):
		return edge.Problem(edge.ClassAddress, "choose a port of 1024 or above with --"+flag+", or give the process the right", "this user may not listen there")
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return edge.Problem(edge.ClassAddress, choose, "this machine does not have the address")
	case errors.As(err, &dns):
		return edge.Problem(edge.ClassAddress, choose, "no address for host %q", dns.Name)
	}
	return edge.Problem(edge.ClassAddress, choose, "%v", err)
}

// edgeAt reports whether an edge serves at an address, by what it says of its
// health.
func edgeAt(ctx context.Context, address string) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/health", nil)
	if err != nil {
		return false
	}
	transport := &http.Transport{DisableKeepAlives: true, ResponseHeaderTimeout: 2 * time.Second}
	answer, err := (&http.Client{Transport: transport, Timeout: 2 * time.Second}).Do(r)
	if err != nil {
		return false
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, 16))
	return errors.Join(err, answer.Body.Close()) == nil && answer.StatusCode == http.StatusOK && string(body) == "ok\n"
}

// InUse reports whether an address is taken. Windows has a number of its own
// (WSAEADDRINUSE).
func InUse(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.Errno(10048))
}
