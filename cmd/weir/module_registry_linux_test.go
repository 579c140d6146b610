package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest/engine"
	"github.com/weir-edge/weir/edge/edgetest/ociregistry"
	"github.com/weir-edge/weir/edge/edgetest/signer"
)

// Modules of registries are found, verified and kept as images are: a tag that moves, a
// registry that is away, and what is no module each have an answer.
func TestModuleOfRegistry(t *testing.T) {
	p := &pulled{registry: ociregistry.Start(t), signer: signer.New(t), place: newPlace(t)}
	p.env = append(p.env, "WEIR_ENGINE=unix:///nowhere/engine.sock") // none is asked
	p.write(".docker/config.json", p.registry.DockerConfig())
	p.write(".config/weir/trusted_root.json", string(p.signer.Roots()))
	dir := t.TempDir()
	p.ask("plugin", "new", "--server", filepath.Join(dir, "calculator"))
	p.ask("plugin", "build", "--server", filepath.Join(dir, "calculator"))
	module, err := os.ReadFile(filepath.Join(dir, "calculator", "build", "calculator.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	changed := append(module[:len(module):len(module)], "\x00\x05\x04evil"...) // a section that nobody reads
	adds := func(name string) {
		t.Helper()
		if got := p.says(name, "add", "a:=2", "b:=3.5"); got != "5.5" {
			t.Errorf("%s: 2 and 3.5 are %s", name, got)
		}
	}

	// 1. By a tag: it runs, and that nobody looked who made it is said.
	good := p.registry.PushModule("tools/calculator:1", module)
	text := "wasm://" + p.registry.Named("tools/calculator:1")
	said := p.ask("run", text, "--wait", "5m") // the module is compiled, which takes long under the race detector
	adds("calculator")
	status := p.ask("status", "calculator")
	if !strings.Contains(said, "no rule says who has to sign "+p.registry.Named("tools/calculator")) || !strings.Contains(status, p.registry.Named("tools/calculator")+"@"+good.DigestStr()) {
		t.Errorf("run: %s\nstatus: %s", said, status)
	}
	if s := p.status("calculator"); s.Sandbox != "wasm" || s.Package != p.registry.Named("tools/calculator:1") {
		t.Errorf("%+v", s)
	}

	// 2. Verified: what is not signed is refused, what is runs, and what the tag moves to does not.
	run := []string{"run", text, "--name", "sure", "--image-verification", "enabled"}
	if said, code := p.try(run...); code != 9 || !strings.Contains(said, "is not verified") {
		t.Errorf("without a rule: exit %d: %s", code, said)
	}
	p.write(".config/weir/image-policy.yaml", "images:\n"+p.identities("tools/*"))
	if said, code := p.try(run...); code != 9 || !strings.Contains(said, "no signature of "+good.DigestStr()[:19]) {
		t.Errorf("unsigned: exit %d: %s", code, said)
	}
	p.signer.Sign(good, signer.Signing{Identity: imageSigner, Issuer: imageIssuer}, p.registry.Login())
	p.ask(run...)
	adds("sure")
	if status := p.ask("status", "sure"); !strings.Contains(status, "signed by "+imageSigner) {
		t.Errorf("status: %s", status)
	}
	evil := p.registry.PushModule("tools/calculator:1", changed)
	p.ask("run", text, "--name", "moved") // by what is kept under the name, as with images
	if status := p.ask("status", "moved"); !strings.Contains(status, good.DigestStr()) {
		t.Errorf("after the tag moved: %s", status)
	}
	if said, code := p.try("run", "wasm://"+p.registry.Named("tools/calculator@"+evil.DigestStr()), "--name", "evil", "--image-verification", "enabled"); code != 9 || !strings.Contains(said, "no signature of "+evil.DigestStr()[:19]) {
		t.Errorf("what the tag moved to: exit %d: %s", code, said)
	}

	// 3. What is no module, or is not there.
	boxed, err := engine.Build(t.TempDir(), "edge/edgetest/boxed")
	if err != nil {
		t.Fatal(err)
	}
	p.boxed = boxed
	p.push("container:1", "x")
	for name, want := range map[string]struct {
		code  int
		words string
	}{
		"container:1": {9, "its configuration is of the type"},
		"nothing:1":   {43, "cannot be had"},
	} {
		if said, code := p.try("run", "wasm://"+p.registry.Named(name), "--name", "wrong"); code != want.code || !strings.Contains(said, want.words) {
			t.Errorf("%s: exit %d: %s", name, code, said)
		}
	}

	// 4. The registry is away: what was fetched is there.
	p.registry.Stop()
	p.ask("stop", "calculator")
	p.ask("start", "calculator")
	adds("calculator")
	p.hides(p.registry.Password)
}
