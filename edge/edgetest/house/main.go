// Command house measures the structure of the module that it is run in and
// holds it to the limits in limits.go.
//
//	go run ./edge/edgetest/house                      # the figures, and what is over its limit
//	go run ./edge/edgetest/house -arrows edge/serve   # one room's files, and its arrows up
//
// It exits with 1 when a limit is not kept. README.md, which it prints when it
// is asked for help, says what is counted, and how.
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

//go:embed README.md
var readme string

// errOver says that the tree is not within its limits.
var errOver = errors.New("over the limit")

func main() {
	switch err := command(os.Args[1:], os.Stdout, os.Stderr); {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
}

func command(args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("house", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, readme, "\nFlags:\n")
		f.PrintDefaults()
	}
	dir := f.String("C", ".", "a directory of the module to measure")
	room := f.String("arrows", "", "print the order of this package's files and every arrow up")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	h, err := measure(*dir, groups)
	if err != nil {
		return err
	}
	if *room != "" {
		return h.writeArrows(stdout, *room)
	}
	h.write(stdout)
	over := h.over(limits)
	for _, o := range over {
		fmt.Fprintln(stderr, "house:", o)
	}
	if len(over) > 0 {
		return errOver
	}
	return nil
}
