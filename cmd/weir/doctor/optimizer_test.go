package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/embedder"
)

// TestDoctorOfTools: where tools are searched for, those without descriptions and those with
// like ones are told of, by name; and nowhere else.
func TestDoctorOfTools(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern)
	var tools []string
	add := func(name, description string) {
		tools = append(tools, fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object"}}`, name, description))
	}
	add("alone", "Reads a file from the disk.")
	add("one", "Sends a mail to somebody, at once!")
	add("two", "sends, at once, a mail to somebody")
	add("mute", "")
	add("dots", "…!?")
	for i := range 8 {
		add(fmt.Sprintf("copy_%d", i), "Copies what it is given.")
	}
	back.Tools = "[" + strings.Join(tools, ",") + "]"
	of := func(more string) (said []string) {
		for _, c := range examined(t, inFront(back.URL, "streamable-http", "")+more, 10*time.Second) {
			if c.Level == edge.LevelWarning && c.Step == "names" {
				said = append(said, c.Cause)
				if c.Next == "" || c.Subject != "main" || c.Class != edge.ClassNames {
					t.Errorf("%+v", c)
				}
			}
		}
		return said
	}
	want := []string{
		"2 tools without a description, which clients find by their names alone: mute, dots",
		"2 tools have like descriptions, and clients cannot tell which one to call: one, two",
		"8 tools have like descriptions, and clients cannot tell which one to call: copy_0, copy_1, copy_2, copy_3, copy_4 and 3 more",
	}
	search := "optimizer: {hybridSearchSemanticRatio: \"0\"}\naggregation: {conflictResolution: priority, conflictResolutionConfig: {priorityOrder: [a]}}\n"
	if got := of(search); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("said\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := of(""); len(got) != 0 {
		t.Errorf("without the optimizer the doctor says %q", got)
	}
}

// TestDoctorOfEmbeddings: an embedding service is asked for a vector: one that is well is named
// with its model, one that is slow has a warning that says what comes of it, one that fails is
// a problem with its cause, and the key is in no finding.
func TestDoctorOfEmbeddings(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern)
	s, err := embedder.Start("small-model", 16)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	look := func(more string) edge.Finding {
		t.Helper()
		for _, c := range examined(t, inFront(back.URL, "streamable-http", "")+fmt.Sprintf("optimizer: {embeddingService: %q%s}\n", s.URL, more), 5*time.Second) {
			if c.Step == "embeddings" {
				return c
			}
		}
		t.Fatal("the service was not asked")
		return edge.Finding{}
	}
	if c := look(""); c.Level != edge.LevelOK || !strings.Contains(c.Detail, "model small-model, ") {
		t.Errorf("%+v", c)
	}
	if c := look(", embeddingProvider: compat, embeddingModel: named"); c.Level != edge.LevelOK || !strings.Contains(c.Detail, "model named, ") {
		t.Errorf("%+v", c)
	}
	for takes, want := range map[time.Duration]string{400 * time.Millisecond: "and each find_tool waits for that", 1100 * time.Millisecond: "and questions wait 1s: tools are found by keywords alone"} {
		s.Take(takes)
		if c := look(""); c.Level != edge.LevelWarning || c.Class != edge.ClassTimeout || !strings.Contains(c.Cause, "the model small-model takes ") || !strings.Contains(c.Cause, want) || !strings.Contains(c.Next, "smaller model") {
			t.Errorf("%s: %+v", takes, c)
		}
	}
	s.Take(0)
	for _, harm := range []embedder.Harm{embedder.Refuses, embedder.Fails, embedder.Redirects, embedder.HTML, embedder.NaN, embedder.Huge} {
		if err := s.Do(harm); err != nil {
			t.Fatal(err)
		}
		if c := look(""); c.Level != edge.LevelProblem || c.Class != edge.ClassUnreachable || !strings.HasPrefix(c.Cause, "embedding service: ") || strings.Contains(c.Cause, "words of the service") || c.Next == "" {
			t.Errorf("%s: %+v", harm, c)
		}
		if err := s.Do(embedder.None); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Counts().Strayed; n != 0 {
		t.Errorf("%d requests followed a redirect", n)
	}
}
