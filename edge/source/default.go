package source

import (
	_ "embed"
	"strings"
)

//go:embed default.yaml
var defaultYAML string

// Default returns the embedded default set, which serves the built-in demo
// backend at demoURL (http or https). A URL that is none shows when the set is
// compiled, as it would in a file.
func Default(demoURL string) *Set {
	quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(demoURL)
	s, _ := Read("(default)", []byte(strings.ReplaceAll(defaultYAML, "{{demo}}", quoted)))
	return s
}
