package local

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/container"
)

// defaultsName is the file of the user's defaults, in the directory of the configuration.
const defaultsName = "workloads.yaml"

// maxDefaults bounds it, in bytes.
const maxDefaults = 1 << 20

// linkIn is how a file of defaults says that containers are linked: auto where it says nothing,
// or is not there.
func linkIn(path string) (container.Link, error) {
	if path == "" {
		return container.LinkAuto, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return container.LinkAuto, nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxDefaults+1))
	if err == nil && len(text) > maxDefaults {
		err = fmt.Errorf("more than %d bytes", maxDefaults)
	}
	var all struct {
		Link string `json:"link"`
	}
	if err == nil {
		err = yaml.Unmarshal(text, &all)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %s", path, strings.ReplaceAll(err.Error(), "\n", " "))
	}
	switch link := container.Link(all.Link); link {
	case "":
		return container.LinkAuto, nil
	case container.LinkAuto, container.LinkSocket, container.LinkAttach:
		return link, nil
	}
	return "", fmt.Errorf("%s: link: %q: write auto, socket or attach", path, edge.Brief(all.Link))
}
