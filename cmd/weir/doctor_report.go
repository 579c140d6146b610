package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// check is what a step found out about a subject.
type check struct {
	Step    string
	Subject string // of the step: a file, SERVER/BACKEND, an address
	Level   level
	Class   string // one of classes(); "" where nothing is wrong
	Cause   string
	Next    string
	Detail  string // what else there is to know
}

// level is how much a finding matters. Only a problem is a failure.
type level int

const (
	levelOK level = iota
	levelNote
	levelWarning
	levelProblem
)

func (l level) String() string { return [...]string{"ok", "note", "warning", "problem"}[l] }

func fine(detail string) check { return check{Detail: detail} }

func problem(class, next, cause string, args ...any) check {
	return check{Level: levelProblem, Class: class, Next: next, Cause: fmt.Sprintf(cause, args...)}
}

func warning(class, next, cause string, args ...any) check {
	c := problem(class, next, cause, args...)
	c.Level = levelWarning
	return c
}

// MarshalJSON writes a check as an entry of steps.
func (c check) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Step    string `json:"step"`
		Subject string `json:"subject"`
		OK      bool   `json:"ok"`
		Level   string `json:"level"`
		Class   string `json:"class,omitempty"`
		Cause   string `json:"cause,omitempty"`
		Next    string `json:"next,omitempty"`
		Detail  string `json:"detail,omitempty"`
	}{c.Step, c.Subject, c.Level != levelProblem, c.Level.String(), c.Class, c.Cause, c.Next, c.Detail})
}

// progress is the line that tells of the end of a step.
func (c check) progress() string {
	line := fmt.Sprintf("%s %s: %s", c.Step, c.Subject, c.Level)
	switch {
	case c.Class != "":
		line += ": " + c.Class
	case c.Detail != "":
		line += " (" + c.Detail + ")"
	}
	return firstLine(line)
}

// The classes of findings.
const (
	inSettings    = "settings"
	inManifests   = "manifest"
	inFile        = "file"
	inAddress     = "address"
	inClock       = "clock"
	inSecret      = "secret"
	inStore       = "store"
	ofDNS         = "dns"
	ofRefusal     = "refused"
	ofSilence     = "timeout"
	ofTLS         = "tls"
	ofPrivacy     = "private"
	ofWay         = "unreachable"
	ofCredential  = "credential"
	ofProtocol    = "protocol"
	ofTransport   = "transport"
	ofFailure     = "failing"
	ofLists       = "lists"
	ofAnswers     = "answers"
	ofNames       = "names"
	ofDefinitions = "definition"
)

// class is a kind of finding.
type class struct {
	code  int // the exit code of a doctor that found it first
	name  string
	means string
}

// classes is the table of all of them. A code never changes its meaning.
func classes() []class {
	return []class{
		{10, inSettings, "a setting cannot be right"},
		{11, inManifests, "a manifest cannot be read or served"},
		{12, inFile, "a file of keys or certificates is not there or not right"},
		{13, inAddress, "the edge cannot listen at an address"},
		{14, inClock, "the clock of this machine is wrong"},
		{15, inSecret, "a secret that a manifest refers to is not there or not right"},
		{16, inStore, "a shared store does not answer, or not as it is needed"},
		{20, ofDNS, "the name of a backend has no address"},
		{21, ofRefusal, "nobody listens at a backend's address, or who does refuses the edge"},
		{22, ofSilence, "a backend does not answer in time"},
		{23, ofTLS, "there is no TLS with a backend that can be trusted"},
		{24, ofPrivacy, "a backend is at an address that it may not be at"},
		{25, ofWay, "there is no way to a backend"},
		{30, ofCredential, "a backend wants a credential, or another one"},
		{31, ofProtocol, "what answers is no MCP server that the edge can talk to"},
		{32, ofTransport, "a backend speaks another transport than the manifest says"},
		{33, ofFailure, "a backend answers that it cannot serve"},
		{34, ofLists, "a backend does not list what it offers"},
		{35, ofAnswers, "a backend sends answers to others than who asked"},
		{40, ofNames, "names of tools, prompts or resources are in conflict"},
		{41, ofDefinitions, "a backend defines something in a way that the protocol forbids"},
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
type findings []check

func (fs findings) count(l level) int {
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
		if c.Level != levelProblem {
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
	problems, warnings := fs.count(levelProblem), fs.count(levelWarning)
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(struct {
			OK       bool     `json:"ok"`
			ExitCode int      `json:"exitCode"`
			Problems int      `json:"problems"`
			Warnings int      `json:"warnings"`
			Steps    findings `json:"steps"`
		}{problems == 0, fs.exitCode(), problems, warnings, fs})
	}
	for _, c := range fs {
		if c.Level == levelOK {
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
	_, err := fmt.Fprintf(w, "%s, %s in %s\n", plural(problems, "problem"), plural(warnings, "warning"), plural(len(fs), "check"))
	return err
}
