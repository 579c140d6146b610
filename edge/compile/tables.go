package compile

// tableField is a field of a kind; the kind * stands for every kind.
type tableField struct{ kind, path string }

// clusterFields is the one list of fields, and sections, that only shape
// Kubernetes objects or that a cluster writes. They are validated and then
// listed once.
func clusterFields() []tableField {
	return []tableField{
		{"*", "status"},
		{"*", "metadata.generateName"},
		{"*", "metadata.selfLink"},
		{"*", "metadata.uid"},
		{"*", "metadata.resourceVersion"},
		{"*", "metadata.generation"},
		{"*", "metadata.creationTimestamp"},
		{"*", "metadata.deletionTimestamp"},
		{"*", "metadata.deletionGracePeriodSeconds"},
		{"*", "metadata.ownerReferences"},
		{"*", "metadata.finalizers"},
		{"*", "metadata.managedFields"},

		{"VirtualMCPServer", "spec.replicas"},
		{"VirtualMCPServer", "spec.serviceType"},
		{"VirtualMCPServer", "spec.sessionAffinity"},
		{"VirtualMCPServer", "spec.podTemplateSpec"},
		{"VirtualMCPServer", "spec.imagePullSecrets"},
		{"VirtualMCPServer", "spec.serviceAccount"},

		{"MCPServer", "spec.replicas"},
		{"MCPServer", "spec.backendReplicas"},
		{"MCPServer", "spec.sessionAffinity"},
		{"MCPServer", "spec.podTemplateSpec"},
		{"MCPServer", "spec.serviceAccount"},
		{"MCPServer", "spec.resources"},
		{"MCPServer", "spec.resourceOverrides"},

		{"MCPRemoteProxy", "spec.replicas"},
		{"MCPRemoteProxy", "spec.sessionAffinity"},
		{"MCPRemoteProxy", "spec.podTemplateSpec"},
		{"MCPRemoteProxy", "spec.serviceAccount"},
		{"MCPRemoteProxy", "spec.resources"},
		{"MCPRemoteProxy", "spec.resourceOverrides"},

		{"EmbeddingServer", "spec"},
	}
}

// servedFields is the one list of fields that are served although one above them is in
// another list.
func servedFields() []tableField {
	return []tableField{
		{"EmbeddingServer", "status.url"},
	}
}

// doorFields is the one list of fields that describe a door of its own. At the door of the
// process they say nothing, and are listed once.
func doorFields() []tableField {
	return []tableField{
		{"MCPServer", "spec.proxyPort"},
		{"MCPServer", "spec.run.proxyHost"},
		{"MCPServer", "spec.run.allowedOrigins"},
		{"MCPRemoteProxy", "spec.proxyPort"},
		{"MCPRemoteProxy", "spec.run.proxyHost"},
		{"MCPRemoteProxy", "spec.run.allowedOrigins"},
	}
}

// class is what becomes of a field.
type class int

const (
	classServed      class = iota // in no table but that of exceptions: the edge does what it says
	classClusterOnly              // it only shapes Kubernetes objects
	classDoor                     // it describes a door of its own
	classUnsupported              // refused
)

// tables answers for each field of each kind what becomes of it.
type tables struct {
	entries map[string][]entry // by kind
}

type entry struct {
	path  string
	class class
	rule  *unsupported // of classUnsupported
}

func newTables(refused []unsupported) tables {
	t := tables{entries: map[string][]entry{}}
	for _, f := range clusterFields() {
		t.entries[f.kind] = append(t.entries[f.kind], entry{path: f.path, class: classClusterOnly})
	}
	for _, f := range servedFields() {
		t.entries[f.kind] = append(t.entries[f.kind], entry{path: f.path, class: classServed})
	}
	for _, f := range doorFields() {
		t.entries[f.kind] = append(t.entries[f.kind], entry{path: f.path, class: classDoor})
	}
	for _, u := range refused {
		t.entries[u.kind] = append(t.entries[u.kind], entry{path: u.path, class: classUnsupported, rule: &u})
	}
	return t
}

// find returns the entry for the field at pattern: of those at or above it the
// one that says most. That of a field that is served has no path.
func (t tables) find(kind, pattern string) entry {
	var best entry
	for _, k := range []string{kind, "*"} {
		for _, e := range t.entries[k] {
			if under(pattern, e.path) && len(e.path) > len(best.path) {
				best = e
			}
		}
	}
	return best
}
