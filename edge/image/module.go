package image

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Modules of WebAssembly at registries are images of one layer, which is the module (CNCF TAG
// Runtime, "Wasm OCI Artifact layout").

// moduleConfig is the type of their configuration, and moduleLayers are those of the layer.
const moduleConfig = "application/vnd.wasm.config.v0+json"

var moduleLayers = [...]string{"application/wasm", "application/vnd.wasm.content.layer.v1+wasm"}

// moduleWithin bounds how long a module may take to come, besides what an image may take to be
// asked about.
const moduleWithin = 2 * within

// Module is a module of WebAssembly that was fetched.
type Module struct {
	Image  string // by digest
	SHA256 string // of Bytes, in hexadecimal
	Bytes  []byte
}

// Module fetches a module of at most so many bytes. A name by digest, as a Choice has it, has
// nothing else come; of another name it is what its registry has now. Errors are an *Error, or of ctx.
func (i *Images) Module(ctx context.Context, text string, most int64) (*Module, error) {
	ref, err := parse(text)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, moduleWithin, fmt.Errorf("not done within %s", moduleWithin))
	defer cancel()
	r := i.registry(ref.repo)
	r.guard.most = max(r.guard.most, most)
	defer r.close()
	m, err := r.module(ctx, ref, most)
	var known *Error
	if err == nil || errors.As(err, &known) {
		return m, err
	}
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return nil, context.Cause(ctx)
	}
	var not *answered
	if errors.As(err, &not) && !not.busy() {
		return nil, &Error{NoPull, fmt.Sprintf("module %s cannot be had: %s", text, not), not.next()}
	}
	return nil, &Error{NoPull, fmt.Sprintf("module %s cannot be had: %s", text, brief(err)), "look whether its registry is reached from here, and start it again"}
}

func (r *registry) module(ctx context.Context, ref *reference, most int64) (*Module, error) {
	no := func(what string, args ...any) (*Module, error) {
		return nil, &Error{Refused, "module " + ref.text + ": " + fmt.Sprintf(what, args...), "push it with a tool that makes modules of WebAssembly of it, such as oras or wkg"}
	}
	// 1. What it is: by digest, with which its content is compared.
	digest := ref.digest
	if digest == "" {
		var err error
		if digest, err = r.resolve(ctx, ref); err != nil {
			return nil, err
		}
	}
	if !strings.HasPrefix(digest, "sha256:") {
		return nil, &Error{Refused, "module " + ref.text + ": its digest is not of sha256", "name one that is"}
	}
	opts, err := r.opts(ctx)
	if err != nil {
		return nil, err
	}
	got, err := r.manifest(r.repo.Digest(digest), opts)
	if err != nil {
		return nil, r.answer(ctx, err)
	}
	if got.MediaType.IsIndex() {
		return no("it is a list of images, and one of them has to be named")
	}
	manifest, err := v1.ParseManifest(strings.NewReader(string(got.Manifest)))
	if err != nil {
		return no("its manifest cannot be read")
	}
	// 2. Whether that is a module.
	if is := string(manifest.Config.MediaType); is != moduleConfig {
		return no("its configuration is of the type %s, and that of a module is %s", quoted(is), moduleConfig)
	}
	if n := len(manifest.Layers); n != 1 {
		return no("it has %d layers, and a module is one", n)
	}
	layer := manifest.Layers[0]
	is := string(layer.MediaType)
	if is != moduleLayers[0] && is != moduleLayers[1] {
		return no("its layer is of the type %s, and that of a module is %s", quoted(is), moduleLayers[0])
	}
	if layer.Digest.Algorithm != "sha256" {
		return no("the digest of its layer is not of sha256")
	}
	if layer.Size < 0 || layer.Size > most {
		return no("it has %d bytes, and the limit of a module is %d", layer.Size, most)
	}
	// 3. The module, which is compared with its digest when it is read to its end.
	l, err := remote.Layer(r.repo.Digest(layer.Digest.String()), opts...)
	if err != nil {
		return nil, r.answer(ctx, err)
	}
	body, err := l.Compressed()
	if err != nil {
		return nil, r.answer(ctx, err)
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, most+1))
	switch {
	case err != nil:
		return nil, r.answer(ctx, err)
	case int64(len(b)) != layer.Size:
		return nil, errors.New("its registry sends more or less than its manifest says")
	}
	if _, err := hex.DecodeString(layer.Digest.Hex); err != nil {
		return no("the digest of its layer is not of sha256")
	}
	return &Module{Image: ref.base + "@" + digest, SHA256: layer.Digest.Hex, Bytes: b}, nil
}

// quoted is a type that a stranger named.
func quoted(text string) string { return fmt.Sprintf("%q", text[:min(len(text), 100)]) }
