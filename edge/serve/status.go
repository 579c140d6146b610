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
	Dropped            int64           `json:"dropped"`          // notifications of parked calls whose client was away
	Reload             string          `json:"reload,omitempty"` // why the last reload changed nothing
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

// status answers /status: with the status of the one server, or with the list
// of all.
func (e *Edge) status(ctx *fasthttp.RequestCtx) {
	now := e.live.Load()
	var all []status
	for _, name := range now.names() {
		all = append(all, e.statusOf(now.servers[name]))
	}
	var text any = all[0]
	if len(all) > 1 {
		text = map[string]any{"servers": all}
	}
	body, err := json.MarshalIndent(text, "", "  ")
	if err != nil {
		plain(ctx, 500, "internal error\n")
		return
	}
	ctx.Response.Header.SetContentTypeBytes(jsonType)
	ctx.Response.Header.Set("Cache-Control", "no-store")
	ctx.Response.SetBodyRaw(append(body, '\n'))
}

func (e *Edge) statusOf(served *server) status {
	s := status{
		Name:     served.name,
		Phase:    "Ready",
		Sessions: len(e.sessions.of(served.name)),
		Streams:  e.outlets.len(),
		Inflight: e.inflight.Load(),
		Parked:   e.lot.len(),
		Dropped:  e.lot.dropped.Load(),
		Version:  e.version,
	}
	if p := e.badReload.Load(); p != nil {
		s.Reload = *p
	}
	for _, b := range served.backends {
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
	if s.BackendCount < len(served.backends) {
		s.Phase = "Degraded"
		s.Message = fmt.Sprintf("%d of %d backends can be reached", s.BackendCount, len(served.backends))
	}
	return s
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
