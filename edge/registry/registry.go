// Package registry knows the servers that registries describe: it reads their formats
// (formats.go, flat.go) from files, directories, URLs and the registry API (fetch.go), keeps
// what it read (cache.go), finds entries in it (find.go), and says what an entry is started
// as (form.go) and what it still needs (fill.go). It starts nothing.
//
// Entries are written by strangers. Each is checked by itself: one that cannot be right is
// left out and counted, and what no entry may set is refused by name.
package registry

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/weir-edge/weir/edge"
)

// Bounds of a registry, whatever it is read from.
const (
	MaxBytes   = 64 << 20 // of all its text
	MaxEntries = 100_000
	maxDepth   = 32        // of arrays and objects
	maxEntry   = 256 << 10 // bytes of one entry
	maxItems   = 256       // of any list in an entry
	maxValue   = 4 << 10   // bytes of one value of an entry that is used
)

// Kind is what kind of error an Error is.
type Kind int

// The kinds of errors.
const (
	Broken   Kind = iota // what was read is no registry, or cannot be read
	Invalid              // the user has to say something else, or more
	NotFound             // there is no such entry
	Refused              // a rule forbids it
	Later                // it is not supported yet
)

// Error is why a registry, or an entry of one, cannot be used. Its text is fit for a
// terminal.
type Error struct {
	Kind    Kind
	Field   string // of an entry, such as packages[0].runtimeArguments[1]; "" for none
	Message string
	Next    string // what to do; "" where nobody knows
	Near    bool   // of NotFound: Next names entries that may be meant
}

func (e *Error) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}

func refused(field, format string, args ...any) *Error {
	return &Error{Kind: Refused, Field: field, Message: fmt.Sprintf(format, args...)}
}

func later(field, next, format string, args ...any) *Error {
	return &Error{Kind: Later, Field: field, Next: next, Message: "not supported yet: " + fmt.Sprintf(format, args...)}
}

// Entry is one server of a registry, by the words of server.json (its schema of 2025-12-11).
type Entry struct {
	Name        string    `json:"name"` // NAMESPACE/NAME
	Title       string    `json:"title,omitempty"`
	Description string    `json:"description,omitempty"`
	Version     string    `json:"version,omitempty"`
	Status      string    `json:"-"` // active or deprecated
	Repository  string    `json:"-"` // URL; "" for none that is one
	Website     string    `json:"-"`
	Published   time.Time `json:"-"`
	Latest      bool      `json:"-"` // the registry says that it is the newest version of its name

	Packages []Package `json:"packages,omitempty"`
	Remotes  []Remote  `json:"remotes,omitempty"`

	Command json.RawMessage `json:"command,omitempty"` // a program of this machine, which no entry may name; nil for none

	Text json.RawMessage `json:"-"` // server.json
}

// Package is a program that an index has.
type Package struct {
	RegistryType         string    `json:"registryType"` // npm, pypi, oci, …
	RegistryBaseURL      string    `json:"registryBaseUrl,omitempty"`
	Identifier           string    `json:"identifier"`
	Version              string    `json:"version,omitempty"`
	FileSHA256           string    `json:"fileSha256,omitempty"` // of the package's file, which has to be that one to be run
	Transport            Transport `json:"transport"`
	RuntimeArguments     []Input   `json:"runtimeArguments,omitempty"`
	PackageArguments     []Input   `json:"packageArguments,omitempty"`
	EnvironmentVariables []Input   `json:"environmentVariables,omitempty"`

	Extra Extra `json:"-"`
}

// Remote is a server at a URL.
type Remote struct {
	Transport
	Variables map[string]Input `json:"variables,omitempty"` // of the URL

	Extra Extra `json:"-"`
}

// Transport is how a server is spoken to.
type Transport struct {
	Type    string  `json:"type"` // stdio, streamable-http or sse
	URL     string  `json:"url,omitempty"`
	Headers []Input `json:"headers,omitempty"`
}

// Input is a value that a server is given: an argument, a variable of its environment or a
// header.
type Input struct {
	Type        string           `json:"type,omitempty"` // of an argument: positional or named
	Name        string           `json:"name,omitempty"`
	ValueHint   string           `json:"valueHint,omitempty"`
	Description string           `json:"description,omitempty"`
	Value       *string          `json:"value,omitempty"` // fixed, with {variables}; nil for one that the user may say
	Default     string           `json:"default,omitempty"`
	Placeholder string           `json:"placeholder,omitempty"`
	Format      string           `json:"format,omitempty"` // string, number, boolean or filepath
	Choices     []string         `json:"choices,omitempty"`
	IsRequired  bool             `json:"isRequired,omitempty"`
	IsSecret    bool             `json:"isSecret,omitempty"`
	Variables   map[string]Input `json:"variables,omitempty"` // of Value
}

// Extra is what the reference's publisher says of one package or remote, by its identifier or
// URL.
type Extra struct {
	Status      string          `json:"status,omitempty"`
	Tier        string          `json:"tier,omitempty"`
	Tags        []string        `json:"tags,omitempty"`
	Tools       []string        `json:"tools,omitempty"`
	Args        []string        `json:"args,omitempty"`        // where packageArguments has none
	Permissions json.RawMessage `json:"permissions,omitempty"` // a permission profile; nil for none
	Provenance  *Provenance     `json:"provenance,omitempty"`
	OAuth       json.RawMessage `json:"oauth_config,omitempty"`
}

// Provenance says who must have signed an image.
type Provenance struct {
	SigstoreURL       string `json:"sigstore_url,omitempty"`
	RepositoryURI     string `json:"repository_uri,omitempty"`
	RepositoryRef     string `json:"repository_ref,omitempty"`
	SignerIdentity    string `json:"signer_identity,omitempty"`
	RunnerEnvironment string `json:"runner_environment,omitempty"`
	CertIssuer        string `json:"cert_issuer,omitempty"`
}

// Last is the last part of an entry's name, by which it may be called where no other entry
// has it.
func (e *Entry) Last() string { return e.Name[strings.LastIndexByte(e.Name, '/')+1:] }

// Tags are those of all that the entry has.
func (e *Entry) Tags() []string {
	return e.extras(func(x *Extra) []string { return x.Tags })
}

// Tools are the names of the tools that the entry promises; none where it says nothing.
func (e *Entry) Tools() []string {
	return e.extras(func(x *Extra) []string { return x.Tools })
}

func (e *Entry) extras(of func(*Extra) []string) (all []string) {
	seen := map[string]bool{}
	add := func(x *Extra) {
		for _, text := range of(x) {
			if !seen[text] {
				seen[text], all = true, append(all, text)
			}
		}
	}
	for i := range e.Packages {
		add(&e.Packages[i].Extra)
	}
	for i := range e.Remotes {
		add(&e.Remotes[i].Extra)
	}
	return all
}

// Plain is a text of a stranger on one line, without what could steer a terminal or have a
// text read other than it is written (marks of direction, invisible characters).
func Plain(text string) string {
	return strings.Join(strings.FieldsFunc(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, text), unicode.IsSpace), " ")
}

// shown is a text of a stranger for an error.
func shown(text string) string { return fmt.Sprintf("%q", edge.Brief(Plain(text))) }
