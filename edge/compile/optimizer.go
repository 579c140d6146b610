package compile

import (
	"cmp"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/v1beta1"
)

// embeddingURL is the annotation of an EmbeddingServer that says where it is.
const embeddingURL = "weir.dev/url"

// optimizer plans spec.config.optimizer; nil where there is none.
func (c *compiler) optimizer(o *object, s *v1beta1.VirtualMCPServer, config *v1beta1.ServerConfig) *Optimizer {
	const at = "spec.config.optimizer"
	given := config.Optimizer
	if given == nil {
		if s.Spec.EmbeddingServerRef != nil {
			c.find(Warning, o, "spec.embeddingServerRef", ReasonUnused, "not used: there is no %s", at)
		}
		return nil
	}
	p := &Optimizer{Ratio: decimal(given.HybridSearchSemanticRatio, 0.5), Far: decimal(given.SemanticDistanceThreshold, 1), Most: 8}
	if given.MaxToolsToReturn != nil {
		p.Most = *given.MaxToolsToReturn
	}
	provider := cmp.Or(given.EmbeddingProvider, v1beta1.EmbeddingTEI)
	e := &Embeddings{Provider: provider, Address: given.EmbeddingService, Timeout: 30 * time.Second}
	if d := given.EmbeddingServiceTimeout.Std(); d > 0 {
		e.Timeout = d
	}
	if provider == v1beta1.EmbeddingCompat {
		e.Model, e.Headers = given.EmbeddingModel, given.EmbeddingHeaders
	} else if given.EmbeddingModel != "" {
		c.find(Note, o, at+".embeddingModel", ReasonUnused, "not used: with the provider tei the service says which model it has")
	}
	server := c.embeddingServer(o)
	if server != nil && provider == v1beta1.EmbeddingTEI {
		if e.Address != "" {
			c.find(Warning, o, at+".embeddingService", ReasonUnused, "not used: spec.embeddingServerRef takes precedence")
		}
		e.Address = c.embeddingAddress(server)
	}
	named := server != nil || s.Spec.EmbeddingServerRef != nil || e.Address != ""
	switch {
	case p.Ratio == 0 && named:
		c.find(Note, o, at+".hybridSearchSemanticRatio", ReasonUnused, "it is 0, so that tools are found by keywords alone and the embedding service is not asked")
		return p
	case p.Ratio == 0:
		return p
	case !named && provider == v1beta1.EmbeddingTEI:
		c.fail(o, at, ReasonInvalid, `no embedding service: set spec.embeddingServerRef or embeddingService, or hybridSearchSemanticRatio: "0" to find tools by keywords alone`)
		return p
	}
	e.Address = strings.TrimRight(e.Address, "/")
	p.Service = e
	return p
}

// embeddingServer returns the object that spec.embeddingServerRef names; nil for none.
func (c *compiler) embeddingServer(o *object) *object {
	for _, l := range o.links {
		if l.to.ref.Kind == "EmbeddingServer" {
			return l.to
		}
	}
	return nil
}

// embeddingAddress returns where an EmbeddingServer is.
func (c *compiler) embeddingAddress(o *object) string {
	e, ok := o.value.(*v1beta1.EmbeddingServer)
	if !ok {
		return ""
	}
	path, address := "metadata.annotations["+embeddingURL+"]", e.Annotations[embeddingURL]
	if address == "" {
		path, address = "status.url", e.Status.URL
	}
	if address == "" {
		c.fail(o, "metadata.annotations", ReasonInvalid, "nothing says where it is: start it yourself, and set the annotation %s or status.url to its URL", embeddingURL)
		return ""
	}
	if u, err := url.Parse(address); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		c.fail(o, path, ReasonInvalid, "must be a URL of http or https, without user, query and fragment")
	}
	return address
}

// decimal reads a number that validation has judged; usual stands for none.
func decimal(text string, usual float64) float64 {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return n
	}
	return usual
}
