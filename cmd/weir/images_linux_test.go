package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/weir-edge/weir/edge/edgetest/engine"
	"github.com/weir-edge/weir/edge/edgetest/ociregistry"
	"github.com/weir-edge/weir/edge/edgetest/signer"
	"github.com/weir-edge/weir/edge/workload"
)

const (
	imageSigner = "release@example.com"
	imageIssuer = "https://login.example.com"
)

// pulled is a place whose engine gets images of a registry that lets nobody in without the
// user's login, and that signers of the test's own sign.
type pulled struct {
	*place
	engine   *engine.Engine
	registry *ociregistry.Registry
	signer   *signer.Authority
	boxed    string
}

func newPulled(t *testing.T) *pulled {
	t.Helper()
	e := engine.Start(t)
	p := &pulled{engine: e, registry: ociregistry.Start(t), signer: signer.New(t)}
	var err error
	if p.boxed, err = engine.Build(t.TempDir(), "edge/edgetest/boxed"); err != nil {
		t.Fatal(err)
	}
	e.Reach(t, p.registry.Port)
	p.place = newPlace(t)
	p.env = append(p.env, "WEIR_ENGINE=unix://"+e.Socket)
	p.write(".docker/config.json", p.registry.DockerConfig())
	p.write(".config/weir/trusted_root.json", string(p.signer.Roots()))
	return p
}

// write writes a file below the user's home.
func (p *pulled) write(file, text string) {
	p.t.Helper()
	path := filepath.Join(p.dir, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// push puts an image there that answers which one it is.
func (p *pulled) push(text, says string) name.Digest {
	p.t.Helper()
	archive, err := engine.Image(text, engine.Config{Entrypoint: []string{"/boxed"}, Cmd: []string{says}}, map[string]string{"/boxed": p.boxed}, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.registry.Push(text, archive)
}

func (p *pulled) identities(image string) string {
	return fmt.Sprintf("- image: %s/%s\n  identities:\n  - issuer: %s\n    subject: %s\n", p.registry.Host, image, imageIssuer, imageSigner)
}

// Each way in which an image can be signed, or not, in each of the modes: what the command
// says, how it ends, and whether the image runs.
func TestImageVerification(t *testing.T) {
	p := newPulled(t)
	key, pem := signer.Key(t)
	policy := "images:\n" + fmt.Sprintf("- image: %s/key\n  keys:\n  - |\n    %s\n", p.registry.Host, strings.ReplaceAll(strings.TrimSpace(pem), "\n", "\n    "))
	login := p.registry.Login()
	cases := []struct {
		image    string
		sign     func(of name.Digest)
		before   func()
		verified string
		words    string
	}{
		{image: "key", sign: func(of name.Digest) { p.signer.Sign(of, signer.Signing{Key: key, Tagged: true}, login) }, verified: "signed by key 1 of "},
		{image: "identity", sign: func(of name.Digest) {
			p.signer.Sign(of, signer.Signing{Identity: imageSigner, Issuer: imageIssuer}, login)
		}, verified: "signed by release@example.com (https://login.example.com)"},
		{image: "stranger", sign: func(of name.Digest) {
			p.signer.Sign(of, signer.Signing{Identity: "other@example.com", Issuer: imageIssuer}, login)
		}, words: "it is signed by other@example.com (https://login.example.com), and not as"},
		{image: "another", sign: func(of name.Digest) {
			p.signer.Sign(of, signer.Signing{Identity: imageSigner, Issuer: imageIssuer, Of: "sha256:" + strings.Repeat("ab", 32)}, login)
		}, words: "what is attached to it signs another image, sha256:abababababab"},
		{image: "expired", sign: func(of name.Digest) {
			p.signer.Sign(of, signer.Signing{Identity: imageSigner, Issuer: imageIssuer, Late: 30 * time.Minute}, login)
		}, words: "its signature does not hold: its certificate was valid until "},
		{image: "unlogged", sign: func(of name.Digest) {
			p.signer.Sign(of, signer.Signing{Identity: imageSigner, Issuer: imageIssuer, Unlogged: true, Stamped: true}, login)
		}, words: "its signature is in no transparency log"},
		{image: "roots", sign: func(of name.Digest) {
			p.signer.Sign(of, signer.Signing{Identity: imageSigner, Issuer: imageIssuer}, login)
		}, before: func() { p.write(".config/weir/trusted_root.json", string(signer.New(t).Roots())) }, words: "its signature does not hold"},
		{image: "away", sign: func(of name.Digest) {
			p.signer.Sign(of, signer.Signing{Identity: imageSigner, Issuer: imageIssuer}, login)
		}, before: p.registry.Stop, words: "its registry cannot be asked"},
	}
	for _, c := range cases {
		if c.sign(p.push(c.image+":1", "is-"+c.image)); c.image != "key" {
			policy += p.identities(c.image)
		}
	}
	p.write(".config/weir/image-policy.yaml", policy)
	for _, c := range cases {
		// 1. Disabled: it runs, and status says that nobody looked.
		text := p.registry.Named(c.image + ":1")
		said := p.ask("run", text, "--name", c.image, "--image-verification", "disabled", "--permission-profile", "none")
		if got := p.says(c.image, "args"); got != "is-"+c.image {
			t.Errorf("%s, disabled: %s runs", c.image, got)
		}
		if status := p.ask("status", c.image); strings.Contains(said, "warning") || !strings.Contains(status, "not verified: --image-verification disabled") {
			t.Errorf("%s, disabled: %s\n%s", c.image, said, status)
		}
		if c.before != nil {
			c.before()
		}
		// 2. Warn: it runs, by digest, and what is not certain is said, and stands in the status.
		said = p.ask("run", text, "--name", c.image, "--replace", "--permission-profile", "none")
		status := p.ask("status", c.image)
		if got := p.says(c.image, "args"); got != "is-"+c.image {
			t.Errorf("%s, warn: %s runs", c.image, got)
		}
		if c.verified != "" && (strings.Contains(said, "warning") || !strings.Contains(status, c.verified)) || c.verified == "" && (!strings.Contains(said, "warning: image "+text+" is not verified: "+c.words) || !strings.Contains(status, c.words)) {
			t.Errorf("%s, warn: %s\n%s", c.image, said, status)
		}
		if !strings.Contains(status, p.registry.Named(c.image)+"@sha256:") {
			t.Errorf("%s, warn: the status does not name the digest: %s", c.image, status)
		}
		p.ask("rm", c.image)
		// 3. Enabled: what is certain runs, and nothing else.
		before := len(p.engine.Containers(t))
		said, code := p.try("run", text, "--name", c.image, "--image-verification", "enabled", "--permission-profile", "none")
		switch {
		case c.verified != "":
			if status := p.ask("status", c.image); code != 0 || !strings.Contains(status, c.verified) {
				t.Errorf("%s, enabled: exit %d: %s\n%s", c.image, code, said, status)
			}
			p.ask("rm", c.image)
		case code != 9 || !strings.Contains(said, "image "+text+" is not verified: "+c.words):
			t.Errorf("%s, enabled: exit %d: %s", c.image, code, said)
		}
		if left := len(p.engine.Containers(t)); left > before {
			t.Errorf("%s, enabled: %d containers", c.image, left)
		}
	}
	p.hides(p.registry.Password)
}

// hides looks for a text in all that Weir has written.
func (p *pulled) hides(secret string) {
	p.t.Helper()
	err := filepath.Walk(p.dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || !info.Mode().IsRegular() || strings.HasSuffix(path, ".docker/config.json") || info.Size() > 8<<20 {
			return nil
		}
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), secret) {
			p.t.Errorf("%s has the password of the registry", path)
		}
		return nil
	})
	if err != nil {
		p.t.Error(err)
	}
}

// What was verified is what runs: a workload that is kept, and whose image somebody changes at
// the registry and in the engine, is stopped by the rule at its next start, and says so.
func TestImageStopped(t *testing.T) {
	p := newPulled(t)
	p.write(".config/weir/image-policy.yaml", "images:\n"+p.identities("*"))
	login := p.registry.Login()
	good := p.push("tool:latest", "good")
	p.signer.Sign(good, signer.Signing{Identity: imageSigner, Issuer: imageIssuer}, login)
	p.ask("run", p.registry.Named("tool"), "--image-verification", "enabled", "--permission-profile", "none")
	if got := p.says("tool", "args"); got != "good" {
		t.Errorf("%s runs", got)
	}
	// 1. The tag moves to what nobody has signed: what runs is as it was, also in new processes.
	evil := p.push("tool:latest", "evil")
	if got := p.says("tool", "args"); got != "good" {
		t.Errorf("%s runs", got)
	}
	// 2. At a start the registry is asked anew.
	p.ask("stop", "tool")
	said, code := p.try("start", "tool")
	if code != 9 || !strings.Contains(said, "no signature of sha256:") {
		t.Errorf("exit %d: %s", code, said)
	}
	time.Sleep(1500 * time.Millisecond) // the manager has looked at it once more
	if s := p.status("tool"); s.Status != workload.PolicyStopped || !strings.Contains(s.StatusContext, "is not verified") {
		t.Errorf("%+v", s)
	}
	if left := p.engine.Containers(t); len(left) > 0 {
		t.Errorf("containers: %v", left)
	}
	// 3. Who made it signs it.
	p.signer.Sign(evil, signer.Signing{Identity: imageSigner, Issuer: imageIssuer}, login)
	p.ask("start", "tool")
	if got := p.says("tool", "args"); got != "evil" {
		t.Errorf("%s runs", got)
	}
	// 4. An image that is nowhere is no refusal.
	said, code = p.try("run", p.registry.Named("nothing:1"), "--image-verification", "enabled", "--permission-profile", "none")
	if code != 43 || !strings.Contains(said, "cannot be had") {
		t.Errorf("exit %d: %s", code, said)
	}
	// 5. Nor is one without a login, which the error names.
	p.write(".docker/config.json", "{}")
	said, code = p.try("run", p.registry.Named("tool:1"), "--name", "anew", "--image-verification", "enabled", "--permission-profile", "none")
	if code != 43 || !strings.Contains(said, "docker login "+p.registry.Host) {
		t.Errorf("exit %d: %s", code, said)
	}
}

// What the entry of a registry says of its signer holds for its image, and stands in the
// manifest: what the registry says later changes nothing. A rule of the user's wins over it.
func TestImageOfEntry(t *testing.T) {
	p := newPulled(t)
	login := p.registry.Login()
	for _, name := range []string{"good", "bad"} {
		who := map[string]string{"good": imageSigner, "bad": "other@example.com"}[name]
		p.signer.Sign(p.push(name+":1", "is-"+name), signer.Signing{Identity: who, Issuer: imageIssuer}, login)
	}
	entry := func(name, signer string) string {
		image := p.registry.Named(name + ":1")
		return fmt.Sprintf(`{"name":"io.example/%s","description":"d","version":"1.0.0","packages":[{"registryType":"oci","identifier":%q,"transport":{"type":"stdio"}}],
			"_meta":{"io.modelcontextprotocol.registry/publisher-provided":{"io.github.stacklok":{%q:{"provenance":{"signer_identity":%q,"cert_issuer":%q}}}}}}`, name, image, image, signer, imageIssuer)
	}
	p.write("servers/good.json", entry("good", imageSigner))
	p.write("servers/bad.json", entry("bad", imageSigner))
	p.ask("registry", "set", filepath.Join(p.dir, "servers"))
	if said, code := p.try("run", "io.example/good"); code != 9 || !strings.Contains(said, "its registry is not of the public internet") {
		t.Errorf("exit %d: %s", code, said)
	}
	p.ask("registry", "set", "--allow-private", filepath.Join(p.dir, "servers"))

	p.ask("run", "io.example/good", "--name", "good", "--image-verification", "enabled", "--permission-profile", "none")
	if status := p.ask("status", "good"); p.says("good", "args") != "is-good" || !strings.Contains(status, "signed by release@example.com (https://login.example.com)") {
		t.Error(status)
	}
	said, code := p.try("run", "io.example/bad", "--name", "bad", "--image-verification", "enabled", "--permission-profile", "none")
	if code != 9 || !strings.Contains(said, "it is signed by other@example.com (https://login.example.com), and not as the entry of the registry says: the signer is to be release@example.com") {
		t.Errorf("exit %d: %s", code, said)
	}
	exported := p.ask("export", "good")
	if !strings.Contains(exported, "signer:\n        identity: release@example.com\n        issuer: https://login.example.com") {
		t.Error(exported)
	}
	p.write("servers/good.json", entry("good", "somebody-else@example.com"))
	p.ask("stop", "good")
	p.ask("start", "good")

	p.write(".config/weir/image-policy.yaml", "images:\n"+strings.ReplaceAll(p.identities("*"), imageSigner, "third@example.com"))
	p.ask("stop", "good")
	if said, code := p.try("start", "good"); code != 9 || !strings.Contains(said, "the signer is to be third@example.com") {
		t.Errorf("exit %d: %s", code, said)
	}
}

// The base of a build is an image like any other: who made it is verified, and what was verified
// is what is built on. What came of a build is known by its digest, and nothing else is.
func TestImageOfBuild(t *testing.T) {
	p := newPulled(t)
	packager, err := engine.Build(t.TempDir(), "edge/edgetest/packager")
	if err != nil {
		t.Fatal(err)
	}
	push := func(text, says string) name.Digest {
		archive, err := engine.Image(text, engine.Config{Env: []string{"PATH=/usr/bin", "MADE=" + says}}, map[string]string{"/usr/bin/npm": packager, "/usr/bin/node": p.boxed}, map[string]string{"/tmp/there": ""})
		if err != nil {
			t.Fatal(err)
		}
		return p.registry.Push(text, archive)
	}
	login := p.registry.Login()
	p.write(".config/weir/image-policy.yaml", "images:\n"+p.identities("*"))
	p.signer.Sign(push("base:1", "good"), signer.Signing{Identity: imageSigner, Issuer: imageIssuer}, login)
	push("plain:1", "plain")
	base, plain := p.registry.Named("base:1"), p.registry.Named("plain:1")
	const server = "npx://scripted@1.0.0"
	run := func(base string, more ...string) (string, int) {
		return p.try(append([]string{"run", server, "--name", "tool", "--runtime-image", base, "--permission-profile", "none"}, more...)...)
	}
	made := func(image string) string { return p.engine.Raw(t, "/images/"+image+"/json") }

	// 1. One that nobody has signed.
	for _, args := range [][]string{{"run", server, "--permission-profile", "none"}, {"build", server}} {
		said, code := p.try(append(args, "--runtime-image", plain, "--image-verification", "enabled")...)
		if code != 9 || !strings.Contains(said, "image "+plain+" is not verified: no signature of sha256:") {
			t.Errorf("%q: exit %d: %s", args, code, said)
		}
	}
	if images := p.engine.Images(t); len(images) > 0 || len(p.engine.Containers(t)) > 0 {
		t.Errorf("of what was refused there are %q", images)
	}
	said, code := run(plain)
	if status := p.ask("status", "tool"); code != 0 || !strings.Contains(said, "warning: image "+plain+" is not verified: no signature") || !strings.Contains(status, "no signature of sha256:") {
		t.Errorf("warn: exit %d: %s\n%s", code, said, status)
	}
	p.ask("rm", "tool", "--keep-image")
	if said, code = run(plain, "--image-verification", "disabled"); code != 0 || strings.Contains(said, "warning") || !strings.Contains(p.ask("status", "tool"), "not verified: --image-verification disabled") {
		t.Errorf("disabled: exit %d: %s", code, said)
	}
	p.ask("rm", "tool", "--keep-image")
	if said, code = run(plain, "--image-verification", "enabled"); code != 9 {
		t.Errorf("what was built before with a warning runs: exit %d: %s", code, said)
	}

	// 2. One that is signed, also when its tag moves in the engine.
	built := strings.TrimSpace(p.ask("build", server, "--runtime-image", base, "--image-verification", "enabled"))
	built = built[strings.LastIndexByte(built, '\n')+1:]
	if said, code = run(base, "--image-verification", "enabled"); code != 0 || strings.Contains(said, "npm install") || !strings.Contains(p.ask("status", "tool"), "signed by release@example.com") {
		t.Errorf("enabled: exit %d: %s", code, said)
	}
	p.ask("rm", "tool", "--keep-image")
	p.engine.Load(t, base, engine.Config{Env: []string{"PATH=/usr/bin", "MADE=evil"}}, map[string]string{"/usr/bin/npm": packager, "/usr/bin/node": p.boxed}, nil)
	if said, code = run(base, "--image-verification", "enabled"); code == 0 {
		t.Errorf("a base that was made on this machine counts as the one that is signed: %s", said)
	}

	// 3. What was built is known by its digest, by whatever name.
	if !strings.Contains(made(built), "MADE=good") {
		t.Errorf("%s is built on %s", built, made(built))
	}
	p.engine.Do(t, "POST", "/images/"+built+"/tag?repo=mine&tag=1")
	if said, code = p.try("run", "mine:1", "--name", "mine", "--image-verification", "enabled", "--permission-profile", "none"); code != 0 || !strings.Contains(p.ask("status", "mine"), "built on this machine, on "+base+" signed by") {
		t.Errorf("exit %d: %s", code, said)
	}

	// 4. What somebody else put under its tag, with its labels, is not.
	p.signer.Sign(push("base:2", "good"), signer.Signing{Identity: imageSigner, Issuer: imageIssuer}, login)
	base = p.registry.Named("base:2")
	built = strings.TrimSpace(p.ask("build", server, "--runtime-image", base, "--image-verification", "enabled"))
	built = built[strings.LastIndexByte(built, '\n')+1:]
	p.engine.Load(t, built, engine.Config{Env: []string{"MADE=evil"}, Entrypoint: []string{"/boxed"}, Labels: map[string]string{"weir.dev/build": server}}, map[string]string{"/boxed": p.boxed}, nil)
	if said, code = run(base, "--image-verification", "enabled"); code != 0 || !strings.Contains(said, "npm install") || !strings.Contains(made(built), "MADE=good") {
		t.Errorf("exit %d: %s", code, said)
	}
	p.ask("rm", "tool", "--keep-image")
	p.engine.Load(t, built, engine.Config{Env: []string{"MADE=evil"}, Entrypoint: []string{"/boxed"}, Labels: map[string]string{"weir.dev/build": server}}, map[string]string{"/boxed": p.boxed}, nil)
	if said, code = run(base); code != 0 || !strings.Contains(said, "warning: image "+built+" is not known to be of a build of yours") {
		t.Errorf("exit %d: %s", code, said)
	}
	p.ask("rm", "tool", "--keep-image")

	// 5. Without its registry what is there is used, and a note says so.
	p.ask("build", server, "--runtime-image", base, "--rebuild")
	p.registry.Stop()
	if said, code = run(base); code != 0 || strings.Contains(said, "npm install") || !strings.Contains(said, "its registry cannot be asked") {
		t.Errorf("exit %d: %s", code, said)
	}
}

// An image that was fetched by its digest is there by its name, too, while its registry is away.
func TestImageWithoutRegistry(t *testing.T) {
	p := newPulled(t)
	p.write(".config/weir/image-policy.yaml", "images:\n"+p.identities("*"))
	p.signer.Sign(p.push("tool:1", "good"), signer.Signing{Identity: imageSigner, Issuer: imageIssuer}, p.registry.Login())
	// Whoever waits for it is told what for.
	if said := p.ask("run", p.registry.Named("tool:1"), "--name", "tool", "--permission-profile", "none"); !strings.Contains(said, "pulling "+p.registry.Named("tool:1")+": layers that are there: 1") {
		t.Errorf("it says\n%s", said)
	}
	p.ask("stop", "tool")
	p.registry.Stop()
	if said, code := p.try("start", "tool"); code != 0 || !strings.Contains(said, "its registry cannot be asked") {
		t.Errorf("exit %d: %s", code, said)
	}
}
