package optimizer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Bounds of what is asked of an embedding service, and of what it answers.
const (
	maxBatch      = 256     // texts
	maxBatchBytes = 1 << 20 // of texts
	usualBatch    = 32      // where the service does not say
	maxAnswer     = 16 << 20
	maxInfo       = 64 << 10
	maxDimension  = 4096
	maxNumber     = 32 // bytes of one, with what stands around it
)

// Fetch sends a request to an address that the operator named, and reads the answer, of any
// status, up to most bytes. It follows no redirect. Its errors name the host and hold no
// header.
type Fetch func(ctx context.Context, method, url string, header http.Header, body []byte, most int64) (status int, answer http.Header, said []byte, err error)

// ServiceSpec says where vectors come from.
type ServiceSpec struct {
	Provider v1beta1.EmbeddingProvider
	Address  string // base URL, without a slash at its end
	Model    string // of compat
	Headers  map[string]string
	Timeout  time.Duration // of a request
}

// client speaks with an embedding service.
type client struct {
	ServiceSpec
	key   edge.Secret // "" for none
	fetch Fetch
}

// failure is why a request brought nothing.
type failure struct {
	what     string        // without a word of the service's own
	answered bool          // there was an answer
	status   int           // of an answer that is no success; 0 for none
	after    time.Duration // when the service wants to be asked again; 0 where it does not say
	other    bool          // the vectors are not of the dimension of those before
}

func (f *failure) Error() string { return f.what }

// said returns a failure that is an answer.
func said(format string, args ...any) *failure {
	return &failure{what: fmt.Sprintf(format, args...), answered: true}
}

// refuses reports whether the service will answer alike however often it is asked.
func (f *failure) refuses() bool {
	return f.status >= 400 && f.status < 500 && f.status != http.StatusRequestTimeout && f.status != http.StatusTooManyRequests
}

// ofQuestion is how much the failure of a question counts.
func (f *failure) ofQuestion() weight {
	if f.refuses() {
		return heavy
	}
	return plain
}

// ofBatch is how much the failure of a batch of texts counts. A text may be at fault.
func (f *failure) ofBatch(texts int) weight {
	text := f.status == 400 || f.status == 413 || f.status == 422
	switch {
	case f.refuses() && !text:
		return heavy
	case f.answered && f.after == 0 && texts > 1:
		return light
	}
	return plain
}

// send asks the service; in is nil for GET.
func (c *client) send(ctx context.Context, path string, in any, most int64) ([]byte, error) {
	header := http.Header{"Accept": {"application/json"}}
	for name, value := range c.Headers {
		header.Set(name, value)
	}
	if c.Provider == v1beta1.EmbeddingCompat && c.key != "" {
		header.Set("Authorization", "Bearer "+string(c.key))
	}
	method, body := http.MethodGet, []byte(nil)
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return nil, err
		}
		method = http.MethodPost
		header.Set("Content-Type", "application/json")
	}
	to, err := url.Parse(c.Address) // which may have a query
	if err != nil {
		return nil, said("%s %s: the address is no URL", method, path)
	}
	status, answered, body, err := c.fetch(ctx, method, to.JoinPath(path).String(), header, body, most)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, &failure{what: method + " " + path + ": no answer in time"}
	case err != nil:
		return nil, &failure{what: err.Error()}
	case status >= 300 && status < 400:
		return nil, said("%s %s: answered %d: redirects are not followed", method, path, status)
	case status != http.StatusOK:
		f := said("%s %s: answered %d", method, path, status)
		f.status, f.after = status, retryAfter(answered)
		return nil, f
	case mcp.Valid(body) != nil:
		return nil, said("%s %s: the answer is not JSON", method, path)
	}
	return body, nil
}

func retryAfter(h http.Header) time.Duration {
	v := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(v); err == nil && seconds > 0 {
		return time.Duration(min(seconds, 3600)) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// asksModel reports whether the service is asked which model it has: where it is not, the
// operator says so.
func (c *client) asksModel() bool { return c.Provider != v1beta1.EmbeddingCompat }

// info says which model the service has, and how many texts it takes at once.
func (c *client) info(ctx context.Context) (model string, most int, err error) {
	if !c.asksModel() {
		return c.Model, maxBatch, nil
	}
	answer, err := c.send(ctx, "/info", nil, maxInfo)
	if err != nil {
		return "", 0, err
	}
	model, most = mcp.String(mcp.Lookup(answer, "model_id")), usualBatch
	if n, err := strconv.Atoi(string(mcp.Lookup(answer, "max_client_batch_size"))); err == nil && n > 0 {
		most = min(n, maxBatch)
	}
	if model == "" {
		return "", 0, said("GET /info: the answer names no model_id")
	}
	return model, most, nil
}

// embed returns the vectors of texts, in their order: of dimension, or of any one where that
// is 0.
func (c *client) embed(ctx context.Context, texts []string, dimension int) ([]*vector, error) {
	rows, err := c.rows(ctx, texts)
	if err != nil {
		return nil, err
	}
	if len(rows) != len(texts) {
		return nil, said("embeddings: %s for %s", edge.Count(len(rows), "vector"), edge.Count(len(texts), "text"))
	}
	out := make([]*vector, len(rows))
	for i, row := range rows {
		v, why := vectorOf(row)
		if why != "" {
			return nil, said("embeddings: a vector %s", why)
		}
		if dimension != 0 && len(v.of) != dimension {
			f := said("embeddings: a vector has %d dimensions, and one before had %d", len(v.of), dimension)
			f.other = true
			return nil, f
		}
		out[i], dimension = v, len(v.of)
	}
	return out, nil
}

// rows returns JSON text of the vectors of texts, in their order.
func (c *client) rows(ctx context.Context, texts []string) ([][]byte, error) {
	// What so many vectors may take, so that the answer to one question is never large.
	most := min(maxAnswer, maxInfo+int64(len(texts))*maxDimension*maxNumber)
	path, in := "/embed", map[string]any{"inputs": texts, "truncate": true}
	if c.Provider == v1beta1.EmbeddingCompat {
		path, in = "/embeddings", map[string]any{"model": c.Model, "input": texts, "encoding_format": "float"}
	}
	answer, err := c.send(ctx, path, in, most)
	if err != nil {
		return nil, err
	}
	// Taken apart, a value takes many times the bytes of its text: there are no more than the
	// vectors need, and some for what stands around them.
	if n := bytes.Count(answer, []byte{','}); n > maxInfo+len(texts)*maxDimension {
		return nil, said("POST %s: the answer has %d values, more than %s can have", path, n+1, edge.Count(len(texts), "vector"))
	}
	if c.Provider != v1beta1.EmbeddingCompat {
		return mcp.Elements(answer), nil
	}
	data := mcp.Elements(mcp.Lookup(answer, "data"))
	rows := make([][]byte, len(data))
	for _, one := range data {
		i, err := strconv.Atoi(string(mcp.Lookup(one, "index")))
		if err != nil || i < 0 || i >= len(rows) || rows[i] != nil {
			return nil, said("POST /embeddings: the answer has a wrong index")
		}
		rows[i] = mcp.Lookup(one, "embedding")
	}
	return rows, nil
}

// vectorOf reads a vector and makes it of length 1. It says what is wrong with it; "" for
// nothing.
func vectorOf(row []byte) (*vector, string) {
	if n := bytes.Count(row, []byte{','}); n >= maxDimension {
		return nil, fmt.Sprintf("has %d dimensions: 1 to %d", n+1, maxDimension)
	}
	numbers := mcp.Elements(row)
	if len(numbers) == 0 {
		return nil, fmt.Sprintf("has no dimensions: 1 to %d", maxDimension)
	}
	parsed, sum := make([]float64, len(numbers)), 0.0
	for i, n := range numbers {
		f, err := strconv.ParseFloat(string(n), 64)
		if err != nil {
			return nil, "has what is no number"
		}
		parsed[i] = f
		sum += f * f
	}
	length := math.Sqrt(sum)
	if length == 0 || math.IsInf(length, 0) {
		return nil, "has no length that counts"
	}
	v := &vector{of: make([]float32, len(parsed))}
	for i, f := range parsed {
		v.of[i] = float32(f / length)
	}
	return v, ""
}
