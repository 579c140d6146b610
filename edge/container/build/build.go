// Package build makes images of packages: of npm (npx://), of PyPI (uvx://), of Go modules and
// of directories with one (go://). A build is commands in a container (edge/container.Builder),
// whose result is one layer on an image that is there; there is no Dockerfile, and nothing is
// asked of the engine that the older ones lack.
//
// The story of a build is Builds.Build; what is run for a scheme is in recipe.go, what becomes
// the layer in spool.go, and where packages come from in index.go.
package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/container"
	"github.com/weir-edge/weir/edge/runner"
	"github.com/weir-edge/weir/edge/sandbox"
)

// Times of builds.
const (
	buildWithin = 15 * time.Minute
	goneWithin  = 20 * time.Second // for an image that was made on the way
)

// recipeVersion changes when the same request gives another image.
const recipeVersion = "1"

// Builds makes images with one engine. It is safe for concurrent use.
type Builds struct {
	Machine *container.Machine
	Spool   string                           // a directory of this user's alone, for what is under way; "" for the usual one
	Home    string                           // of the user, for the settings of indexes; "" for none
	Lookup  func(name string) (string, bool) // os.LookupEnv
	Log     *slog.Logger

	// Login is the user's credential for the registry of a base, as engines take it; nil for
	// none.
	Login func(ctx context.Context, image string) (edge.Secret, error)

	// Choose says which image a base is, and refuses one by who made it; anew says that what its
	// registry has now is meant. nil takes each base by its name.
	Choose func(ctx context.Context, e *container.Engine, name string, anew bool) (*Chosen, error)

	mu    sync.Mutex
	turns map[string]*turn // by tag: one build at a time
}

// Request says what is to be built.
type Request struct {
	Source       *runner.Source
	RuntimeImage string            // in place of the usual base; of Go that of the toolchain
	AddPackages  []string          // of the base's own package manager
	CA           []byte            // PEM, that the build trusts besides the usual authorities; nil for none
	Secrets      map[string][]byte // files of the build alone, by their names below container.SecretsDir
	Tag          string            // that the image gets besides its own; "" for none
	Pull         bool              // the bases are looked for anew
	Rebuild      bool              // also where it is there already

	// Proven says that nothing but an image of a build that this user made will do: one that is
	// there under the tag, and is none, is built anew.
	Proven bool

	// Told is called with each step as it begins and as it ends; nil for nobody.
	Told func(Step)
}

// Chosen is an image that a build is made on.
type Chosen struct {
	Image    string   // that is meant: by digest, where one is known
	Pull     bool     // the engine has to get it, also where it has one of that name
	Verified string   // who made it; "" where that is not certain
	Notes    []string // why it is not certain
}

// Step is one of a build.
type Step struct {
	Text string
	Took time.Duration
	Done bool // it has ended; else it begins
}

// Result is an image that is there.
type Result struct {
	Tag   string // weir/SCHEME-NAME:16HEX
	ID    string
	Built bool     // now, and not before
	Notes []string // for people, a line each

	Verified string   // who made what it is built on; "" where that is not certain
	Doubts   []string // why it is not certain
}

// Error says why a build failed.
type Error struct {
	Step string   // that failed
	Why  string   // in one line
	Said []string // the last lines of what was printed, without the secrets of the build
	Next string   // what to do
}

func (e *Error) Error() string { return e.Step + ": " + e.Why }

// maxRequest bounds parts of a request.
const (
	maxSecrets   = 16
	maxSecret    = 64 << 10
	maxSaidLines = 20 // that an error shows of what was printed

	maxComplaints = 15 // of them, of standard error
)

// IsSecretName reports whether a secret of a build may be called so.
func IsSecretName(name string) bool { return len(name) <= 64 && secretName.MatchString(name) }

// secretName is what a secret of a build may be called by.
var secretName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// check refuses what makes no build. The parts of it that stand in manifests were judged there.
func (r *Request) check() error {
	refuse := func(next, format string, args ...any) error {
		return &container.Error{Kind: container.Refused, What: fmt.Sprintf(format, args...), Next: next}
	}
	if r.Source == nil {
		return refuse("write npx://, uvx:// or go://", "there is nothing to build")
	}
	if again, err := runner.ParseSource(r.Source.String()); err != nil || *again != *r.Source {
		return refuse("write npx://PACKAGE, uvx://PACKAGE, go://MODULE or go://./DIR", "%q is nothing to build", r.Source.String())
	}
	if err := runner.CheckBase(r.RuntimeImage, r.AddPackages); err != nil {
		return refuse("correct it", "%v", err)
	}
	if err := runner.CheckCA(r.CA); err != nil {
		return refuse("name a file with certificates of authorities in PEM", "%v", err)
	}
	if len(r.Secrets) > maxSecrets {
		return refuse("leave some out", "a build has %d secrets at most", maxSecrets)
	}
	for name, data := range r.Secrets {
		if !IsSecretName(name) {
			return refuse("write NAME=FILE with a name of letters, digits, ., _ and -", "%.100q is no name of a build's secret", name)
		}
		if len(data) > maxSecret {
			return refuse("give a smaller file", "the secret %s has more than %d bytes", name, maxSecret)
		}
	}
	return nil
}

// Build returns the image of a request: the one that is there, or one that is made. Its errors
// are *Error, *container.Error, or about this machine.
func (b *Builds) Build(ctx context.Context, r Request) (*Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, buildWithin, fmt.Errorf("not done within %s", buildWithin))
	defer cancel()
	if err := r.check(); err != nil {
		return nil, err
	}
	j := &job{Builds: b, Request: r, recipe: recipes()[r.Source.Scheme]}
	j.index = b.readIndex(r.Source.Scheme)
	j.notes = append(j.notes, j.index.notes...)
	defer j.close()

	// 1. Its tag, by all that goes in.
	var err error
	if r.Source.Dir != "" {
		if j.tree, err = readTree(r.Source.Dir, b.Spool); err != nil {
			return nil, err
		}
	}
	if j.engine, err = b.Machine.Engine(ctx); err != nil {
		return nil, err
	}
	if err = j.choose(ctx); err != nil {
		return nil, err
	}
	tag := j.tag()
	free, err := b.turn(ctx, tag)
	if err != nil {
		return nil, err
	}
	defer free()

	// 2. Whether it is there.
	there, err := j.engine.Base(ctx, tag)
	if known := new(container.Error); errors.As(err, &known) && known.Kind == container.NoImage {
		there, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	if there != nil && there.Label(container.LabelBuilt) == "" {
		return nil, &container.Error{Kind: container.Refused, What: "the container engine has an image " + tag + " that was not built here", Next: "remove it, or give it another name"}
	}
	if there != nil && r.Proven && Own(b.Machine.State, there.ID) == nil {
		there = nil
	}
	if there != nil && !r.Rebuild && !r.Pull && (r.Source.Exact() || r.Source.Dir != "") {
		return j.result(ctx, tag, false)
	}

	// 3. Else it is made. What is there already is better than nothing.
	id := ""
	if there != nil {
		id = there.ID
	}
	err = j.make(ctx, tag, there)
	if failed := new(Error); there != nil && !r.Rebuild && errors.As(err, &failed) && ctx.Err() == nil {
		j.notes = append(j.notes, fmt.Sprintf("%s cannot be built anew, and what was built before is used: %v", r.Source, failed))
		return j.result(ctx, tag, false)
	}
	if err != nil {
		return nil, err
	}
	done, err := j.result(ctx, tag, true)
	if err == nil && done.ID == id {
		done.Built = false // the same came of it
	}
	return done, err
}

// turn is what the builds of one tag wait for.
type turn struct {
	free chan struct{} // has one while a build is under way
	of   int           // builds that have it or wait for it
}

// turn waits until nobody else builds a tag.
func (b *Builds) turn(ctx context.Context, tag string) (free func(), err error) {
	b.mu.Lock()
	if b.turns == nil {
		b.turns = map[string]*turn{}
	}
	t := b.turns[tag]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		b.turns[tag] = t
	}
	t.of++
	b.mu.Unlock()
	leave := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if t.of--; t.of == 0 {
			delete(b.turns, tag)
		}
	}
	select {
	case t.free <- struct{}{}:
		return func() {
			<-t.free
			leave()
		}, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}

// job is a build under way.
type job struct {
	*Builds
	Request
	recipe recipe
	index  index
	tree   *tree // of a directory; nil for none
	engine *container.Engine
	chosen [2]*Chosen // the bases, as bases has them
	notes  []string

	builder *container.Builder
	base    *container.Base // that the program runs in
	app     *spool
	made    []string // images without a name that are not needed afterwards
}

// close removes all that a build has besides its image.
func (j *job) close() {
	if j.builder != nil {
		j.builder.Close()
	}
	if j.tree != nil {
		j.tree.close()
	}
	if j.app != nil {
		j.app.close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), goneWithin)
	defer cancel()
	for _, id := range j.made {
		if err := j.engine.Discard(ctx, id); err != nil {
			j.Log.Warn("an image that a build made on the way is not removed", "image", id, "error", err)
		}
	}
}

// tag is the name of the image. What decides only whether a build works, and not what comes of
// it (authorities, secrets, proxies), is not in it.
func (j *job) tag() string {
	digest := ""
	if j.tree != nil {
		digest = j.tree.digest
	}
	text, err := json.Marshal([]any{recipeVersion, j.Source.Scheme, j.Source.Package, j.Source.Version, digest, j.meant(), slices.Sorted(slices.Values(j.AddPackages)), j.index.decides()})
	if err != nil {
		panic(err) // it is text
	}
	sum := sha256.Sum256(text)
	return "weir/" + j.Source.Scheme + "-" + runner.PlainName(j.Source.Name()) + ":" + hex.EncodeToString(sum[:8])
}

// SourceKey is what images that are built of a source are known by (container.LabelSource).
func SourceKey(s *runner.Source) string {
	sum := sha256.Sum256([]byte(s.String()))
	return hex.EncodeToString(sum[:16])
}

// bases are the images that it is built in and runs in, as they are named.
func (j *job) bases() [2]string {
	builder, runtime := j.recipe.builder, j.recipe.runtime
	if j.RuntimeImage != "" {
		builder = j.RuntimeImage
	}
	if runtime == "" {
		runtime = builder
	}
	return [2]string{builder, runtime}
}

// meant are the bases as they were chosen: by digest, where one is known.
func (j *job) meant() [2]string {
	names := j.bases()
	for i, c := range j.chosen {
		if c != nil {
			names[i] = c.Image
		}
	}
	return names
}

// choose finds out what the bases are, and who made them.
func (j *job) choose(ctx context.Context) (err error) {
	if j.Choose == nil {
		return nil
	}
	names := j.bases()
	for i, name := range names {
		if i == 1 && name == names[0] {
			j.chosen[1] = j.chosen[0]
		} else if j.chosen[i], err = j.Choose(ctx, j.engine, name, j.Pull); err != nil {
			return err
		}
	}
	return nil
}

// vouched says who made the bases, and what is not certain of that.
func (j *job) vouched() (verified string, doubts []string) {
	var known []string
	for i, c := range j.chosen {
		if c == nil || i == 1 && c == j.chosen[0] {
			continue
		}
		if doubts = append(doubts, c.Notes...); c.Verified != "" {
			known = append(known, j.bases()[i]+" "+c.Verified)
		} else {
			known = append(known, "")
		}
	}
	if len(known) > 0 && !slices.Contains(known, "") {
		verified = "built on this machine, on " + strings.Join(known, " and ")
	}
	return verified, doubts
}

func (j *job) result(ctx context.Context, tag string, built bool) (*Result, error) {
	is, err := j.engine.Base(ctx, tag)
	if err != nil {
		return nil, err
	}
	verified, doubts := j.vouched()
	switch {
	case built || Own(j.Machine.State, is.ID) != nil:
		if err := keep(j.Machine.State, is.ID, verified); err != nil {
			return nil, err
		}
	case j.Choose != nil:
		verified, doubts = "", append(doubts, "image "+tag+" is not known to be of a build of yours: weir build --rebuild makes it anew")
	}
	if j.Tag != "" {
		if err := j.engine.Tag(ctx, tag, j.Tag); err != nil {
			return nil, err
		}
	}
	return &Result{Tag: tag, ID: is.ID, Built: built, Notes: j.notes, Verified: verified, Doubts: doubts}, nil
}

// step does a part of a build, and tells of it.
func (j *job) step(text string, do func() error) error {
	if j.Told != nil {
		j.Told(Step{Text: text})
	}
	began := time.Now()
	err := do()
	if j.Told != nil && err == nil {
		j.Told(Step{Text: text, Took: time.Since(began), Done: true})
	}
	known, own := new(container.Error), new(Error)
	switch {
	case err == nil || errors.As(err, &known) || errors.As(err, &own):
		return err
	}
	return &Error{Step: text, Why: err.Error()}
}

// run runs a command in the builder, as a step.
func (j *job) run(ctx context.Context, text string, c container.Command) error {
	return j.runIn(ctx, j.builder, text, c)
}

func (j *job) runIn(ctx context.Context, in *container.Builder, text string, c container.Command) error {
	return j.step(text, func() error {
		said, complaints := newTail(maxSaidLines), newTail(maxComplaints)
		c.Said, c.Complained = said.add, complaints.add
		code, err := in.Run(ctx, c)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err == nil && code == 0 {
			return nil
		}
		e := &Error{Step: text, Said: masked(lastLines(said.lines(), complaints.lines(), maxSaidLines), j.Secrets)}
		if e.Why = fmt.Sprintf("exit code %d", code); err != nil {
			e.Why = err.Error()
		}
		e.Next = advice(e.Said)
		return e
	})
}

// make builds the image. there is the one of that tag that is there already; nil for none.
func (j *job) make(ctx context.Context, tag string, there *container.Base) error {
	helper, err := sandbox.HelperProgram()
	if err != nil {
		return err
	}
	// 1. The bases, and the packages of the system in them.
	names, meant := j.bases(), j.meant()
	var bases [2]*container.Base
	var ids [2]string
	for i, name := range names {
		if i == 1 && meant[1] == meant[0] {
			bases[1], ids[1] = bases[0], ids[0]
			break
		}
		if bases[i], err = j.have(ctx, name, meant[i], j.chosen[i] != nil && j.chosen[i].Pull); err != nil {
			return err
		}
		if ids[i] = bases[i].ID; len(j.AddPackages) > 0 {
			if ids[i], err = j.prepared(ctx, name, bases[i], helper); err != nil {
				return err
			}
		}
	}
	j.base = bases[1]
	// Of an image that no build of this user's has made the label may say anything.
	if there != nil && j.Pull && !j.Rebuild && (j.Source.Exact() || j.Source.Dir != "") && there.Label(labelBase) == j.base.ID && Own(j.Machine.State, there.ID) != nil {
		return nil // the bases are as they were
	}
	// 2. A builder, with what the build has.
	err = j.step("open a container of "+names[0], func() error {
		if j.builder, err = j.Machine.Builder(ctx, j.engine, container.BuilderConfig{Name: runner.PlainName(j.Source.Name()), Image: ids[0], Secrets: len(j.Secrets) > 0}, helper); err != nil {
			return err
		}
		return j.equip(ctx, j.builder)
	})
	if err != nil {
		return err
	}
	// 3. What the scheme says, and the command that starts what came of it.
	if err := j.recipe.build(ctx, j, bases[0]); err != nil {
		return err
	}
	return j.step("make the image", func() error {
		if err := j.fetch(ctx); err != nil {
			return err
		}
		entry, err := j.recipe.entry(ctx, j)
		if err != nil {
			return &Error{Step: "make the image", Why: err.Error(), Next: "name a package that is a server of its own"}
		}
		layer, err := j.app.layer(ctx)
		if err != nil {
			return err
		}
		return j.engine.Append(ctx, j.base, ids[1], layer, container.Finish{
			Tag: tag, Comment: "weir build " + j.shown(), User: "65532:65532", Entrypoint: entry, Env: []string{"HOME=" + home},
			Labels:  map[string]string{container.LabelBuilt: j.shown(), container.LabelSource: SourceKey(j.Source), labelBase: j.base.ID},
			Volumes: []string{home},
		})
	})
}

// labelBase names the image that one was built on.
const labelBase = "weir.dev/base"

// shown is what is built, for people; where a directory is, is nobody's business.
func (j *job) shown() string {
	if j.Source.Dir != "" {
		return j.Source.Scheme + "://./" + j.Source.Name()
	}
	return j.Source.String()
}

// have returns the base that is meant by a name, which is fetched where it is not there, or is to be.
func (j *job) have(ctx context.Context, named, name string, pull bool) (*container.Base, error) {
	base, err := j.engine.Base(ctx, name)
	known := new(container.Error)
	missing := errors.As(err, &known) && known.Kind == container.NoImage
	switch {
	case err != nil && !missing:
		return nil, err
	case err == nil && !j.Pull && !pull:
		return base, j.engine.Name(ctx, name, named) // it may be there by another name alone
	}
	failed := j.step("pull "+name, func() error {
		login := edge.Secret("")
		if j.Login != nil {
			var err error
			if login, err = j.Login(ctx, name); err != nil {
				j.notes = append(j.notes, fmt.Sprintf("%s is pulled without a login: %v", name, err))
			}
		}
		return j.engine.Pull(ctx, name, string(login), nil)
	})
	switch {
	case failed != nil && missing:
		return nil, failed
	case failed != nil:
		j.notes = append(j.notes, fmt.Sprintf("%s is as it was: %v", name, failed))
		return base, nil
	}
	if err := j.engine.Name(ctx, name, named); err != nil {
		return nil, err
	}
	return j.engine.Base(ctx, name)
}

// equip gives a builder what the build has.
func (j *job) equip(ctx context.Context, b *container.Builder) error {
	files := []container.File{
		{Path: appDir, Mode: 0o755, Mine: true, Dir: true}, {Path: home, Mode: 0o755, Mine: true, Dir: true},
		{Path: npmConfig, Mode: 0o644, Data: []byte(j.index.npmrc)},
	}
	if len(j.CA) > 0 {
		files = append(files, container.File{Path: caFile, Mode: 0o644, Data: j.authorities(ctx, b)})
	}
	if err := b.Put(ctx, files...); err != nil {
		return err
	}
	for name, data := range j.Secrets {
		if err := b.PutSecret(ctx, name, data); err != nil {
			return fmt.Errorf("secret %s: %w", name, err)
		}
	}
	return nil
}

// fetch ends all that commands have left running, and takes what they have made.
func (j *job) fetch(ctx context.Context) error {
	if err := j.builder.Quiet(ctx); err != nil {
		return err
	}
	archive, err := j.builder.Fetch(ctx, appDir)
	if err != nil {
		return err
	}
	defer archive.Close()
	if j.app, err = readApp(archive, j.Spool); err != nil {
		return err
	}
	for name, data := range j.Secrets {
		if at, err := j.app.holder(ctx, credentials(data)); err != nil {
			return err
		} else if at != "" {
			return &Error{Step: "make the image", Why: fmt.Sprintf("/%s holds the secret %s: what was installed has put it there, and whoever gets the image would have it", edge.Brief(at), name), Next: "use another version of the package, or a secret that it does not keep, and take this one back: a program of the package has read it"}
		}
	}
	return nil
}
