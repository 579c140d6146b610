// Command build builds the interpreter's module: guest.wasm.gz, and guest.txt with the
// digests of the module before it was compressed, and of what an edge makes of it before
// that is compiled, and the version of Go that made it. The same sources and the same Go give
// the same bytes on every machine.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/weir-edge/weir/wasm"
)

// largest is how many bytes the module may have unless told otherwise: every edge compiles it.
const largest = 6 << 20

func main() {
	log.SetFlags(0)
	out := flag.String("o", ".", "the directory to write to")
	source := flag.String("package", "./guest", "the package of the guest")
	tags := flag.String("tags", "", "build tags")
	most := flag.Int("most", largest, "how many bytes the module may have")
	flag.Parse()
	if err := build(*source, *tags, *out, *most); err != nil {
		log.Fatal(err)
	}
}

func build(source, tags, out string, most int) error {
	dir, err := os.MkdirTemp("", "weir-sandbox")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "guest.wasm")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-buildmode=c-shared", "-ldflags=-s -w -buildid=", "-tags="+tags, "-o", file, source)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=", "GOWASM=", "GOEXPERIMENT=", "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, said)
	}
	module, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if len(module) > most {
		return fmt.Errorf("the module has %d bytes: at most %d are allowed", len(module), most)
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression) // neither name nor time in its header
	if err != nil {
		return err
	}
	if _, err := z.Write(module); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	version, err := exec.Command("go", "env", "GOVERSION").Output()
	if err != nil {
		version = []byte(runtime.Version())
	}
	digest := fmt.Sprintf("%x", sha256.Sum256(module))
	prepared, err := wasm.PrepareInterpreter(module, digest)
	if err != nil {
		return err
	}
	about := fmt.Sprintf("sha256 %s\nprepared %x\ngo %s\n", digest, sha256.Sum256(prepared.Encode()), strings.TrimSpace(string(version)))
	if err := os.WriteFile(filepath.Join(out, "guest.wasm.gz"), packed.Bytes(), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "guest.txt"), []byte(about), 0o644)
}
