package container

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// LabelBuilt is on each image that is built, with what it is built of.
const LabelBuilt = "weir.dev/build"

// Layer is a layer of an image, as a tar archive that can be written more than once.
type Layer struct {
	DiffID string // sha256:HEX of the archive
	Size   int64
	Write  func(io.Writer) error
}

// Finish says what an image has that is made of another one: what it does not name is that of
// the other.
type Finish struct {
	Tag        string
	Comment    string // of its history
	User       string
	Entrypoint []string
	Env        []string // NAME=VALUE, beside those of the other image
	Labels     map[string]string
	Volumes    []string
}

// Base is an image that others are made of, as an engine has it.
type Base struct {
	ID     string
	Path   string // the PATH of its environment
	labels map[string]string
	env    []string
}

// Base returns an image of the engine's. The error is an *Error of the kind NoImage where it
// has none.
func (e *Engine) Base(ctx context.Context, name string) (*Base, error) {
	is, err := e.Image(ctx, name)
	if err != nil {
		return nil, err
	}
	r, err := e.client.ImageInspect(ctx, is.ID)
	if err != nil {
		return nil, short(err)
	}
	b := &Base{ID: is.ID, Path: usualPath, env: is.Env}
	if r.Config != nil {
		b.labels = r.Config.Labels
	}
	for _, line := range is.Env {
		if path, ok := bytes.CutPrefix([]byte(line), []byte("PATH=")); ok {
			b.Path = string(path)
		}
	}
	return b, nil
}

// Label is a label of the image; "" for none.
func (b *Base) Label(name string) string { return b.labels[name] }

// bounds of what an engine writes of an image that is not a layer.
const (
	maxSavedJSON  = 4 << 20
	maxSavedJSONs = 32 << 20
)

// saved is an image as engines save it, an element of manifest.json.
type saved struct {
	Config   string
	RepoTags []string `json:",omitempty"`
	Layers   []string
}

// Append makes an image of one that the engine has: with a layer more, and what f says. base is
// whose environment it has, and id what it is made of, which is base or made of it. It holds
// no time, so that the same layer gives the same image.
func (e *Engine) Append(ctx context.Context, base *Base, id string, l Layer, f Finish) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	from, err := e.client.ImageSave(ctx, []string{id})
	if err != nil {
		return short(err)
	}
	defer from.Close()
	out, in := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := rewrite(from, in, base, l, f)
		_ = in.CloseWithError(err) // nil ends it in order
		written <- err
	}()
	said, err := e.client.ImageLoad(ctx, out, client.ImageLoadWithQuiet(true))
	if err == nil {
		err = loaded(said)
		_ = said.Close()
	}
	_ = out.Close() // an engine that has ended reading ends the writing
	cancel()
	if failed := <-written; failed != nil && !errors.Is(failed, io.ErrClosedPipe) {
		return failed
	}
	if err != nil {
		return short(err)
	}
	return nil
}

// loaded reads what an engine says of an image that it loads.
func loaded(said io.Reader) error {
	lines := json.NewDecoder(io.LimitReader(said, 16<<20))
	for {
		var one struct{ Error string }
		if err := lines.Decode(&one); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if one.Error != "" {
			return errors.New(one.Error)
		}
	}
}

// rewrite copies a saved image with a layer more. What is not needed any more is left in it,
// and engines pass over it; only what names the image is replaced.
func rewrite(from io.Reader, to io.Writer, base *Base, l Layer, f Finish) error {
	r, w := tar.NewReader(from), tar.NewWriter(to)
	texts, size := map[string][]byte{}, 0
	for {
		h, err := r.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			return fmt.Errorf("the image as the engine saves it: %w", err)
		}
		switch h.Name {
		case "repositories", "index.json", "oci-layout":
			continue // they name the other image
		}
		var body io.Reader = r
		if h.Typeflag == tar.TypeReg && h.Size <= maxSavedJSON && size < maxSavedJSONs {
			text, err := io.ReadAll(io.LimitReader(r, maxSavedJSON))
			if err != nil {
				return err
			}
			if bytes.HasPrefix(text, []byte("{")) || bytes.HasPrefix(text, []byte("[")) {
				texts[h.Name] = text
				size += len(text)
			}
			if h.Name == "manifest.json" {
				continue
			}
			body = bytes.NewReader(text)
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(w, body); err != nil {
			return err
		}
	}
	var all []saved
	if err := json.Unmarshal(texts["manifest.json"], &all); err != nil || len(all) != 1 || texts[all[0].Config] == nil {
		return errors.New("the engine saves the image in a form that is not known")
	}
	config, err := finished(texts[all[0].Config], base, l, f)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(config)
	name := hex.EncodeToString(sum[:])
	all[0].Config, all[0].RepoTags, all[0].Layers = name+".json", []string{f.Tag}, append(all[0].Layers, name+"/layer.tar")
	manifest, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name + "/layer.tar", Mode: 0o644, Size: l.Size, ModTime: time.Unix(0, 0)}); err != nil {
		return err
	}
	if err := l.Write(w); err != nil {
		return err
	}
	for _, one := range []struct {
		name string
		text []byte
	}{{all[0].Config, config}, {"manifest.json", manifest}} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: one.name, Mode: 0o644, Size: int64(len(one.text)), ModTime: time.Unix(0, 0)}); err != nil {
			return err
		}
		if _, err := w.Write(one.text); err != nil {
			return err
		}
	}
	return w.Close()
}

// finished is the configuration of the new image. Of the other one's it has the architecture,
// the layers, their history and the environment.
func finished(text []byte, base *Base, l Layer, f Finish) ([]byte, error) {
	var is struct {
		Architecture string          `json:"architecture"`
		OS           string          `json:"os"`
		Variant      string          `json:"variant,omitempty"`
		RootFS       json.RawMessage `json:"rootfs"`
		History      []struct {
			EmptyLayer bool `json:"empty_layer"`
		} `json:"history"`
	}
	var rootfs struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	}
	var raw struct {
		History []json.RawMessage `json:"history"`
	}
	if json.Unmarshal(text, &is) != nil || json.Unmarshal(is.RootFS, &rootfs) != nil || json.Unmarshal(text, &raw) != nil || rootfs.Type != "layers" {
		return nil, errors.New("the engine saves the image with a configuration that is not known")
	}
	layers := 0
	for _, h := range is.History {
		if !h.EmptyLayer {
			layers++
		}
	}
	var history []json.RawMessage
	if layers == len(rootfs.DiffIDs) { // else it is not of these layers
		one, err := json.Marshal(map[string]any{"created": time.Unix(0, 0).UTC(), "created_by": f.Comment})
		if err != nil {
			return nil, err
		}
		history = append(raw.History, one)
	}
	rootfs.DiffIDs = append(rootfs.DiffIDs, l.DiffID)
	env := slices.DeleteFunc(slices.Clone(base.env), func(has string) bool {
		name, _, _ := strings.Cut(has, "=")
		return slices.ContainsFunc(f.Env, func(own string) bool { return strings.HasPrefix(own, name+"=") })
	})
	volumes := map[string]struct{}{}
	for _, path := range f.Volumes {
		volumes[path] = struct{}{}
	}
	return json.Marshal(map[string]any{
		"architecture": is.Architecture, "os": is.OS, "variant": is.Variant, "created": time.Unix(0, 0).UTC(), "rootfs": rootfs, "history": history,
		"config": map[string]any{
			"User": f.User, "Env": append(env, f.Env...), "Entrypoint": f.Entrypoint, "Cmd": nil, "WorkingDir": "/", "Labels": f.Labels, "Volumes": volumes,
		},
	})
}

// Discard removes an image without a name that was made on the way. What others are made of
// stays in them.
func (e *Engine) Discard(ctx context.Context, id string) error {
	_, err := e.client.ImageRemove(ctx, id, client.ImageRemoveOptions{})
	if err == nil || errdefs.IsNotFound(err) || errdefs.IsConflict(err) {
		return nil
	}
	return short(err)
}

// LabelSource is on each image that is built, with a digest of what it is built of: of that of
// a directory its path, so that it is the same when its files change.
const LabelSource = "weir.dev/source"

// Forget removes the images that were built of a source, by their own tags, and returns these.
// One that a container uses stays, and so does each other tag that somebody gave one.
func (e *Engine) Forget(ctx context.Context, source string) (tags []string, err error) {
	all, err := e.client.ImageList(ctx, client.ImageListOptions{Filters: client.Filters{}.Add("label", LabelSource+"="+source)})
	if err != nil {
		return nil, fmt.Errorf("list images: %w", short(err))
	}
	for _, one := range all.Items {
		if one.Labels[LabelSource] != source || one.Labels[LabelBuilt] == "" {
			continue
		}
		for _, tag := range one.RepoTags {
			if !strings.HasPrefix(tag, ownTags) && !strings.HasPrefix(tag, "localhost/"+ownTags) && !strings.HasPrefix(tag, "docker.io/"+ownTags) {
				continue
			}
			if _, err := e.client.ImageRemove(ctx, tag, client.ImageRemoveOptions{}); errdefs.IsConflict(err) {
				continue
			} else if err != nil && !errdefs.IsNotFound(err) {
				return tags, fmt.Errorf("remove image %s: %w", tag, short(err))
			}
			tags = append(tags, tag)
		}
		if len(one.RepoTags) == 0 || one.RepoTags[0] == "<none>:<none>" { // a newer build has taken its tag
			if _, err := e.client.ImageRemove(ctx, one.ID, client.ImageRemoveOptions{}); err != nil && !errdefs.IsConflict(err) && !errdefs.IsNotFound(err) {
				return tags, fmt.Errorf("remove image %s: %w", one.ID, short(err))
			}
		}
	}
	return tags, nil
}

// ownTags is what the tags of images that are built begin with.
const ownTags = "weir/"

// Tag gives an image another name.
func (e *Engine) Tag(ctx context.Context, image, tag string) error {
	if err := checkName(tag); err != nil {
		return err
	}
	if _, err := e.client.ImageTag(ctx, client.ImageTagOptions{Source: image, Target: tag}); err != nil {
		return fmt.Errorf("tag %s: %w", tag, short(err))
	}
	return nil
}

// Name gives an image that was pulled by its digest the name that it was asked for by, as a pull
// by that name does: so it is found while its registry cannot be asked.
func (e *Engine) Name(ctx context.Context, image, name string) error {
	if strings.Contains(name, "@") || !strings.Contains(image, "@") {
		return nil
	}
	return e.Tag(ctx, image, name)
}
