package audit

import (
	"context"
	"io"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// nowhere is a file that takes everything.
type nowhere struct{ pipe }

func (nowhere) Write(p []byte) (int, error) { return io.Discard.Write(p) }
func (nowhere) Close() error                { return nil }

// BenchmarkFilter is what audit costs an exchange, apart from the writing.
func BenchmarkFilter(b *testing.B) {
	for name, change := range map[string]func(*v1beta1.Audit){
		"plain": func(*v1beta1.Audit) {},
		"data":  func(c *v1beta1.Audit) { c.IncludeRequestData, c.IncludeResponseData = true, true },
	} {
		b.Run(name, func(b *testing.B) {
			l, x, h := benchLog(b, change)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := h.Handle(context.Background(), x); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(l.Counters().Lost), "lost")
		})
	}
}

func benchLog(t testing.TB, change func(*v1beta1.Audit)) (*Log, *edge.Exchange, edge.Handler) {
	p := parse(t, config("x", change))
	p.open = func(string) (file, error) { return nowhere{}, nil }
	l, _ := start(t, p)
	x := call(t, "echo", `{"text":"hello","n":12}`)
	x.Session = &edge.Session{Info: []byte(`{"name":"inspector","version":"2.1"}`)}
	r := &edge.Response{Status: 200}
	if err := r.Decode([]byte(good)); err != nil {
		t.Fatal(err)
	}
	return l, x, l.Filter(edge.HandlerFunc(func(context.Context, *edge.Exchange) (*edge.Response, error) { return r, nil }))
}
