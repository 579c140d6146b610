package v1beta1

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The names that every object carries in apiVersion.
const (
	Group      = "weir.dev"
	Version    = "v1beta1"
	APIVersion = Group + "/" + Version
)

// Object is one resource of this API group.
//
// +kubebuilder:object:generate=false
type Object interface {
	metav1.Object
	runtime.Object

	// Default fills in every default that the object's documents give and that
	// the object alone decides. Calling it twice is the same as calling it once.
	Default()

	// Validate returns everything that admission must reject about the object
	// alone, all faults at once, with the path of the field as users write it.
	// It expects an object that Default has completed, never panics whatever
	// the object holds, and never repeats the value of a secret.
	Validate() field.ErrorList
}

// Kind describes one kind of the group.
//
// +kubebuilder:object:generate=false
type Kind struct {
	Name       string                // as in the field kind: MCPGroup
	Plural     string                // as in a resource path: mcpgroups
	ShortNames []string              // what a command line also accepts
	New        func() Object         // a new, empty object of the kind
	NewList    func() runtime.Object // a new, empty list of the kind
}

// GroupVersionKind returns the kind's full name.
func (k Kind) GroupVersionKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: Group, Version: Version, Kind: k.Name}
}

// Kinds returns every kind of the group, sorted by name. The slice is the
// caller's own.
func Kinds() []Kind {
	return []Kind{
		kind[EdgeFilter, EdgeFilterList]("EdgeFilter", "edgefilters", "filter"),
		kind[EmbeddingServer, EmbeddingServerList]("EmbeddingServer", "embeddingservers", "emb", "embedding"),
		kind[MCPAuthzConfig, MCPAuthzConfigList]("MCPAuthzConfig", "mcpauthzconfigs", "authzcfg"),
		kind[MCPExternalAuthConfig, MCPExternalAuthConfigList]("MCPExternalAuthConfig", "mcpexternalauthconfigs", "extauth", "mcpextauth"),
		kind[MCPGroup, MCPGroupList]("MCPGroup", "mcpgroups", "mcpg", "mcpgroup"),
		kind[MCPOIDCConfig, MCPOIDCConfigList]("MCPOIDCConfig", "mcpoidcconfigs", "mcpoidc"),
		kind[MCPRemoteProxy, MCPRemoteProxyList]("MCPRemoteProxy", "mcpremoteproxies", "rp", "mcprp"),
		kind[MCPServer, MCPServerList]("MCPServer", "mcpservers", "mcpserver", "mcpservers"),
		kind[MCPServerEntry, MCPServerEntryList]("MCPServerEntry", "mcpserverentries", "mcpentry"),
		kind[MCPTelemetryConfig, MCPTelemetryConfigList]("MCPTelemetryConfig", "mcptelemetryconfigs", "mcpotel"),
		kind[MCPToolConfig, MCPToolConfigList]("MCPToolConfig", "mcptoolconfigs", "tc", "toolconfig"),
		kind[MCPWebhookConfig, MCPWebhookConfigList]("MCPWebhookConfig", "mcpwebhookconfigs", "mwc"),
		kind[VirtualMCPCompositeToolDefinition, VirtualMCPCompositeToolDefinitionList]("VirtualMCPCompositeToolDefinition", "virtualmcpcompositetooldefinitions", "vmcpctd", "compositetool"),
		kind[VirtualMCPServer, VirtualMCPServerList]("VirtualMCPServer", "virtualmcpservers", "vmcp", "virtualmcp"),
	}
}

// kind makes the entry of the object type T and its list type L.
func kind[T, L any, PT interface {
	*T
	Object
}, PL interface {
	*L
	runtime.Object
}](name, plural string, short ...string) Kind {
	return Kind{
		Name:       name,
		Plural:     plural,
		ShortNames: short,
		New: func() Object {
			o := PT(new(T))
			o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Group: Group, Version: Version, Kind: name})
			return o
		},
		NewList: func() runtime.Object { return PL(new(L)) },
	}
}

// KindNamed returns the kind of that exact name, and whether there is one.
func KindNamed(name string) (Kind, bool) {
	for _, k := range Kinds() {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}

// KindCalled returns the kind that a word names on a command line: its name, its
// name in lower case, its plural or one of its short names.
func KindCalled(word string) (Kind, bool) {
	for _, k := range Kinds() {
		if word == k.Name || word == strings.ToLower(k.Name) || word == k.Plural || slices.Contains(k.ShortNames, word) {
			return k, true
		}
	}
	return Kind{}, false
}

// AddToScheme makes every kind and its list known to a scheme, which clients of
// a cluster need to encode and decode them.
func AddToScheme(s *runtime.Scheme) error {
	for _, k := range Kinds() {
		gvk := k.GroupVersionKind()
		s.AddKnownTypeWithName(gvk, k.New())
		s.AddKnownTypeWithName(gvk.GroupVersion().WithKind(k.Name+"List"), k.NewList())
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Group: Group, Version: Version})
	return nil
}
