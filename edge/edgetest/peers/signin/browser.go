// Package signin has users of a real browser, Debian's chromium, sign in at an edge whose
// clients are programs that others wrote. Its tests are the story; this is the browser, which
// the conformance harness uses as well.
package signin

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/peers"
)

// endLimit is how long a browser may take to end when it is asked to.
const endLimit = 20 * time.Second

// Browser is a chromium that a script drives by puppeteer-core. It is safe for concurrent use.
type Browser struct {
	in   io.WriteCloser
	wait func() error
	kill context.CancelFunc

	mu      sync.Mutex
	last    int
	waiting map[int]chan answer
	ended   error // why there are no answers any longer; nil while there are
}

type answer struct {
	ID    int             `json:"id"`
	Value json.RawMessage `json:"value"`
	Error string          `json:"error"`
}

// Lacks says what a machine needs before a browser can run on it; "" for nothing.
func Lacks(k peers.Kit) string {
	if lacks := k.Lacks(); lacks != "" {
		return lacks
	}
	if _, err := os.Stat(filepath.Join(k.Dir(), "node_modules", "puppeteer-core")); err != nil {
		return "the npm package puppeteer-core is not installed: make peers"
	}
	if _, err := exec.LookPath("chromium"); err != nil {
		return "there is no chromium: apt-get install chromium"
	}
	return ""
}

// Open starts a browser. dir is a folder for what it writes, and the caller's to remove;
// trusted is a certificate that it takes for valid; nil for none. The caller closes it.
func Open(k peers.Kit, dir string, trusted *tls.Certificate) (*Browser, error) {
	program, err := exec.LookPath("chromium")
	if err != nil {
		return nil, fmt.Errorf("open a browser: %w", err)
	}
	set := map[string]string{"chromium": program, "home": dir}
	if trusted != nil {
		leaf, err := x509.ParseCertificate(trusted.Certificate[0])
		if err != nil {
			return nil, fmt.Errorf("open a browser: %w", err)
		}
		sum := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
		set["ca"] = base64.StdEncoding.EncodeToString(sum[:])
	}
	text, err := json.Marshal(set)
	if err != nil {
		return nil, err
	}
	ctx, kill := context.WithCancel(context.Background())
	cmd := peers.Command(ctx, k.Node, filepath.Join(k.Dir(), "signin", "browser.mjs"), string(text))
	b := &Browser{kill: kill, waiting: map[int]chan answer{0: make(chan answer, 1)}}
	begun := b.waiting[0]
	if b.in, err = cmd.StdinPipe(); err != nil {
		kill()
		return nil, err
	}
	out, in := io.Pipe()
	if b.wait, err = peers.Launch(cmd, in, io.Discard); err != nil {
		kill()
		return nil, fmt.Errorf("open a browser: %w", err)
	}
	go b.read(out) // ends when the process does
	ended := make(chan error, 1)
	wait := b.wait
	go func() { // ends when the process does
		err := wait()
		_ = in.Close()
		ended <- err
	}()
	b.wait = sync.OnceValue(func() error { return <-ended })
	if first := <-begun; first.Error != "" {
		return nil, errors.Join(fmt.Errorf("open a browser: %s", first.Error), b.Close())
	}
	return b, nil
}

// read gives answers to those who wait for them.
func (b *Browser) read(out io.Reader) {
	r := bufio.NewReader(out)
	for {
		line, err := r.ReadBytes('\n')
		var a answer
		if err == nil {
			err = json.Unmarshal(line, &a)
		}
		b.mu.Lock()
		if err != nil {
			b.ended = errors.New("the browser has ended")
			for id, to := range b.waiting {
				to <- answer{ID: id, Error: b.ended.Error()}
			}
			b.waiting = nil
			b.mu.Unlock()
			return
		}
		to := b.waiting[a.ID]
		delete(b.waiting, a.ID)
		b.mu.Unlock()
		if to != nil {
			to <- a
		}
	}
}

// Command is one thing that a browser is to do: see commands in browser.mjs.
type Command struct {
	ID       int    `json:"id"`
	Do       string `json:"do"`
	User     int    `json:"user,omitempty"`
	Tab      int    `json:"tab,omitempty"`
	URL      string `json:"url,omitempty"`
	Selector string `json:"selector,omitempty"`
	Text     string `json:"text,omitempty"`
	Code     string `json:"code,omitempty"`
	File     string `json:"file,omitempty"`
	Look
}

// Look is how a user sees pages.
type Look struct {
	Scripts *bool `json:"scripts,omitempty"` // nil for true
	Dark    bool  `json:"dark,omitempty"`
	Width   int   `json:"width,omitempty"` // pixels of CSS; 0 for what the browser has
	Height  int   `json:"height,omitempty"`
}

// Do does it, and reads what it comes to into value; nil for nothing.
func (b *Browser) Do(ctx context.Context, c Command, value any) error {
	to := make(chan answer, 1)
	b.mu.Lock()
	if b.ended != nil {
		defer b.mu.Unlock()
		return b.ended
	}
	b.last++
	c.ID = b.last
	b.waiting[c.ID] = to
	text, err := json.Marshal(c)
	if err == nil {
		_, err = b.in.Write(append(text, '\n'))
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case a := <-to:
		if a.Error != "" {
			return fmt.Errorf("browser: %s: %s", c.Do, a.Error)
		}
		if value == nil {
			return nil
		}
		return json.Unmarshal(a.Value, value)
	case <-ctx.Done():
		return fmt.Errorf("browser: %s: %w", c.Do, ctx.Err())
	}
}

// Close ends the browser.
func (b *Browser) Close() error {
	_ = b.in.Close() // asks it to end
	late := time.AfterFunc(endLimit, b.kill)
	defer late.Stop()
	err := b.wait()
	b.kill()
	return err
}
