package workload

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/runner"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// What an entry of a registry gives a workload. Flags win over all of it.

// server is the server that the options name, or that an entry describes.
func (o *Options) server() (s Server, err error) {
	e, words := o.Entry, append([]string{o.Server}, o.Args...)
	if e != nil {
		words = append(words, e.Command...)
	}
	for _, word := range words { // no program has the one, and no manifest the other
		if strings.ContainsRune(word, 0) || !utf8.ValidString(word) {
			return s, &Error{Code: CodeInvalid, Message: fmt.Sprintf("the word %q holds a NUL byte, or bytes that are not UTF-8", edge.Brief(word)), Next: "give it in UTF-8"}
		}
	}
	switch {
	case e == nil:
		return ReadServer(o.Server, o.Args, o.Look, o.HasImage)
	case e.Image != "":
		s = Server{Image: e.Image, Args: slices.Concat(e.Command, o.Args)}
	case e.URL != "":
		s, err = readURL(e.URL, o.Args)
	default:
		s, err = readCommand(slices.Concat(e.Command, o.Args), o.Look)
	}
	s.Name = runner.PlainName(e.Name)
	return s, err
}

// entryOptions takes from the entry what no flag says.
func (o *Options) entryOptions() {
	if e := o.Entry; e != nil {
		if !o.Given["transport"] {
			o.Transport = e.Transport
		}
		if !o.Given["target-port"] {
			o.TargetPort = e.Port
		}
	}
}

// readEntry takes the variables and headers of the entry. What the user gives by a flag, or
// in a file, is left out of it already.
func (d *draft) readEntry() error {
	if d.Entry == nil {
		return nil
	}
	for _, v := range d.Entry.Env {
		if v.Secret {
			ref := d.keep(v.Name, v.Value)
			d.variables = append(d.variables, v1beta1.ServerSecret{Name: ref.Name, Key: ref.Key, TargetEnvName: v.Name})
			continue
		}
		d.env = slices.DeleteFunc(d.env, func(has v1beta1.EnvVar) bool { return has.Name == v.Name })
		d.env = append(d.env, v1beta1.EnvVar{Name: v.Name, Value: v.Value})
	}
	for _, h := range d.Entry.Headers {
		if d.forward == nil {
			d.forward = &v1beta1.HeaderForward{}
		}
		if h.Secret {
			ref := d.keep("header-"+strings.ToLower(runner.PlainName(h.Name)), h.Value)
			d.forward.AddHeadersFromSecret = append(d.forward.AddHeadersFromSecret, v1beta1.SecretHeader{HeaderName: h.Name, ValueSecretRef: *ref})
			continue
		}
		if d.forward.AddPlaintextHeaders == nil {
			d.forward.AddPlaintextHeaders = map[string]string{}
		}
		d.forward.AddPlaintextHeaders[h.Name] = h.Value
	}
	return nil
}

// origin names the entry that a workload was made from.
func (d *draft) origin() *v1beta1.RegistryOrigin {
	if d.Entry == nil {
		return nil
	}
	of := &v1beta1.RegistryOrigin{Name: d.Entry.Name, Digest: d.Entry.Digest}
	if p := d.Entry.Signer; d.Entry.Image != "" && p != nil && p.CertIssuer != "" && p.SignerIdentity != "" {
		of.Signer = &v1beta1.ImageSigner{Issuer: p.CertIssuer, Identity: p.SignerIdentity, Repository: p.RepositoryURI, Ref: p.RepositoryRef, Runner: p.RunnerEnvironment}
	}
	return of
}
