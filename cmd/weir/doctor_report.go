package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/weir-edge/weir/edge"
)

// taken is a finding in steps.
type taken struct {
	Step    string `json:"step"`
	Subject string `json:"subject"`
	OK      bool   `json:"ok"`
	Level   string `json:"level"`
	Class   string `json:"class,omitempty"`
	Cause   string `json:"cause,omitempty"`
	Next    string `json:"next,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

// progress is the line that tells of the end of a step.
func progress(c edge.Finding) string {
	line := fmt.Sprintf("%s %s: %s", c.Step, c.Subject, c.Level)
	switch {
	case c.Class != "":
		line += ": " + c.Class
	case c.Detail != "":
		line += " (" + c.Detail + ")"
	}
	return firstLine(line)
}

// class is a kind of finding.
type class struct {
	code  int // the exit code of a doctor that found it first
	name  string
	means string
}

// classes is the table of all of them. A code never changes its meaning.
func classes() []class {
	return []class{
		{10, edge.ClassSettings, "a setting cannot be right"},
		{11, edge.ClassManifest, "a manifest cannot be read or served"},
		{12, edge.ClassFile, "a file of keys or certificates is not there or not right"},
		{13, edge.ClassAddress, "the edge cannot listen at an address"},
		{14, edge.ClassClock, "the clock of this machine is wrong"},
		{15, edge.ClassSecret, "a secret that a manifest refers to is not there or not right"},
		{16, edge.ClassStore, "a shared store does not answer, or not as it is needed"},
		{20, edge.ClassDNS, "the name of a backend has no address"},
		{21, edge.ClassRefused, "nobody listens at a backend's address, or who does refuses the edge"},
		{22, edge.ClassTimeout, "a backend does not answer in time"},
		{23, edge.ClassTLS, "there is no TLS with a backend that can be trusted"},
		{24, edge.ClassPrivate, "a backend is at an address that it may not be at"},
		{25, edge.ClassUnreachable, "there is no way to a backend"},
		{30, edge.ClassCredential, "a backend wants a credential, or another one"},
		{31, edge.ClassProtocol, "what answers is no MCP server that the edge can talk to"},
		{32, edge.ClassTransport, "a backend speaks another transport than the manifest says"},
		{33, edge.ClassFailing, "a backend answers that it cannot serve"},
		{34, edge.ClassLists, "a backend does not list what it offers"},
		{35, edge.ClassAnswers, "a backend sends answers to others than who asked"},
		{40, edge.ClassNames, "names of tools, prompts or resources are in conflict"},
		{41, edge.ClassDefinition, "a backend defines something in a way that the protocol forbids"},
	}
}

// classTable is the classes for help.
func classTable() string {
	var b strings.Builder
	for i, c := range classes() {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "  %d %-11s %s", c.code, c.name, c.means)
	}
	return b.String()
}

// findings is what all steps found, in their order.
type findings []edge.Finding

func (fs findings) count(l edge.Level) int {
	n := 0
	for _, c := range fs {
		if c.Level == l {
			n++
		}
	}
	return n
}

// exitCode is that of the class of the first problem.
func (fs findings) exitCode() int {
	for _, c := range fs {
		if c.Level != edge.LevelProblem {
			continue
		}
		for _, one := range classes() {
			if one.name == c.Class {
				return one.code
			}
		}
		return exitFault
	}
	return exitOK
}

// write prints the findings for people, or as JSON.
func (fs findings) write(w io.Writer, asJSON bool) error {
	problems, warnings := fs.count(edge.LevelProblem), fs.count(edge.LevelWarning)
	if asJSON {
		steps := make([]taken, len(fs))
		for i, f := range fs {
			steps[i] = taken{f.Step, f.Subject, f.Level != edge.LevelProblem, f.Level.String(), f.Class, f.Cause, f.Next, f.Detail}
		}
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(struct {
			OK       bool    `json:"ok"`
			ExitCode int     `json:"exitCode"`
			Problems int     `json:"problems"`
			Warnings int     `json:"warnings"`
			Steps    []taken `json:"steps"`
		}{problems == 0, fs.exitCode(), problems, warnings, steps})
	}
	for _, c := range fs {
		if c.Level == edge.LevelOK {
			continue
		}
		class := c.Class
		if class != "" {
			class = " (" + class + ")"
		}
		if _, err := fmt.Fprintf(w, "%s: %s %s%s\n  cause: %s\n", c.Level, c.Step, c.Subject, class, firstLine(c.Cause)); err != nil {
			return err
		}
		if c.Next == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "  next:  %s\n", firstLine(c.Next)); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s, %s in %s\n", edge.Count(problems, "problem"), edge.Count(warnings, "warning"), edge.Count(len(fs), "check"))
	return err
}
