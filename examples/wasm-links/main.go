// Command wasm-links is an MCP server in WebAssembly that says which links in notes still lead
// somewhere. It reads the directory that is mounted at /notes, and asks the hosts that its
// permission profile names.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/weir-edge/weir/sdk/server"
)

// notes is where the directory is mounted.
const notes = "/notes"

// maxLinks is how many links of one note are looked at: each is a request.
const maxLinks = 20

var link = regexp.MustCompile(`https?://[^\s<>()"'\]]+`)

func main() {
	s := server.Server{Name: "wasm-links", Version: "0.1.0", Tools: []server.Tool{
		{Name: "list_notes", Description: "Lists the notes.", Call: list},
		{Name: "check_links", Description: "Says of each link in a note whether it still leads somewhere.", Schema: `{"type":"object","properties":{"note":{"type":"string"}},"required":["note"]}`, Call: check},
	}}
	s.Main()
}

func list(json.RawMessage) (string, error) {
	files, err := os.ReadDir(notes)
	if err != nil {
		return "", err
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	return strings.Join(names, "\n"), nil
}

func check(arguments json.RawMessage) (string, error) {
	var in struct{ Note string }
	if err := json.Unmarshal(arguments, &in); err != nil || in.Note == "" {
		return "", errors.New("note has to be the name of one: list_notes lists them")
	}
	root, err := os.OpenRoot(notes) // what leads out of it is an error
	if err != nil {
		return "", err
	}
	defer root.Close()
	text, err := root.ReadFile(in.Note)
	if err != nil {
		return "", err
	}
	var out []string
	for i, url := range link.FindAllString(string(text), -1) {
		if i == maxLinks {
			out = append(out, fmt.Sprintf("the links after the first %d were not looked at", maxLinks))
			break
		}
		url = strings.TrimRight(url, ".,;:!?") // the sentence's
		answer, err := server.Fetch(server.Request{Method: "HEAD", URL: url})
		var why server.Failure
		switch {
		case errors.As(err, &why):
			out = append(out, url+": "+why.Error())
		case err != nil:
			out = append(out, url+": "+err.Error())
		default:
			out = append(out, fmt.Sprintf("%s: %d", url, answer.Status))
		}
	}
	if out == nil {
		return "there are no links in it", nil
	}
	return strings.Join(out, "\n"), nil
}
