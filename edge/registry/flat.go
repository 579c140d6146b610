package registry

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/weir-edge/weir/edge/mcp"
)

// The reference's older format: objects of servers by their short names, with words of its
// own. Each becomes the server.json that the reference makes of it.

// flatSchema is the schema of what is made.
const flatSchema = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"

// flatServer is a server of the older format, in an image or at a URL.
type flatServer struct {
	Description   string      `json:"description"`
	Title         string      `json:"title"`
	Transport     string      `json:"transport"`
	RepositoryURL string      `json:"repository_url"`
	Image         string      `json:"image"`
	TargetPort    int         `json:"target_port"`
	EnvVars       []flatInput `json:"env_vars"`
	URL           string      `json:"url"`
	Headers       []flatInput `json:"headers"`
}

type flatInput struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Required    bool     `json:"required"`
	Secret      bool     `json:"secret"`
	Default     string   `json:"default"`
	Choices     []string `json:"choices"`
}

// defaultPort is the port of a server that speaks HTTP and whose entry names none.
const defaultPort = 8080

// flat takes the servers of the older format.
func (d *document) flat(servers, remotes []byte) error {
	d.servers = []json.RawMessage{}
	for _, list := range []struct {
		field string
		all   []byte
	}{{"servers", servers}, {"remote_servers", remotes}} {
		if len(list.all) == 0 || string(list.all) == "null" {
			continue
		}
		if !is(list.all, '{') {
			return &Error{Kind: Broken, Field: list.field, Message: "an object belongs here"}
		}
		for _, m := range mcp.Members(list.all) {
			if len(d.servers) >= MaxEntries {
				return errTooMany
			}
			text, err := upstream(string(mcp.Unquote(m.Name)), m.Value)
			if err != nil {
				text = m.Value // what it is left out for is said by whoever reads it
			}
			d.servers = append(d.servers, text)
		}
	}
	return nil
}

// upstream makes the server.json of a server of the older format.
func upstream(name string, text []byte) ([]byte, error) {
	var s flatServer
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	if !strings.Contains(name, "/") {
		name = publisher + "/" + name
	}
	made := map[string]any{"$schema": flatSchema, "name": name, "description": s.Description, "version": "1.0.0"}
	if s.Title != "" {
		made["title"] = s.Title
	}
	if s.RepositoryURL != "" {
		made["repository"] = map[string]string{"url": s.RepositoryURL, "source": "github"}
	}
	at := s.URL
	if s.URL != "" {
		made["remotes"] = []Remote{{Transport: Transport{Type: s.Transport, URL: s.URL, Headers: inputs(s.Headers)}}}
	} else {
		at = s.Image
		p := Package{RegistryType: "oci", Identifier: s.Image, EnvironmentVariables: inputs(s.EnvVars), Transport: Transport{Type: s.Transport}}
		switch s.Transport {
		case "", "stdio":
			p.Transport.Type = "stdio"
		default:
			port := s.TargetPort
			if port == 0 {
				port = defaultPort
			}
			p.Transport.URL = fmt.Sprintf("http://localhost:%d", port)
		}
		made["packages"] = []Package{p}
	}

	// All that server.json has no word for stands below the publisher, and so does what of the
	// rest has no place in it, such as the port of a program that listens nowhere.
	remote := s.URL != ""
	placed := map[string]bool{
		"description": true, "title": true, "repository_url": true, "url": true, "headers": remote || len(s.Headers) == 0, "image": !remote || s.Image == "",
		"env_vars": !remote, "target_port": s.TargetPort == 0 || !remote && s.Transport != "" && s.Transport != "stdio",
	}
	extra := map[string]json.RawMessage{}
	for _, m := range mcp.Members(text) {
		switch field := string(mcp.Unquote(m.Name)); {
		case placed[field]:
		case field == "name" && (mcp.String(m.Value) == "" || name == mcp.String(m.Value) || name == publisher+"/"+mcp.String(m.Value)):
		default:
			extra[field] = m.Value
		}
	}
	made["_meta"] = map[string]any{publisherMeta: map[string]any{publisher: map[string]any{at: extra}}}
	return json.Marshal(made)
}

// inputs are the inputs of the older format by the words of server.json.
func inputs(flat []flatInput) (all []Input) {
	for _, f := range flat {
		all = append(all, Input{Name: f.Name, Description: f.Description, IsRequired: f.Required, IsSecret: f.Secret, Default: f.Default, Choices: f.Choices})
	}
	return all
}
