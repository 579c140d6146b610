package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/weir-edge/weir/edge/edgetest/peers"
)

// clientCommand is this program as the suite starts it: as the client under
// test, which is the edge and a client before it.
const clientCommand = "client-under-test"

// clients measures the scenarios for clients: the suite is the server, and what
// it judges is what the client sends to it, or the edge on the client's behalf.
// Those about authorization are for authorized.
func (h *harness) clients(ctx context.Context, r *run) error {
	required, err := h.requirements(r.cell.set)
	if err != nil {
		return err
	}
	var scenarios []scenario
	for _, s := range required.client {
		if !isAuth(s) {
			scenarios = append(scenarios, s)
		}
	}
	if r.scenarios, err = h.pick(scenarios); err != nil {
		return err
	}
	driver, err := h.shop.Program(ctx, peers.GoClientPackage)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	command := fmt.Sprintf("'%s' %s --driver '%s'", self, clientCommand, driver)
	for _, leg := range []struct {
		name    string
		command string
		out     *results
	}{
		{"direct", command, &r.direct},
		{"edge", fmt.Sprintf("%s --edge '%s' --dir '%s'", command, h.weir, h.dir), &r.edge},
	} {
		if leg.name == "edge" && h.weir == "" {
			continue
		}
		dir := filepath.Join(h.output, r.cell.set+"-client-"+leg.name)
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		if *leg.out, err = h.suite.clients(ctx, r.cell.set, leg.command, dir, r.scenarios); err != nil {
			return err
		}
	}
	return nil
}

// beClient is the client under test. Its last argument is the URL of the
// suite's server; the environment says which scenario is on, at which revision.
func beClient(ctx context.Context, args []string, stderr io.Writer) (err error) {
	var driver, weir, dir string
	f := flag.NewFlagSet(clientCommand, flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&driver, "driver", "", "program of the client")
	f.StringVar(&weir, "edge", "", "program of the edge; empty for none")
	f.StringVar(&dir, "dir", "", "folder for the edge's configuration")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 1 {
		return fmt.Errorf("%s: one URL is wanted", clientCommand)
	}
	url := f.Arg(0)
	if weir != "" {
		var edge *peers.Process
		if edge, url, err = peers.StartEdge(ctx, weir, dir, url, "streamable-http"); err != nil {
			return err
		}
		defer func() {
			err = errors.Join(err, edge.Stop())
			fmt.Fprintln(stderr, edge.Said())
		}()
	}
	// The client of the go-sdk speaks the newest revision that its server has,
	// and the edge has them all: the older scenarios need a client that keeps to
	// theirs. And it ends request-metadata when it has connected, which an edge
	// allows before it has spoken to its backend.
	name, version := os.Getenv("MCP_CONFORMANCE_SCENARIO"), os.Getenv("MCP_CONFORMANCE_PROTOCOL_VERSION")
	if version == legacySet || name == "request-metadata" {
		return drive(ctx, url, version, name)
	}
	out, err := peers.Run(peers.Command(ctx, driver, url))
	_, writeErr := stderr.Write(out)
	return errors.Join(err, writeErr)
}
