// Package image says which image a name stands for, and who signed it. A tag is looked up at
// its registry, what it stands for is verified, and from then on the digest is meant: what was
// verified is what runs, also when the tag moves in between.
//
// Whose signatures count is said by the user, in the file image-policy.yaml (policy.go), or by
// the entry of a registry that the image is of. Signatures are bundles of Sigstore that refer
// to the image, or what cosign keeps under a tag of its own (fetch.go); they are verified
// without a network, by roots of trust that are a file or built in (verify.go, roots.go).
//
// It is the only package that knows go-containerregistry and sigstore-go. README.md says it
// for users.
package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// within is how long all may take that is asked of a registry for one image.
const within = time.Minute

// The files of the user's, in the directory of the configuration.
const (
	PolicyFile = "image-policy.yaml"
	RootsFile  = "trusted_root.json"
)

// Images verifies images. It is safe for concurrent use.
type Images struct {
	PolicyFile string // the user's rules; a file that is not there has none
	RootsFile  string // of trust; where it is not there those that are built in count
	CAs        []byte // PEM certificates of registries, besides those of the system; nil for none

	keychain authn.Keychain // of tests; nil for the user's own
}

// Want is an image that is to be run.
type Want struct {
	Name string // as somebody wrote it: NAME, NAME:TAG or NAME@DIGEST
	Mode v1beta1.ImageVerification

	// Signer is who has to have signed it, as the entry of a registry says; nil for nobody.
	// A rule of the user's takes its place.
	Signer *v1beta1.ImageSigner

	// Anew says that what the registry has now is meant, also of a tag that the engine has.
	Anew bool

	// Held asks the container engine what it has by the name; required.
	Held func(ctx context.Context) (*Held, error)
}

// Held is an image that a container engine has.
type Held struct {
	// Digests are what registries call it, NAME@DIGEST; none of an image that came from none.
	Digests []string

	// Built is what is known of an image that this user's own build made: nobody signs it. nil
	// for any other.
	Built *Choice
}

// Choice is what is to be run, and what is known of it.
type Choice struct {
	Image    string   // by digest, where one is known
	Pull     bool     // the engine has to be told to get it
	Fallback string   // what is run where it cannot be got now; "" for nothing
	Verified string   // who signed it, or that nobody was to look; "" where it is not certain
	Notes    []string // why it is not certain, and what else is to be known
}

// Kind is what an Error is about.
type Kind uint8

// The kinds of errors.
const (
	Refused Kind = iota + 1 // by verification, or it is no image
	NoPull                  // it cannot be had from its registry
)

// Error says why an image is not run, and what to do.
type Error struct {
	Kind Kind
	What string
	Next string
}

func (e *Error) Error() string {
	if e.Next == "" {
		return e.What
	}
	return e.What + ": " + e.Next
}

// Choose finds out what to run. Errors are an *Error, or what the engine said, or of ctx.
func (i *Images) Choose(ctx context.Context, w Want) (*Choice, error) {
	ref, err := parse(w.Name)
	if err != nil {
		return nil, err
	}
	held, err := w.Held(ctx)
	if err != nil {
		return nil, err
	}
	if w.Mode == v1beta1.VerifyDisabled {
		c := unverified(ref, held)
		c.Verified = "not verified: --image-verification disabled"
		return c, nil
	}

	if held != nil && held.Built != nil && (held.Built.Verified != "" || w.Mode != v1beta1.VerifyEnabled) {
		return held.Built, nil
	}

	// 1. Who has to have signed it.
	rule, err := i.rule(ref, w.Signer)
	if err != nil {
		if w.Mode == v1beta1.VerifyEnabled {
			return nil, err
		}
		c := unverified(ref, held)
		c.Notes = []string{err.Error()}
		return c, nil
	}

	// 2. What it is, by digest.
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not done within %s", within))
	defer cancel()
	r := i.registry(ref.repo)
	defer r.close()
	c := &Choice{}
	digests := ref.digests(held)
	switch {
	case ref.digest != "":
		digests = []string{ref.digest}
		c.Pull = held == nil
	case held != nil && len(digests) == 0: // it was made on this machine: nobody knows what is elsewhere by its name
		c.Image = w.Name
		return i.settle(w, c, &Error{Refused, about(w.Name) + "it came from no registry, so that nothing says who made it", "push it to a registry and sign it there, or run it with --image-verification warn"})
	case held == nil || ref.moving() || w.Anew:
		digest, err := r.resolve(ctx, ref)
		switch {
		case err == nil:
			c.Pull = !slices.Contains(digests, digest)
			digests = []string{digest}
		case held != nil:
			c.Notes = append(c.Notes, fmt.Sprintf("what the registry has as %s is not known now (%s): what is on this machine is run", w.Name, brief(err)))
		default:
			return i.absent(ctx, w, r, err)
		}
	}

	// 3. Whether it is signed: an engine may know one image by several digests.
	if len(digests) > maxDigests {
		digests = digests[:maxDigests]
	}
	var failed error
	for _, digest := range digests {
		c.Image = ref.base + "@" + digest
		if c.Verified, failed = i.verify(ctx, r, ref, digest, rule); failed == nil {
			return c, nil
		}
	}
	if ctx.Err() != nil && !errors.As(failed, new(*Error)) {
		return nil, context.Cause(ctx)
	}
	return i.settle(w, c, failed)
}

// maxDigests is how many digests of one image are looked at.
const maxDigests = 4

// settle makes of what speaks against an image an error, or a note.
func (i *Images) settle(w Want, c *Choice, failed error) (*Choice, error) {
	var known *Error
	if !errors.As(failed, &known) {
		return nil, failed
	}
	if w.Mode == v1beta1.VerifyEnabled {
		return nil, known
	}
	c.Verified, c.Notes = "", append(c.Notes, known.Error())
	return c, nil
}

// absent is what becomes of an image that neither the engine has nor its registry gives.
func (i *Images) absent(ctx context.Context, w Want, r *registry, err error) (*Choice, error) {
	var not *answered
	if errors.As(err, &not) && !not.busy() {
		return nil, &Error{NoPull, fmt.Sprintf("image %s cannot be had: %s", w.Name, not), not.next()}
	}
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return nil, context.Cause(ctx)
	}
	unreachable := r.unreachable(w.Name, err)
	if w.Mode == v1beta1.VerifyEnabled {
		return nil, unreachable
	}
	// The engine may have a way there that this process does not have.
	return &Choice{Image: w.Name, Pull: true, Notes: []string{unreachable.Error()}}, nil
}

// unverified is the choice where nothing is asked of the registry but by the engine.
func unverified(ref *reference, held *Held) *Choice {
	c := &Choice{Image: ref.text}
	switch {
	case held == nil:
		c.Pull = true
	case ref.moving() && len(ref.digests(held)) > 0:
		c.Pull, c.Fallback = true, ref.text
	}
	return c
}

// verify looks for a signature of an image, and returns who signed it. The error is an *Error,
// or of ctx.
func (i *Images) verify(ctx context.Context, r *registry, ref *reference, digest string, rule *rule) (string, error) {
	hash, err := v1.NewHash(digest)
	if err != nil || hash.Algorithm != "sha256" {
		return "", &Error{Refused, about(ref.text) + "its digest is not of sha256", "name one that is"}
	}
	trusted, err := i.roots()
	if err != nil {
		return "", &Error{Refused, about(ref.text) + err.Error(), "mend the file, or remove it: the roots that are built in count then"}
	}
	found, err := r.signatures(ctx, hash)
	if err != nil {
		if errors.Is(context.Cause(ctx), context.Canceled) {
			return "", context.Cause(ctx)
		}
		return "", r.unreachable(ref.text, err)
	}
	if len(found) == 0 {
		return "", &Error{Refused, about(ref.text) + "no signature of " + short(digest) + " is at its registry", "have whoever makes it sign it (cosign sign), or run it with --image-verification warn"}
	}
	var worst *failure
	for _, s := range found {
		who, err := s.verify(hash, rule, trusted)
		if err == nil {
			return who, nil
		}
		if worst == nil || err.rank > worst.rank {
			worst = err
		}
	}
	return "", &Error{Refused, about(ref.text) + worst.text, cmp.Or(worst.next, "do not run it before you know why; "+rule.where+" says who has to sign it")}
}

// about begins what is said against an image.
func about(name string) string { return "image " + name + " is not verified: " }

func short(digest string) string {
	if len(digest) > len("sha256:")+12 {
		return digest[:len("sha256:")+12] + "…"
	}
	return digest
}

// brief is an error of a library, or a text of a stranger, in a line.
func brief(err error) string { return edge.Brief(err.Error()) }

// reference is a name of an image.
type reference struct {
	text   string // as it was written
	base   string // without tag and digest
	repo   name.Repository
	tag    string // "latest" where none is named
	digest string // "" for none
}

// bases are names without a tag and a digest, as the distribution specification has them. The
// library takes more.
var bases = sync.OnceValue(func() *regexp.Regexp {
	const host, part = `([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(:[0-9]{1,5})?`, `[a-z0-9]+([._-]+[a-z0-9]+)*`
	return regexp.MustCompile(`^(` + host + `/)?` + part + `(/` + part + `)*$`)
})

// parse reads a name of an image. The error is an *Error.
func parse(text string) (*reference, error) {
	const most = 512
	refuse := func() (*reference, error) {
		return nil, &Error{Refused, fmt.Sprintf("%q is no image", text[:min(len(text), 100)]), "write NAME, NAME:TAG or NAME@DIGEST"}
	}
	if len(text) > most {
		return refuse()
	}
	r := &reference{text: text, tag: name.DefaultTag}
	r.base, r.digest, _ = strings.Cut(text, "@")
	if colon := strings.LastIndexByte(r.base, ':'); colon > strings.LastIndexByte(r.base, '/') {
		r.base, r.tag = r.base[:colon], r.base[colon+1:]
	}
	if !bases().MatchString(r.base) {
		return refuse()
	}
	var err error
	if r.repo, err = name.NewRepository(r.base); err != nil {
		return refuse()
	}
	if _, err := name.NewTag(r.base + ":" + r.tag); err != nil {
		return refuse()
	}
	if strings.Contains(text, "@") {
		if _, err := v1.NewHash(r.digest); err != nil {
			return refuse()
		}
	}
	return r, nil
}

// moving reports whether the name means what the registry has at the time.
func (r *reference) moving() bool { return r.digest == "" && r.tag == name.DefaultTag }

// full is the name of the repository with its registry, as rules have it: in small letters,
// and without the port that is meant anyway, so that no rule is passed by with another spelling.
func (r *reference) full() string {
	host := strings.ToLower(r.repo.RegistryStr())
	if h, port, ok := strings.Cut(host, ":"); ok {
		host = h + ":" + strings.TrimLeft(port, "0")
	}
	host = strings.TrimSuffix(host, ":443")
	switch host {
	case name.DefaultRegistry, "registry-1.docker.io", "registry.hub.docker.com": // all of them Docker's
		host = "docker.io"
	}
	return host + "/" + r.repo.RepositoryStr()
}

// digests are those by which this repository knows what an engine has.
func (r *reference) digests(h *Held) (all []string) {
	if h == nil {
		return nil
	}
	for _, text := range h.Digests {
		base, digest, _ := strings.Cut(text, "@")
		if repo, err := name.NewRepository(base); err == nil && repo.Name() == r.repo.Name() {
			all = append(all, digest)
		}
	}
	return all
}
