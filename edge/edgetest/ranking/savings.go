package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/weir-edge/weir/edge/edgetest/peers"
)

// saving is what a client of an edge reads of tools, in tokens of a real tokenizer and in
// bytes / 4.
type saving struct {
	tools             int
	list, two, answer size // answer is one of find_tool, in the mean
}

type size struct{ tokens, quarters int }

// sized are servers with so many tools in all: those of sets, and as often as need be the same
// ones once more under other names.
func sized(sets []*set, tools int) (out []server) {
	for again := 1; ; again++ {
		for _, s := range sets {
			for _, one := range s.servers {
				if again > 1 {
					one.Name = fmt.Sprintf("%s-%d", one.Name, again)
				}
				one.Tools = one.Tools[:min(len(one.Tools), tools)]
				if tools -= len(one.Tools); len(one.Tools) > 0 {
					out = append(out, one)
				}
				if tools == 0 {
					return out
				}
			}
		}
	}
}

// save measures what is read of so many tools: the whole list, the list of an optimizer, and
// the answers to the questions of the sets, by keywords and with eight tools.
func save(ctx context.Context, k peers.Kit, program, dir string, sets []*set, tools int) (out saving, err error) {
	at, err := open(ctx, program, dir, sized(sets, tools), "")
	if err != nil {
		return out, err
	}
	defer at.close()
	var texts []string
	list := func(want int) error {
		var text json.RawMessage
		var failed error
		err := until(ctx, fmt.Sprintf("a list of %d tools", want), func() bool {
			var n int
			text, n, failed = at.list()
			return failed == nil && n == want
		})
		texts = append(texts, string(text))
		if failed != nil {
			return failed
		}
		return err
	}
	if err := list(tools); err != nil {
		return out, err
	}
	if err := at.change(ctx, `{hybridSearchSemanticRatio: "0"}`); err != nil {
		return out, err
	}
	if err := list(2); err != nil {
		return out, err
	}
	for _, s := range sets {
		for _, q := range s.questions {
			f, names, err := at.find(q.text)
			if err != nil {
				return out, err
			}
			if len(names) > 0 {
				texts = append(texts, string(f.StructuredContent.Tools))
			}
		}
	}
	tokens, err := count(ctx, k, texts)
	if err != nil {
		return out, err
	}
	of := func(i int) size { return size{tokens[i], len(texts[i]) / 4} }
	out = saving{tools: tools, list: of(0), two: of(1)}
	for i := 2; i < len(texts); i++ {
		out.answer.tokens += tokens[i]
		out.answer.quarters += len(texts[i]) / 4
	}
	answers := max(1, len(texts)-2)
	out.answer = size{out.answer.tokens / answers, out.answer.quarters / answers}
	return out, nil
}

// count counts tokens of texts with js-tiktoken.
func count(ctx context.Context, k peers.Kit, texts []string) (out []int, err error) {
	in, err := json.Marshal(texts)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, k.Node, filepath.Join(k.Dir(), "clients", "tokens.mjs"))
	cmd.Stdin = bytes.NewReader(in)
	said, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("count tokens: %w", err)
	}
	if err := json.Unmarshal(said, &out); err != nil || len(out) != len(texts) {
		return nil, fmt.Errorf("count tokens: no %d numbers", len(texts))
	}
	return out, nil
}
