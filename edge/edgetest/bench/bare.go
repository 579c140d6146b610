package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"

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
	if !*attached {
		stdin = nil
	}
	return serveHelper(ctx, newBare(*backend), *listen, stdin, stdout)
}

// serveHelper serves until ctx ends, or until stdin does when it is not nil. It
// says where it listens in one line on stdout, which is what a starter waits
// for.
func serveHelper(ctx context.Context, s *fasthttp.Server, listen string, stdin io.Reader, stdout io.Writer) error {
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	ctx, cancel := untilEnd(ctx, stdin)
	defer cancel()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	fmt.Fprintln(stdout, "ready", ln.Addr())
	if err = s.Serve(ln); ctx.Err() != nil {
		return nil
	}
	return err
}

// untilEnd is a context that ends with stdin, too, which it does when the process
// that started this one is gone. There may be none.
func untilEnd(ctx context.Context, stdin io.Reader) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if stdin != nil {
		go func() { // ends with stdin, or with the process
			_, _ = io.Copy(io.Discard, stdin)
			cancel()
		}()
	}
	return ctx, cancel
}

// newStatic returns the floor of what is answered from memory: it reads each
// request and answers with the same bytes.
func newStatic(text []byte) *fasthttp.Server {
	return &fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) {
		ctx.SetContentType("application/json")
		ctx.Response.SetBodyRaw(text)
	}}
}

func staticCommand(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("bench static", flag.ContinueOnError)
	f.SetOutput(stderr)
	listen := f.String("listen", "127.0.0.1:0", "address to listen on")
	file := f.String("file", "", "file of what every request is answered with, JSON")
	attached := f.Bool("attached", false, "end when stdin does")
	if err := f.Parse(args); err != nil {
		return err
	}
	text, err := os.ReadFile(*file)
	if err != nil {
		return fmt.Errorf("static: --file: %w", err)
	}
	if !*attached {
		stdin = nil
	}
	return serveHelper(ctx, newStatic(text), *listen, stdin, stdout)
}
