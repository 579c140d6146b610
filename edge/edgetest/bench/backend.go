package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// answerSize is what the message that answers a call is filled up to, bytes.
const answerSize = 200

// newBackend returns a backend with the number of tools asked for, two at
// least: echo, slow, tool_3 and so on.
func newBackend(e kit.Era, tools int) *kit.Backend {
	names := []string{"echo", "slow"}
	for i := 2; i < tools; i++ {
		names = append(names, fmt.Sprintf("tool_%d", i+1))
	}
	b := kit.NewBackend(e, names...)
	b.Capabilities, b.Fill, b.Lives = `{"tools":{}}`, answerSize, time.Minute
	return b
}

func backendCommand(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("bench backend", flag.ContinueOnError)
	f.SetOutput(stderr)
	listen := f.String("listen", "127.0.0.1:0", "address to listen on")
	speaks := f.String("era", string(kit.Both), "modern, legacy or both")
	answer := f.String("answer", "json", "json or sse")
	get := f.String("get", "405", "what a legacy GET is answered with: 405, or stream for a silent event stream")
	tools := f.Int("tools", 2, "number of tools, 2 at least: echo, slow, tool_3, …")
	slow := f.Duration("slow", 20*time.Millisecond, "how long the tool slow takes")
	addresses := f.Int("addresses", 1, "addresses to listen on; all but the first are chosen by the system")
	attached := f.Bool("attached", false, "end when stdin does")
	if err := f.Parse(args); err != nil {
		return err
	}
	for _, v := range []struct{ flag, value, allowed string }{
		{"era", *speaks, "modern legacy both"}, {"answer", *answer, "json sse"}, {"get", *get, "405 stream"},
	} {
		if v.value == "" || !strings.Contains(" "+v.allowed+" ", " "+v.value+" ") {
			return fmt.Errorf("backend: --%s: %q is not one of %s", v.flag, v.value, v.allowed)
		}
	}
	if *tools < 2 || *tools > 1<<16 {
		return fmt.Errorf("backend: --tools: %d is not between 2 and 65536", *tools)
	}
	if *addresses < 1 || *addresses > 1000 {
		return fmt.Errorf("backend: --addresses: %d is not between 1 and 1000", *addresses)
	}
	b := newBackend(kit.Era(*speaks), *tools)
	b.SSE, b.Silent, b.Slow = *answer == "sse", *get == "stream", *slow
	defer b.Close()
	line := "ready"
	for i := range *addresses {
		at := *listen
		if i > 0 {
			at = "127.0.0.1:0"
		}
		addr, err := b.Listen(at)
		if err != nil {
			return err
		}
		line += " " + addr
	}
	if !*attached {
		stdin = nil
	}
	fmt.Fprintln(stdout, line)
	ctx, cancel := untilEnd(ctx, stdin)
	defer cancel()
	<-ctx.Done()
	return nil
}
