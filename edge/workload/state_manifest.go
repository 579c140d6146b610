package workload

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Of the manifests of a workload the manager writes three things: what the user wants, the
// port that was chosen, and the group. The rest stays as it was written, comments included.

// wishKey says what the user wants: running or stopped.
const wishKey = "weir.dev/wish"

// manifests are the documents of a workload.
type manifests struct {
	documents []*yaml.Node
	workload  *yaml.Node // the mapping of the one that is the workload itself
}

// parseManifests reads manifests that were judged already.
func parseManifests(text []byte) (*manifests, error) {
	m := &manifests{}
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var document yaml.Node
		err := d.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		m.documents = append(m.documents, &document)
		if document.Kind != yaml.DocumentNode || len(document.Content) != 1 || m.workload != nil {
			continue
		}
		if kind := child(document.Content[0], "kind"); kind != nil && (kind.Value == "MCPServer" || kind.Value == "MCPRemoteProxy") {
			m.workload = document.Content[0]
		}
	}
	if m.workload == nil {
		return nil, errors.New("there is no MCPServer and no MCPRemoteProxy")
	}
	return m, nil
}

// text writes the documents.
func (m *manifests) text() ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	for _, document := range m.documents {
		if err := e.Encode(document); err != nil {
			return nil, err
		}
	}
	if err := e.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// child returns the value of a key; nil for none.
func child(mapping *yaml.Node, key string) *yaml.Node {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

// get returns the text of the workload at a path; "" for none.
func (m *manifests) get(path ...string) string {
	n := m.workload
	for _, key := range path {
		n = child(n, key)
	}
	if n == nil || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}

// set puts a scalar of the workload at a path.
func (m *manifests) set(tag, value string, path ...string) error {
	n := m.workload
	for i, key := range path {
		if n.Kind != yaml.MappingNode {
			return fmt.Errorf("%s: it is no mapping", path[i-1])
		}
		next := child(n, key)
		if next == nil {
			next = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, next)
		}
		n = next
	}
	*n = yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value, LineComment: n.LineComment}
	return nil
}

// edited returns manifests with changes, or as they are where those change nothing.
func edited(text []byte, change func(*manifests) (bool, error)) ([]byte, error) {
	m, err := parseManifests(text)
	if err != nil {
		return nil, err
	}
	changed, err := change(m)
	if err != nil || !changed {
		return text, err
	}
	return m.text()
}

// withWish returns manifests with what the user wants.
func withWish(text []byte, wish State) ([]byte, error) {
	return edited(text, func(m *manifests) (bool, error) {
		if m.get("metadata", "annotations", wishKey) == string(wish) {
			return false, nil
		}
		return true, m.set("!!str", string(wish), "metadata", "annotations", wishKey)
	})
}

// wishOf reads what the user wants of a workload: to run, where nothing says so.
func wishOf(text []byte) State {
	if m, err := parseManifests(text); err == nil && m.get("metadata", "annotations", wishKey) == string(Stopped) {
		return Stopped
	}
	return Running
}

// withPort returns manifests with the port of the door.
func withPort(text []byte, port int) ([]byte, error) {
	return edited(text, func(m *manifests) (bool, error) {
		return true, m.set("!!int", strconv.Itoa(port), "spec", "proxyPort")
	})
}

// withGroup returns manifests with another group.
func withGroup(text []byte, group string) ([]byte, error) {
	return edited(text, func(m *manifests) (bool, error) {
		return true, m.set("!!str", group, "spec", "groupRef", "name")
	})
}
