package embedder

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Harm is a way in which an embedding service fails.
type Harm string

// None is a service that does as it should.
const None Harm = ""

// The harms. Those from Count on concern vectors alone: such a service still says which model
// it has.
const (
	Refuses   Harm = "refuses"   // nothing listens
	Hangs     Harm = "hangs"     // it takes requests and says nothing
	Drips     Harm = "drips"     // one byte a second
	Huge      Harm = "huge"      // 100 MiB
	Fails     Harm = "500"       // with words of its own
	TooLarge  Harm = "413"       //
	Busy      Harm = "429"       // with Retry-After: 1
	Forbidden Harm = "401"       //
	HTML      Harm = "html"      //
	Redirects Harm = "redirects" // to another path of its own
	Cuts      Harm = "cuts"      // the connection, in the middle of an answer
	Bomb      Harm = "bomb"      // 64 MiB of spaces, compressed, which nobody has asked for
	Deep      Harm = "deep"      // 64 KiB of opening brackets
	Many      Harm = "many"      // millions of numbers where a vector is due
	Count     Harm = "count"     // one vector less than asked for
	Dimension Harm = "dimension" // of every vector, another than before
	NaN       Harm = "nan"
	Infinite  Harm = "infinite" // a number beyond what a float64 holds
	Zero      Harm = "zero"
	Words     Harm = "words" // strings where numbers are due
)

// Harms are all of them.
func Harms() []Harm {
	return []Harm{
		Refuses, Hangs, Drips, Huge, Fails, TooLarge, Busy, Forbidden, HTML, Redirects, Cuts, Bomb, Deep, Many,
		Count, Dimension, NaN, Infinite, Zero, Words,
	}
}

// Cause is what an edge that meets the harm names as the cause.
func (h Harm) Cause() string {
	return map[Harm]string{
		Refuses: "connection refused", Hangs: "no answer in time", Drips: "no answer in time", Huge: "larger than",
		Fails: "answered 500", TooLarge: "answered 413", Busy: "answered 429", Forbidden: "answered 401",
		HTML: "is not JSON", Redirects: "redirects are not followed", Cuts: "EOF", Bomb: "compressed, which was not asked for", Deep: "is not JSON",
		Many: "larger than", Count: "0 vectors for 1 text", Dimension: "dimensions, and one before had", NaN: "is not JSON",
		Infinite: "no number", Zero: "no length", Words: "no number",
	}[h]
}

// Do has the service fail in a way from now on, or with None do as it should again.
func (s *Service) Do(h Harm) error {
	if h == Bomb {
		bomb() // it takes long to make, and is to be there when it is asked for
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.harm = h
	s.release()
	if h == Refuses && s.server != nil {
		err := s.server.Close()
		s.server = nil
		return err
	}
	if h != Refuses && s.server == nil {
		return s.listen()
	}
	return nil
}

// does answers a request as the harm is, until end is closed. It reports whether it has.
func (h Harm) does(w http.ResponseWriter, r *http.Request, info bool, texts []string, size int, end <-chan struct{}) bool {
	one := ""
	switch h {
	case Hangs:
		wait(r, end, time.Hour)
	case Drips:
		for i := 0; wait(r, end, time.Second); i++ {
			_, _ = w.Write([]byte{"[1"[min(i, 1)]})
			_ = http.NewResponseController(w).Flush()
		}
	case Huge:
		for range 50 {
			if _, err := io.WriteString(w, wide()); err != nil {
				break
			}
		}
	case Fails:
		http.Error(w, "the words of the service", http.StatusInternalServerError)
	case TooLarge:
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	case Busy:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	case Forbidden:
		w.WriteHeader(http.StatusUnauthorized)
	case HTML:
		_, _ = io.WriteString(w, "<html><body>It works!</body></html>")
	case Redirects:
		http.Redirect(w, r, "http://"+r.Host+"/inward", http.StatusTemporaryRedirect)
	case Cuts:
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, "[[0.1")
	case Bomb:
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb())
	case Deep:
		_, _ = io.WriteString(w, strings.Repeat("[", 64<<10))
	case Many:
		_, _ = io.WriteString(w, wide())
	case Count:
		texts = texts[:max(0, len(texts)-1)]
	case Dimension:
		one = "[" + strings.Repeat("0.5,", size) + "0.5]"
	case NaN:
		one = "[NaN]"
	case Infinite:
		one = "[1e999" + strings.Repeat(",1", size-1) + "]"
	case Zero:
		one = "[0" + strings.Repeat(",0", size-1) + "]"
	case Words:
		one = `["a"` + strings.Repeat(",1", size-1) + "]"
	default:
		panic(fmt.Sprintf("there is no harm %q", h))
	}
	if h != Count && one == "" {
		return true
	}
	if info {
		return false
	}
	rows := make([][]byte, len(texts))
	for i, text := range texts {
		if rows[i] = []byte(one); one == "" {
			rows[i] = row(Vector(text, size))
		}
	}
	_, _ = w.Write(answer(rows, r.URL.Path == "/embeddings"))
	return true
}

// wait waits so long, and reports whether it has: the request or the harm may have ended.
func wait(r *http.Request, end <-chan struct{}, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-r.Context().Done():
	case <-end:
	}
	return false
}

// wide is 2 MiB of a vector.
var wide = sync.OnceValue(func() string { return "[[" + strings.Repeat("1,", 1<<20) + "1]]" })

// bomb is 64 MiB of spaces, compressed: it is made when it is needed first.
var bomb = sync.OnceValue(func() []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := io.Copy(z, io.LimitReader(spaces{}, 64<<20)); err != nil {
		panic(err)
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
})

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}
