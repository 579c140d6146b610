package webhook_test

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// What a webhook announces takes no memory: it is what has come that does.
func TestZ01WebhooksThatAnnounce(t *testing.T) {
	for name, text := range map[string]string{
		"a length":   "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1048576\r\n\r\n{",
		"a chunk":    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n100000\r\n{",
		"compressed": "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1048576\r\n\r\n\x1f\x8b",
	} {
		for _, of := range []struct {
			way string
			tls *v1beta1.WebhookTLS
		}{{"guarded", &v1beta1.WebhookTLS{CASecretRef: &v1beta1.SecretRef{Name: "tls", Key: "ca"}}}, {"direct", &v1beta1.WebhookTLS{InsecureSkipVerify: true}}} {
			t.Run(name+", "+of.way, func(t *testing.T) {
				answered, over := make(chan struct{}, 100), make(chan struct{})
				s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					c, _, err := w.(http.Hijacker).Hijack()
					if err != nil {
						return
					}
					defer c.Close()
					_, _ = io.WriteString(c, text)
					answered <- struct{}{}
					<-over
				}))
				s.Config.ErrorLog = log.New(io.Discard, "", 0)
				s.StartTLS()
				defer s.Close()
				authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
				const many, each = 20, 160 << 10 // of a request with its connection, TLS, at both ends
				stages := make([]*stage, many)
				for i := range stages {
					stages[i] = newStage(t, tlsSpec(s.URL, of.tls), map[string]edge.Secret{"tls/ca": edge.Secret(authority)})
				}
				before := heap()
				var all sync.WaitGroup
				for _, one := range stages {
					x := exchange(t, call)
					all.Go(func() { _, _ = one.handler.Handle(t.Context(), x) })
				}
				for range many {
					edgetest.Receive(t, answered, "an answer")
				}
				if grown := heap() - before; grown > many*each {
					t.Errorf("%d announcements took %d bytes", many, grown)
				}
				close(over)
				all.Wait()
				for _, one := range stages {
					if len(one.passed) > 0 {
						t.Error("a message passed")
					}
				}
			})
		}
	}
}

// heap is how many bytes of memory are in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
