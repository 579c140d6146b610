package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// manyMore is how much more memory an edge may use for the users of the row: the
// credentials that are kept (32 MiB at most), what it remembers of the tokens of
// clients and of the lists of a thousand principals, and room for the collector.
const manyMore = 96 << 20

// runManyUsers is T14 with ten thousand users in a minute: each has a credential
// made once, nobody gets another's, and memory stays within bounds.
func runManyUsers(ctx context.Context, s *storm) {
	users := s.size(s.count, 10_000, 200, "users")
	length := s.span(s.length, time.Minute, 3*time.Second, "load")
	const each, lanes, size = 3, 48, 1 << 10
	h := s.newShop(time.Hour)
	h.service.Pad = size / 2
	e := h.open(ctx, way(h.serviceAddr()), "", h.addrs())
	defer e.Stop()
	var n kit.Numbers
	for i := range 20 {
		h.prime(ctx, e, &n, "early-"+strconv.Itoa(i))
	}
	all := make([]string, users)
	for i := range all {
		all[i] = h.token("user-" + strconv.Itoa(i))
	}
	base := settled(ctx, e)
	top := s.peak(e)
	asked := h.service.Asked.Load()

	// Every user calls three times, a third of the load between two of them; one
	// connection in eight is of a client of the legacy era, who has a session of
	// its own for each call.
	seen, total := &seenCodes{}, each*users
	began := time.Now()
	var work sync.WaitGroup
	for w := range lanes {
		work.Go(func() {
			era := kit.Modern
			if w%8 == 7 {
				era = kit.Legacy
			}
			c, err := kit.Dial(ctx, e.Addr, era, kit.DialOptions{From: w, Buffer: 32 << 10})
			for k := w; k < total && err == nil; k += lanes {
				at := began.Add(time.Duration(float64(length) * 0.95 * float64(k) / float64(total)))
				if !kit.Sleep(ctx, time.Until(at)) {
					break
				}
				sent := time.Now()
				c = renewed(&c, w)
				c.Tool = toolOf(k / lanes % 2)
				code, err := shopCall(c, &n, "user-"+strconv.Itoa(k%users), all[k%users])
				seen.take(code, err, sent)
			}
			c.Close()
		})
	}
	work.Wait()
	kit.Check(ctx.Err())
	took, highest, made := time.Since(began), top(), h.service.Asked.Load()-asked
	if took > length*3/2 {
		s.scale("a load of %s that took %s", length, took.Round(time.Second))
	}
	failed := total - seen.codes[http.StatusOK]
	s.bar(failed == 0, "0", "%d of %d calls of %d users failed, in %.0f s", failed, total, users, took.Seconds())
	s.bar(made == int64(users), strconv.Itoa(users), "%d exchanges", made)
	s.bar(highest <= base+manyMore, fmt.Sprintf("base + %d MiB", manyMore>>20), "resident %.1f MiB before, %.1f at the most", kit.MiB(base), kit.MiB(highest))
	kept, bytes := h.kept(ctx, e)
	s.bar(kept >= users && bytes <= 32<<20, "32 MiB", "%d credentials kept, in %.1f MiB", kept, kit.MiB(int64(bytes)))
	s.tell("the longest call took %.0f ms, tokens of %d bytes", kit.Millis(seen.longest), h.gate.longest.Load())
	seen.others(s, "calls", http.StatusOK)
	h.clean()
}

// kept is how many credentials an edge keeps, and how many bytes they take.
func (h *shop) kept(ctx context.Context, e *kit.Edge) (n, bytes int) {
	_, text := e.Get(ctx, "/metrics", kit.Patience)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		number, err := strconv.ParseFloat(value, 64)
		switch name, _, _ = strings.Cut(name, "{"); {
		case err != nil:
		case name == "weir_credentials_kept":
			n = int(number)
		case name == "weir_credentials_kept_bytes":
			bytes = int(number)
		}
	}
	return n, bytes
}
