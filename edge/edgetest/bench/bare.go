package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"

	"github.com/valyala/fasthttp"
)

// newBare returns the floor: a proxy that hands each request on as it came,
// reads the whole answer and copies it back, and does nothing else.
func newBare(backend string) *fasthttp.Server {
	client := &fasthttp.HostClient{Addr: backend, MaxConns: 4096}
	return &fasthttp.Server{
		Handler: func(ctx *fasthttp.RequestCtx) {
			if err := client.Do(&ctx.Request, &ctx.Response); err != nil {
				ctx.Error(err.Error(), fasthttp.StatusBadGateway)
			}
		},
	}
}

func bareCommand(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("bench bare", flag.ContinueOnError)
	f.SetOutput(stderr)
	listen := f.String("listen", "127.0.0.1:0", "address to listen on")
	backend := f.String("backend", "", "address of the backend, HOST:PORT")
	attached := f.Bool("attached", false, "end when stdin does")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *backend == "" {
		return fmt.Errorf("bare: --backend is missing")
	}
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		return fmt.Errorf("bare: %w", err)
	}
	if !*attached {
		stdin = nil
	}
	return serveHelper(ctx, newBare(*backend), ln, stdin, stdout)
}

// serveHelper serves until ctx ends, or until stdin does when it is not nil. It
// says where it listens in one line on stdout, which is what a starter waits
// for.
func serveHelper(ctx context.Context, s *fasthttp.Server, ln net.Listener, stdin io.Reader, stdout io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if stdin != nil {
		go func() { // ends with stdin, or with the process
			_, _ = io.Copy(io.Discard, stdin)
			cancel()
		}()
	}
	defer context.AfterFunc(ctx, func() { ln.Close() })()

	fmt.Fprintf(stdout, "ready %s\n", ln.Addr())
	err := s.Serve(ln)
	if ctx.Err() != nil {
		return nil
	}
	return err
}
