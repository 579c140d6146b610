package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// apiVersion is the version of what webhooks are told.
const apiVersion = "v0.1.0"

// errNever is the answer of a webhook that refuses whatever its failurePolicy
// says.
var errNever = errors.New("it answered with status 422")

// verdict is what a webhook says.
type verdict struct {
	allowed   bool
	patchType string
	patch     []byte // JSON text; nil for none
}

// caller asks one webhook. It is safe for concurrent use.
type caller struct {
	*hook
	secrets edge.Secrets
	reach   edge.Reach
	down    atomic.Bool // the last request had no sound answer

	mu   sync.Mutex
	made atomic.Pointer[line]
}

// line is a client and the secrets that it was made with.
type line struct {
	material [3]edge.Secret // certificates to trust, certificate, key
	client   client
}

type client interface {
	Do(context.Context, oauth.Request) (*oauth.Response, error)
	Close()
}

func newCaller(h *hook, secrets edge.Secrets, reach edge.Reach) (*caller, error) {
	c := &caller{hook: h, secrets: secrets, reach: reach}
	if _, err := c.key(context.Background()); err != nil {
		return nil, err
	}
	_, err := c.line(context.Background())
	return c, err
}

func (c *caller) close() { c.made.Load().client.Close() }

func (c *caller) secret(ctx context.Context, ref *v1beta1.SecretRef) (edge.Secret, error) {
	if ref == nil {
		return "", nil
	}
	if c.secrets == nil {
		return "", fmt.Errorf("secret %s/%s: there are no secrets here", ref.Name, ref.Key)
	}
	return c.secrets.Secret(ctx, ref.Name, ref.Key)
}

// readFile reads a file of PEM text.
func readFile(path string) (edge.Secret, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxBody+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", path, err)
	case len(text) == 0:
		return "", fmt.Errorf("%s is empty", path)
	case len(text) > maxBody:
		return "", fmt.Errorf("%s is larger than %d bytes", path, maxBody)
	}
	return edge.Secret(text), nil
}

// key is the secret that signs requests, as it is now; "" for none.
func (c *caller) key(ctx context.Context) (edge.Secret, error) {
	key, err := c.secret(ctx, c.hmac)
	if err == nil && c.hmac != nil && key == "" {
		err = fmt.Errorf("secret %s/%s is empty", c.hmac.Name, c.hmac.Key)
	}
	return key, err
}

// line is the client for the secrets as they are now. One is made again only
// when they have changed.
func (c *caller) line(ctx context.Context) (client, error) {
	var m [3]edge.Secret
	for i, ref := range []*v1beta1.SecretRef{c.tls.CASecretRef, c.tls.ClientCertSecretRef, c.tls.ClientKeySecretRef} {
		var err error
		if path := c.files[i]; path != "" {
			m[i], err = readFile(path)
		} else {
			m[i], err = c.secret(ctx, ref)
		}
		if err != nil {
			return nil, err
		}
	}
	if l := c.made.Load(); l != nil && l.material == m {
		return l.client, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.made.Load()
	if before != nil && before.material == m {
		return before.client, nil
	}
	made, err := dial(c.hook, m, c.reach)
	if err != nil {
		return nil, err
	}
	c.made.Store(&line{m, made})
	if before != nil {
		before.client.Close()
	}
	return made, nil
}

// ask sends body, and returns what the webhook says to it. Errors hold nothing
// of what it says, and no secret.
func (c *caller) ask(ctx context.Context, body []byte) (verdict, error) {
	header := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}}
	key, err := c.key(ctx)
	if err != nil {
		return verdict{}, err
	}
	if key != "" {
		at := strconv.FormatInt(time.Now().Unix(), 10)
		header.Set("X-Weir-Timestamp", at)
		header.Set("X-Weir-Signature", "sha256="+sign(key, at, body))
	}
	client, err := c.line(ctx)
	if err != nil {
		return verdict{}, err
	}
	answer, err := client.Do(ctx, oauth.Request{
		Method: http.MethodPost, URL: c.url, Trust: oauth.Named, Header: header, Body: body, MaxBody: maxBody,
	})
	switch {
	case err != nil:
		return verdict{}, err
	case answer.Status == http.StatusUnprocessableEntity:
		return verdict{}, errNever
	case answer.Status != http.StatusOK:
		return verdict{}, fmt.Errorf("it answered with status %d", answer.Status)
	}
	return read(answer.Body)
}

// sign is the HMAC-SHA256 of the timestamp, a dot and the body, in hexadecimal.
func sign(key edge.Secret, at string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(at))
	mac.Write([]byte{'.'})
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// read reads a webhook's answer. One that does not say that the message is
// allowed refuses it.
func read(body []byte) (verdict, error) {
	if err := mcp.Valid(body); err != nil {
		return verdict{}, fmt.Errorf("its answer is not JSON: %w", err)
	}
	if body = bytes.TrimLeft(body, " \t\r\n"); body[0] != '{' {
		return verdict{}, errors.New("its answer is not an object")
	}
	v := verdict{patchType: mcp.String(mcp.Lookup(body, "patch_type"))}
	switch string(mcp.Lookup(body, "allowed")) {
	case "true":
		v.allowed = true
	case "false", "":
	default:
		return verdict{}, errors.New("allowed, in its answer, is not a boolean")
	}
	if patch := mcp.Lookup(body, "patch"); v.patchType != "" && patch != nil && string(patch) != "null" {
		v.patch = patch
	}
	return v, nil
}

// body is what a webhook is told of an exchange.
func (c *caller) body(namespace string, x *edge.Exchange, principal []byte) []byte {
	raw := x.Request.Raw
	b := make([]byte, 0, len(raw)+len(principal)+512)
	b = append(b, `{"version":"`+apiVersion+`","uid":"`...)
	b = append(append(b, uid()...), `","timestamp":"`...)
	b = time.Now().UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(append(b, `","principal":`...), principal...)
	b = append(append(b, `,"mcp_request":`...), raw...)
	b = mcp.AppendString(append(b, `,"context":{"server_name":`...), x.Server)
	if x.Target != nil && x.Target.Backend != "" {
		b = mcp.AppendString(append(b, `,"backend_server":`...), x.Target.Backend)
	}
	if namespace != "" {
		b = mcp.AppendString(append(b, `,"namespace":`...), namespace)
	}
	b = mcp.AppendString(append(b, `,"source_ip":`...), x.Head.Remote)
	return append(b, `,"transport":"streamable-http"}}`...)
}

// uid is a random name for one request (RFC 9562 §5.4).
func uid() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	text := hex.EncodeToString(b[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

// principal is what webhooks are told of who sends a message: JSON text, null
// for nobody. It never holds a credential.
func principal(id *edge.Identity) ([]byte, error) {
	if id == nil {
		return []byte("null"), nil
	}
	return json.Marshal(struct {
		Subject string         `json:"sub,omitempty"`
		Name    string         `json:"name,omitempty"`
		Email   string         `json:"email,omitempty"`
		Groups  []string       `json:"groups,omitempty"`
		Claims  map[string]any `json:"claims,omitempty"`
	}{id.Subject, id.Name, id.Email, groups(id.Claims), id.Claims})
}

// groups are those of the first claim that is there and is a list of names, or
// one name.
func groups(claims map[string]any) []string {
	for _, claim := range []string{"groups", "roles", "cognito:groups"} {
		switch v := claims[claim].(type) {
		case string:
			return []string{v}
		case []any:
			var names []string
			for _, one := range v {
				if name, ok := one.(string); ok {
					names = append(names, name)
				}
			}
			return names
		}
	}
	return nil
}
