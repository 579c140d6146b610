// Command ranking says how well an edge's find_tool finds: it puts an edge before servers
// that list the tools of real ones, asks questions to which the right tools are known, by
// keywords, by vectors of a real sentence model and by both, and counts how often they are
// among the first. And it counts, with a real tokenizer, what an optimizer saves. README.md
// says what the sets are.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/weir-edge/weir/edge/edgetest/peers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "ranking:", err)
		os.Exit(1)
	}
}

// command is the program. What it prints is Markdown.
func command(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("ranking", flag.ContinueOnError)
	program := flags.String("weir", "", "program of the edge; built from ./cmd/weir without it")
	data := flags.String("data", "", "folder of the sets; testdata beside this program without it")
	names := flags.String("sets", "first,second", "sets to ask, NAME.json and NAME.tsv in the folder, with commas between; empty for none")
	misses := flags.Bool("misses", false, "print the questions that are answered without a right tool")
	savings := flags.Bool("savings", true, "count tokens, of 10, 100 and 1,000 tools")
	if err := flags.Parse(args); err != nil {
		return err
	}
	k, err := peers.Find()
	if err != nil {
		return err
	}
	if lacks := k.Lacks(); lacks != "" {
		return errors.New(lacks)
	}
	dir, err := os.MkdirTemp("", "weir-ranking-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if *program == "" {
		*program = filepath.Join(dir, "weir")
		if err := k.Build(ctx, peers.WeirPackage, *program); err != nil {
			return err
		}
	}
	if *data == "" {
		*data = filepath.Join(k.Root, "edge", "edgetest", "ranking", "testdata")
	}
	var sets []*set
	for _, name := range strings.FieldsFunc(*names, func(r rune) bool { return r == ',' }) {
		s, err := load(*data, name)
		if err != nil {
			return err
		}
		sets = append(sets, s)
	}
	if len(sets) > 0 {
		if err := report(ctx, k, *program, dir, sets, *misses, out); err != nil {
			return err
		}
	}
	if *savings {
		return saved(ctx, k, *program, dir, *data, out)
	}
	return nil
}

// report asks sets, and prints their tables.
func report(ctx context.Context, k peers.Kit, program, dir string, sets []*set, misses bool, out io.Writer) error {
	url, p, err := model(ctx, k)
	if err != nil {
		return err
	}
	defer p.Stop()
	for _, s := range sets {
		a, err := rank(ctx, program, dir, url, s)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %d tools of %d servers, %d questions\n\n", s.name, len(s.names()), len(s.servers), len(s.questions))
		fmt.Fprint(out, "| | questions | by | recall@1 | @5 | @8 | MRR |\n|---|---|---|---|---|---|---|\n")
		parts := []struct {
			name      string
			questions []question
		}{{"all", s.questions}, {"one half", s.half(0)}, {"other half", s.half(1)}}
		for _, part := range parts {
			for _, way := range ways {
				fmt.Fprintf(out, "| %s | %d | %s | %s |\n", part.name, len(part.questions), way, a.score(way, part.questions)["all"])
			}
		}
		for _, kind := range kinds {
			for _, way := range ways {
				f := a.score(way, s.questions)[kind]
				fmt.Fprintf(out, "| %s | %d | %s | %s |\n", kind, f.n, way, f)
			}
		}
		fmt.Fprintln(out)
		if misses {
			a.printMisses(out, s)
		}
	}
	return nil
}

func (a answers) printMisses(out io.Writer, s *set) {
	for _, way := range ways {
		for _, q := range s.questions {
			var f figures
			if f.add(q.right, a[way][q.text]); f.eight == 0 {
				fmt.Fprintf(out, "- %s, %s: %s (%s)\n", way, q.kind, q.text, strings.Join(q.right, ", "))
			}
		}
	}
	fmt.Fprintln(out)
}

// saved prints what an optimizer saves.
func saved(ctx context.Context, k peers.Kit, program, dir, data string, out io.Writer) error {
	var sets []*set
	for _, name := range []string{"first", "second"} {
		s, err := load(data, name)
		if err != nil {
			return err
		}
		sets = append(sets, s)
	}
	fmt.Fprint(out, "| tools | the whole list | the two tools | an answer of find_tool | saved by a client that asks once |\n|---|---|---|---|---|\n")
	for _, tools := range []int{10, 100, 1000} {
		s, err := save(ctx, k, program, dir, sets, tools)
		if err != nil {
			return fmt.Errorf("%d tools: %w", tools, err)
		}
		fmt.Fprintf(out, "| %d | %s | %s | %s | %.1f %% (%.1f %%) |\n", tools, s.list, s.two, s.answer,
			percent(s.list.tokens, s.two.tokens+s.answer.tokens), percent(s.list.quarters, s.two.quarters+s.answer.quarters))
	}
	return nil
}

func (s size) String() string { return fmt.Sprintf("%d (%d)", s.tokens, s.quarters) }

// percent is how much less a number is than another, in percent of that.
func percent(of, is int) float64 { return 100 * (1 - float64(is)/float64(max(1, of))) }
