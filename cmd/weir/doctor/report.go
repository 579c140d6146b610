package doctor

import (
	"fmt"
	"io"
	"strings"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/show"
	"github.com/weir-edge/weir/edge"
)

// fault is the exit code of a problem of no class.
const fault = 1

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

// Progress is the line that tells of the end of a step.
func Progress(c edge.Finding) string {
	line := fmt.Sprintf("%s %s: %s", c.Step, c.Subject, c.Level)
	switch {
	case c.Class != "":
		line += ": " + c.Class
	case c.Detail != "":
		line += " (" + c.Detail + ")"
	}
	return show.FirstLine(line)
}

// Class is a kind of finding.
type Class struct {
	Code  int // the exit code of a doctor that found it first
	Name  string
	Means string
}

// Classes is the table of all of them. A code never changes its meaning.
func Classes() []Class {
	return []Class{
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
		{25, edge.ClassUnreachable, "there is no way to a backend, or to the keys of an issuer"},
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

// ClassTable is the classes for help.
func ClassTable() string {
	var b strings.Builder
	for i, c := range Classes() {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "  %d %-11s %s", c.Code, c.Name, c.Means)
	}
	return b.String()
}

// Findings is what all steps found, in their order.
type Findings []edge.Finding

func (fs Findings) count(l edge.Level) int {
	n := 0
	for _, c := range fs {
		if c.Level == l {
			n++
		}
	}
	return n
}

// ExitCode is that of the class of the first problem; 0 without one.
func (fs Findings) ExitCode() int {
	for _, c := range fs {
		if c.Level != edge.LevelProblem {
			continue
		}
		for _, one := range Classes() {
			if one.Name == c.Class {
				return one.Code
			}
		}
		return fault
	}
	return 0
}

// Write prints the findings for people, or as JSON.
func (fs Findings) Write(w io.Writer, asJSON bool) error {
	problems, warnings := fs.count(edge.LevelProblem), fs.count(edge.LevelWarning)
	if asJSON {
		steps := make([]taken, len(fs))
		for i, f := range fs {
			steps[i] = taken{f.Step, f.Subject, f.Level != edge.LevelProblem, f.Level.String(), f.Class, f.Cause, f.Next, f.Detail}
		}
		return cli.PrintJSON(w, struct {
			OK       bool    `json:"ok"`
			ExitCode int     `json:"exitCode"`
			Problems int     `json:"problems"`
			Warnings int     `json:"warnings"`
			Steps    []taken `json:"steps"`
		}{problems == 0, fs.ExitCode(), problems, warnings, steps}, "  ")
	}
	for _, c := range fs {
		if c.Level == edge.LevelOK {
			continue
		}
		class := c.Class
		if class != "" {
			class = " (" + class + ")"
		}
		if _, err := fmt.Fprintf(w, "%s: %s %s%s\n  cause: %s\n", c.Level, c.Step, c.Subject, class, show.FirstLine(c.Cause)); err != nil {
			return err
		}
		if c.Next == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "  next:  %s\n", show.FirstLine(c.Next)); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s, %s in %s\n", edge.Count(problems, "problem"), edge.Count(warnings, "warning"), edge.Count(len(fs), "check"))
	return err
}
