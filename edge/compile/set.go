package compile

import (
	"fmt"
	"io"
	"log/slog"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-edge/weir/filters/guest"
	"github.com/weir-edge/weir/filters/webhook"
)

// Set is the objects that are compiled together: those of one namespace.
type Set struct {
	Objects []Object

	// Incomplete says that something of the set could not be read. What an
	// object refers to may have been there, so nothing is said to be missing.
	Incomplete bool

	// Part says that the objects are a part of a set. What they refer to may be
	// in the rest of it: it is warned of, and there is no plan.
	Part bool

	// LocalRateLimits says that rate limits may be counted in the memory of the
	// process, where there is no store to share.
	LocalRateLimits bool
	// Webhooks are those that every server asks; nil for none. They are no
	// object of the set: the process is told of them.
	Webhooks *webhook.Spec

	// Serve names the one object that clients connect to; the rest of the set is what it
	// refers to. Without it all VirtualMCPServers are served, and every MCPServer and
	// MCPRemoteProxy that none of them has behind it.
	Serve Ref

	// Doors gives each MCPServer and MCPRemoteProxy a door of its own, and serves them all.
	Doors bool

	// Cluster says that the objects are those of a cluster, where spec.run says nothing.
	Cluster bool

	// Starts are the forms of workloads that the process may start; none without. A
	// manifest alone must not run programs.
	Starts []Form

	// Modules reads the modules of filters that are in files, which are judged
	// with the objects. Without it they are judged when the plan is opened.
	Modules guest.Reader
}

// Object is one object of a set and what is known of where it comes from.
type Object struct {
	// Value is a v1beta1.Object, a *ConfigMap or a *Secret. It is not changed.
	Value metav1.Object

	// Origin says where the object is written, as a message names the place
	// (edge.yaml:12). It may be empty.
	Origin string

	// Config says that the object is a VirtualMCPServer that was written as its
	// spec.config alone. It then has no spec.groupRef and spec.incomingAuth:
	// those of spec.config stand for them, and the group need not exist when
	// there are backends.
	Config bool

	// Partial says that the object was read in part: a field that it lacks may
	// have been there, so nothing of Unread is said to be missing from it.
	Partial bool

	// Unread are the paths that what was not read of a partial object may belong
	// to; nil for any.
	Unread []string
}

// Ref names an object.
type Ref struct{ Kind, Name string }

// String returns KIND/NAME.
func (r Ref) String() string {
	if r.Name == "" {
		return r.Kind + "/(unnamed)"
	}
	return r.Kind + "/" + r.Name
}

// Ref returns the kind and the name of an object.
func (o Object) Ref() Ref {
	return Ref{Kind: reflect.TypeOf(o.Value).Elem().Name(), Name: o.Value.GetName()}
}

// ConfigMap is a v1 ConfigMap.
type ConfigMap struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Immutable  *bool             `json:"immutable,omitempty"`
	Data       map[string]string `json:"data,omitempty"`
	BinaryData map[string][]byte `json:"binaryData,omitempty"`
}

// Secret is a v1 Secret. Its values never show in any form of printing.
type Secret struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Immutable  *bool             `json:"immutable,omitempty"`
	Type       string            `json:"type,omitempty"`
	Data       map[string]Hidden `json:"data,omitempty"`       // base64 in a manifest
	StringData map[string]Hidden `json:"stringData,omitempty"` // plain text in a manifest; wins over Data
}

// Format writes Secret/NAME for every verb.
func (s Secret) Format(f fmt.State, _ rune) {
	// A fmt.State records its own failures.
	_, _ = io.WriteString(f, Ref{"Secret", s.Name}.String())
}

// Get returns the value under key and whether there is one.
func (s *Secret) Get(key string) ([]byte, bool) {
	if v, ok := s.StringData[key]; ok {
		return v, true
	}
	v, ok := s.Data[key]
	return v, ok
}

// Hidden is a secret value. It prints as REDACTED whatever the verb; convert
// it to []byte to use it.
type Hidden []byte

const redacted = "REDACTED"

// String returns REDACTED.
func (Hidden) String() string { return redacted }

// Format writes REDACTED for every verb.
func (Hidden) Format(s fmt.State, _ rune) {
	// A fmt.State records its own failures.
	_, _ = io.WriteString(s, redacted)
}

// MarshalJSON writes REDACTED as a string.
func (Hidden) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// LogValue is REDACTED.
func (Hidden) LogValue() slog.Value { return slog.StringValue(redacted) }
