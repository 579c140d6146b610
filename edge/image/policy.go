package image

import (
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Bounds of the user's rules.
const (
	maxPolicy  = 1 << 20 // bytes
	maxRules   = 1000
	maxSigners = 32 // keys and identities of one rule
	maxPattern = 512
)

// policy is the file of the user's rules, image-policy.yaml.
type policy struct {
	Images []policyRule `json:"images,omitempty"`
	Roots  *policyRoots `json:"roots,omitempty"`
}

// policyRule says who has to have signed some images. One of its keys or identities is enough.
type policyRule struct {
	Image       string           `json:"image"` // of which images: * stands for a part of a name, ** for several
	Keys        []string         `json:"keys,omitempty"`
	Identities  []policyIdentity `json:"identities,omitempty"`
	RequireTlog *bool            `json:"requireTlog,omitempty"` // that it is in a transparency log; nil for true
}

// policyIdentity is who a certificate has to be of.
type policyIdentity struct {
	Issuer  string `json:"issuer"`
	Subject string `json:"subject"` // * stands for anything
}

// rule is who has to have signed an image.
type rule struct {
	where string // what says so, for people
	keys  []crypto.PublicKey
	ids   []identity
	log   bool // a transparency log has to have it
}

// identity is who a certificate has to be of, and where what it signs was built. A field of no
// value is not asked for, but for the issuer.
type identity struct {
	issuer     string
	subject    *regexp.Regexp
	names      string // the subject, for people
	repository string
	ref        string
	runner     string
}

// rule finds who has to have signed an image: by the user's rules, else by the entry that it
// is of. The error is an *Error.
func (i *Images) rule(ref *reference, entry *v1beta1.ImageSigner) (*rule, error) {
	p, err := readPolicy(i.PolicyFile)
	if err != nil {
		return nil, &Error{Refused, about(ref.text) + err.Error(), "mend the file"}
	}
	for n := range p.Images {
		of := &p.Images[n]
		fits, err := pattern(of.Image, true)
		if err != nil || !fits.MatchString(ref.full()) {
			continue // its error was told when the file was read
		}
		r, err := of.rule()
		if err != nil {
			return nil, &Error{Refused, about(ref.text) + fmt.Sprintf("%s: images[%d].%s", i.PolicyFile, n, err), "mend the file"}
		}
		r.where = fmt.Sprintf("%s, images[%d]", i.PolicyFile, n)
		return r, nil
	}
	if entry != nil {
		id, err := ofEntry(entry)
		if err != nil {
			return nil, &Error{Refused, about(ref.text) + "the entry of the registry that it is of " + err.Error(), "name its signers in " + i.PolicyFile}
		}
		return &rule{where: "the entry of the registry", ids: []identity{id}, log: true}, nil
	}
	return nil, &Error{Refused, about(ref.text) + "no rule says who has to sign " + ref.full(), "name its signers in " + i.PolicyFile + ", or say with --image-verification disabled that nobody has to"}
}

// readPolicy reads the user's rules, and all that can be wrong with them.
func readPolicy(path string) (*policy, error) {
	text, err := readFile(path, maxPolicy)
	if errors.Is(err, fs.ErrNotExist) {
		return &policy{}, nil
	}
	if err != nil {
		return nil, err
	}
	var p policy
	if err := yaml.UnmarshalStrict(text, &p); err != nil {
		return nil, fmt.Errorf("%s: %s", path, brief(err))
	}
	if len(p.Images) > maxRules {
		return nil, fmt.Errorf("%s: images: more than %d", path, maxRules)
	}
	if p.Roots != nil {
		if err := p.Roots.check(); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	for n := range p.Images {
		if _, err := p.Images[n].rule(); err != nil {
			return nil, fmt.Errorf("%s: images[%d].%w", path, n, err)
		}
	}
	return &p, nil
}

// readFile reads a file of at most so many bytes.
func readFile(path string, most int64) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // opening a named pipe waits
		return nil, fmt.Errorf("%s is no file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s: more than %d bytes", path, most)
	}
	return text, err
}

// rule reads a rule. The error begins with the field.
func (p *policyRule) rule() (*rule, error) {
	if _, err := pattern(p.Image, true); err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	host, _, has := strings.Cut(p.Image, "/")
	switch {
	case !has || !strings.ContainsAny(host, ".:*") && host != "localhost":
		return nil, fmt.Errorf("image: %q does not begin with a registry: write docker.io/library/NAME, or ghcr.io/OWNER/*", edge.Brief(p.Image))
	case dead(p.Image) != "":
		return nil, fmt.Errorf("image: %q fits no image: %s", edge.Brief(p.Image), dead(p.Image))
	case len(p.Keys) == 0 && len(p.Identities) == 0:
		return nil, errors.New("keys: neither keys nor identities are named: name one who has to sign")
	case len(p.Keys) > maxSigners || len(p.Identities) > maxSigners:
		return nil, fmt.Errorf("keys: more than %d keys or identities", maxSigners)
	}
	r := &rule{log: p.RequireTlog == nil || *p.RequireTlog}
	for n, text := range p.Keys {
		key, err := publicKey(text)
		if err != nil {
			return nil, fmt.Errorf("keys[%d]: %w", n, err)
		}
		r.keys = append(r.keys, key)
	}
	for n, one := range p.Identities {
		subject, err := pattern(one.Subject, false)
		switch {
		case one.Issuer == "" || len(one.Issuer) > maxPattern:
			return nil, fmt.Errorf("identities[%d].issuer: name one, such as https://token.actions.githubusercontent.com", n)
		case err != nil:
			return nil, fmt.Errorf("identities[%d].subject: %w", n, err)
		case strings.Trim(one.Subject, "*") == "":
			return nil, fmt.Errorf("identities[%d].subject: %q is everybody: name somebody", n, one.Subject)
		}
		r.ids = append(r.ids, identity{issuer: one.Issuer, subject: subject, names: one.Subject})
	}
	return r, nil
}

// publicKey reads a key in PEM.
func publicKey(text string) (crypto.PublicKey, error) {
	block, rest := pem.Decode([]byte(text))
	if block == nil || len(strings.TrimSpace(string(rest))) > 0 {
		return nil, errors.New("it is not one public key in PEM: write what `cosign public-key` prints")
	}
	if strings.Contains(block.Type, "PRIVATE") {
		return nil, errors.New("it is a private key, and only the public one is needed: take it out of the file")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, errors.New("it is no public key that is known here")
	}
	if weak, is := key.(*rsa.PublicKey); is && weak.N.BitLen() < 2048 {
		return nil, errors.New("it has fewer than 2048 bits")
	}
	return key, nil
}

// pattern reads a text in which * stands for others: in the name of an image for one without
// /, and ** for any.
func pattern(text string, image bool) (*regexp.Regexp, error) {
	if text == "" || len(text) > maxPattern {
		return nil, fmt.Errorf("write one, of at most %d characters", maxPattern)
	}
	if image { // as reference.full has names
		text = strings.Replace(strings.ToLower(text), ":443/", "/", 1)
	}
	var b strings.Builder
	for len(text) > 0 {
		switch {
		case image && strings.HasPrefix(text, "**"):
			b.WriteString(`.*`)
			text = text[2:]
		case text[0] == '*' && image:
			b.WriteString(`[^/]*`)
			text = text[1:]
		case text[0] == '*':
			b.WriteString(`.*`)
			text = text[1:]
		default:
			end := strings.IndexByte(text, '*')
			if end < 0 {
				end = len(text)
			}
			b.WriteString(regexp.QuoteMeta(text[:end]))
			text = text[end:]
		}
	}
	return regexp.Compile(`^(?s:` + b.String() + `)$`)
}

// dead says why the pattern of a rule fits no image, so that another rule, or none, would be the
// image's; "" for one that may fit some.
func dead(image string) string {
	host, path, _ := strings.Cut(strings.ToLower(image), "/")
	switch {
	case strings.ContainsAny(path, ":@"):
		return "write it without a tag and a digest: a rule holds for all of them"
	case path == "":
		return "write the name of an image, or * or ** for all, after the registry"
	case host == "index.docker.io":
		return "write docker.io/" + path
	case host == "docker.io" && !strings.Contains(path, "/") && !strings.Contains(path, "**"):
		return "write docker.io/library/" + path + ", or docker.io/**: each name there has an owner"
	}
	return ""
}

// ofEntry reads who has to have signed an image as the entry of a registry says.
func ofEntry(s *v1beta1.ImageSigner) (id identity, err error) {
	if s.Issuer == "" || s.Identity == "" {
		return id, errors.New("does not say both who signs it and who vouches for that")
	}
	id = identity{issuer: s.Issuer, repository: s.Repository, ref: s.Ref, runner: s.Runner}
	// A workflow is named by its path in the repository, and by any of its revisions where none
	// is named.
	id.names = s.Identity
	if strings.HasPrefix(id.names, "/") {
		if s.Repository == "" {
			return id, errors.New("names a workflow, and no repository")
		}
		id.names = strings.TrimSuffix(s.Repository, "/") + id.names
	}
	text := regexp.QuoteMeta(id.names)
	switch {
	case strings.Contains(id.names, "@"):
	case s.Ref != "":
		text += "@" + regexp.QuoteMeta(s.Ref)
	default:
		text += "(@.*)?"
	}
	id.subject, err = regexp.Compile(`^(?s:` + text + `)$`)
	return id, err
}
