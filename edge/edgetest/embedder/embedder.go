// Package embedder is an embedding service for tests and tools. It speaks the interfaces of
// text-embeddings-inference and of OpenAI over HTTP, and does the harm that it is told to. A
// vector is the sum of one for each word of the text, so that texts with words in common lie
// near each other and every run gives the same.
package embedder

import (
	"encoding/json"
	"hash/fnv"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Service is an embedding service on a loopback port. It is safe for concurrent use.
type Service struct {
	URL string // its base

	addr string

	mu     sync.Mutex
	server *http.Server // nil while nothing listens
	model  string
	size   int // dimensions
	harm   Harm
	within time.Duration // that a sound answer takes
	counts Counts
	texts  []string // that were asked for, the last maxTexts of them
	heads  []http.Header
	end    chan struct{} // closed with the harm: ends answers that are held up
}

// maxTexts is how many texts and headers are kept.
const maxTexts = 20_000

// Counts are what has reached a service.
type Counts struct {
	Infos    int // GET /info
	Requests int // for vectors
	Texts    int // in those
	Strayed  int // at any other path: what a redirect leads to
	Largest  int // texts of the largest request
}

// Start starts a service with a model of so many dimensions. Close ends it.
func Start(model string, size int) (*Service, error) {
	s := &Service{addr: "127.0.0.1:0", model: model, size: size, end: make(chan struct{})}
	if err := s.listen(); err != nil {
		return nil, err
	}
	s.URL = "http://" + s.addr
	return s, nil
}

// listen has the service listen at its address.
func (s *Service) listen() error {
	ln, err := net.Listen("tcp", s.addr)
	if err != nil {
		return err
	}
	s.addr = ln.Addr().String()
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go func(on *http.Server) { _ = on.Serve(ln) }(s.server)
	return nil
}

// Close ends the service.
func (s *Service) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release()
	if s.server != nil {
		_ = s.server.Close()
		s.server = nil
	}
}

// release ends answers that are held up. The lock is held.
func (s *Service) release() {
	close(s.end)
	s.end = make(chan struct{})
}

// Load puts another model in place of the one before.
func (s *Service) Load(model string, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.model, s.size = model, size
}

// Take has every sound answer take so long.
func (s *Service) Take(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.within = d
}

// Counts returns what has reached the service until now.
func (s *Service) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Texts returns the texts that were asked for, the oldest first.
func (s *Service) Texts() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.texts)
}

// Headers returns those of the requests, the oldest first.
func (s *Service) Headers() []http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.heads)
}

// asked is a request for vectors, in either interface.
type asked struct {
	Inputs []string `json:"inputs"`
	Input  []string `json:"input"`
}

// ServeHTTP is http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q asked
	info := r.URL.Path == "/info"
	if !info && json.NewDecoder(r.Body).Decode(&q) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	texts := append(q.Inputs, q.Input...)
	s.mu.Lock()
	switch {
	case info:
		s.counts.Infos++
	case r.URL.Path == "/embed" || r.URL.Path == "/embeddings":
		s.counts.Requests++
		s.counts.Texts += len(texts)
		s.counts.Largest = max(s.counts.Largest, len(texts))
		s.texts = append(s.texts, texts...)
		s.texts = s.texts[max(0, len(s.texts)-maxTexts):]
	default:
		s.counts.Strayed++
	}
	s.heads = append(s.heads, r.Header.Clone())
	s.heads = s.heads[max(0, len(s.heads)-maxTexts):]
	model, size, harm, within, end := s.model, s.size, s.harm, s.within, s.end
	s.mu.Unlock()
	if harm != None && harm.does(w, r, info, texts, size, end) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if info {
		_ = json.NewEncoder(w).Encode(map[string]any{"model_id": model, "max_client_batch_size": 256})
		return
	}
	if within > 0 {
		select {
		case <-time.After(within):
		case <-r.Context().Done():
			return
		}
	}
	rows := make([][]byte, len(texts))
	for i, text := range texts {
		rows[i] = row(Vector(text, size))
	}
	_, _ = w.Write(answer(rows, r.URL.Path == "/embeddings"))
}

// answer is the JSON text of an answer with these vectors.
func answer(rows [][]byte, compat bool) []byte {
	open, end := "[", "]"
	if compat {
		open, end = `{"object":"list","data":[`, "]}"
	}
	out := []byte(open)
	for i, one := range rows {
		if i > 0 {
			out = append(out, ',')
		}
		if compat { // the last first, as the interface allows
			i = len(rows) - 1 - i
			out = append(strconv.AppendInt(append(out, `{"object":"embedding","index":`...), int64(i), 10), `,"embedding":`...)
			out = append(append(out, rows[i]...), '}')
			continue
		}
		out = append(out, one...)
	}
	return append(out, end...)
}

// row is the JSON text of a vector.
func row(v []float32) []byte {
	out := []byte{'['}
	for i, f := range v {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendFloat(out, float64(f), 'g', 6, 32)
	}
	return append(out, ']')
}

// Vector returns the vector of a text, of length 1.
func Vector(text string, size int) []float32 {
	sum := make([]float64, size)
	add := func(word string) {
		h := fnv.New64a()
		h.Write([]byte(word))
		x := h.Sum64() | 1
		for i := range sum {
			x ^= x << 13 // xorshift
			x ^= x >> 7
			x ^= x << 17
			sum[i] += float64(int64(x)) / math.MaxInt64
		}
	}
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) })
	for _, word := range words {
		add(word)
	}
	if len(words) == 0 {
		add("")
	}
	length := 0.0
	for _, f := range sum {
		length += f * f
	}
	length = math.Sqrt(length)
	out := make([]float32, size)
	for i, f := range sum {
		out[i] = float32(f / length)
	}
	return out
}
