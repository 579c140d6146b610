package serve

import (
	"encoding/json"
	"fmt"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge"
)

// status is the status of the server in the words of the VirtualMCPServer's
// own status, with what goes on in the process beside it.
type status struct {
	Name               string          `json:"name"`
	Phase              string          `json:"phase"`
	Message            string          `json:"message,omitempty"`
	BackendCount       int             `json:"backendCount"`
	DiscoveredBackends []backendStatus `json:"discoveredBackends"`
	Sessions           int             `json:"sessions"`
	Streams            int             `json:"streams"`
	Inflight           int64           `json:"inflight"`
	Parked             int             `json:"parked"`
	Dropped            int64           `json:"dropped"` // notifications of parked calls whose client was away
	Version            string          `json:"version"`
}

type backendStatus struct {
	Name     string `json:"name"`
	URL      string `json:"url"`
	Status   string `json:"status"`
	Era      string `json:"era,omitempty"`
	Revision string `json:"revision,omitempty"`
	Message  string `json:"message,omitempty"`
}

// status answers /status.
func (e *Edge) status(ctx *fasthttp.RequestCtx) {
	s := status{
		Name:     e.server.name,
		Phase:    "Ready",
		Sessions: e.sessions.len(),
		Streams:  e.outlets.len(),
		Inflight: e.inflight.Load(),
		Parked:   e.server.lot.len(),
		Dropped:  e.server.lot.dropped.Load(),
		Version:  e.version,
	}
	for _, b := range e.server.backends {
		now := b.Status()
		one := backendStatus{Name: now.Name, URL: now.URL, Era: now.Era, Revision: now.Version, Status: "ready", Message: now.Message}
		switch {
		case now.Ready:
			s.BackendCount++
		case now.Era == "" && now.Message == "":
			one.Status = "unknown"
		default:
			one.Status = "unavailable"
		}
		s.DiscoveredBackends = append(s.DiscoveredBackends, one)
	}
	if s.BackendCount < len(e.server.backends) {
		s.Phase = "Degraded"
		s.Message = fmt.Sprintf("%d of %d backends can be reached", s.BackendCount, len(e.server.backends))
	}
	body, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		plain(ctx, 500, "internal error\n")
		return
	}
	ctx.Response.Header.SetContentTypeBytes(jsonType)
	ctx.Response.Header.Set("Cache-Control", "no-store")
	ctx.Response.SetBodyRaw(append(body, '\n'))
}

// readyz answers 200 while a plan is live.
func (e *Edge) readyz(ctx *fasthttp.RequestCtx) {
	if e.ready.Load() {
		plain(ctx, 200, "ready\n")
		return
	}
	plain(ctx, 503, "draining\n")
}

// roomForStream says whether a client may open one more long-lived stream.
func (e *Edge) roomForStream(ctx *fasthttp.RequestCtx) error {
	if e.outlets.from(ctx.RemoteIP().String()) >= e.settings.MaxStreams {
		return edge.Errorf(edge.Overload, "door", "this client has %d streams open, which is the limit", e.settings.MaxStreams)
	}
	return nil
}
