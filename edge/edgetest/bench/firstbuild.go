package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/edgetest/program"
)

// firstBuild is what it takes to build the program in a clone, where nothing is
// cached.
type firstBuild struct {
	wall, cpu time.Duration // with the modules at hand
	packages  int           // compiled, those of the standard library among them
	modules   int           // linked
	size      int64         // of the program, in bytes
	zips      int           // modules downloaded
	bytes     int64         // the same, and the go.mod files of others
}

// runBuild builds the program with an empty cache.
func (b *bench) runBuild(ctx context.Context) {
	b.tryEdge(ctx, "first build", func(ctx context.Context) {
		f, err := buildFirst(ctx, b.dir)
		kit.Check(err)
		b.report.built = &f
		b.say("first build: %.0f s of CPU, %.1f MiB", f.cpu.Seconds(), mebibytes(f.size))
	})
}

func buildFirst(ctx context.Context, dir string) (firstBuild, error) {
	var f firstBuild
	root, err := program.Root(ctx)
	if err != nil {
		return f, err
	}
	// 1. What is downloaded. What this machine has stands for the proxy.
	env, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		return f, fmt.Errorf("go env: %w", err)
	}
	cache, proxy, _ := strings.Cut(strings.TrimSpace(string(env)), "\n")
	modules := filepath.Join(dir, "modules")
	list := exec.CommandContext(ctx, "go", "list", "-tags", program.Tags, "-deps", "./cmd/weir")
	list.Dir = root
	list.Env = append(os.Environ(), "GOMODCACHE="+modules, "GOFLAGS=-modcacherw", "GOPROXY=file://"+filepath.ToSlash(filepath.Join(cache, "cache", "download"))+","+proxy)
	names, err := list.Output()
	if err != nil {
		return f, fmt.Errorf("go list: %w", err)
	}
	f.packages = strings.Count(string(names), "\n")
	err = filepath.WalkDir(filepath.Join(modules, "cache", "download"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(path, "sumdb") {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch filepath.Ext(path) {
		case ".zip":
			f.zips++
			f.bytes += info.Size()
		case ".mod":
			f.bytes += info.Size()
		}
		return nil
	})
	if err != nil {
		return f, err
	}
	// 2. What is compiled, with the modules that this machine has.
	out := filepath.Join(dir, "weir-first")
	cmd := program.Release(ctx, root, out)
	cmd.Env = append(os.Environ(), "GOCACHE="+filepath.Join(dir, "cache"))
	began := time.Now()
	if said, err := cmd.CombinedOutput(); err != nil {
		return f, fmt.Errorf("go build: %w: %s", err, said)
	}
	f.wall, f.cpu = time.Since(began), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()
	// 3. What came of it.
	built, err := buildinfo.ReadFile(out)
	if err != nil {
		return f, err
	}
	f.modules = len(built.Deps)
	info, err := os.Stat(out)
	if err != nil {
		return f, err
	}
	f.size = info.Size()
	return f, nil
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

// section is a part of the page; nil has none.
func (f *firstBuild) section() string {
	if f == nil {
		return ""
	}
	var p strings.Builder
	p.WriteString("\n## What a first build takes\n\n`make build` in a clone on this machine, where nothing has been built before.\n\n| what | figure | bar | reached |\n|---|---|---|---|\n")
	fmt.Fprintf(&p, "| the program, stripped | %.1f MiB (%d bytes) | ≤ %.0f MiB | %s |\n", mebibytes(f.size), f.size, mebibytes(program.MaxSize), yesNo(f.size <= program.MaxSize))
	fmt.Fprintf(&p, "| CPU, user and system, of compiling and linking | %.0f s | – | – |\n", f.cpu.Seconds())
	fmt.Fprintf(&p, "| the same by the clock, %d cores | %.0f s | – | – |\n", runtime.NumCPU(), f.wall.Seconds())
	fmt.Fprintf(&p, "| packages compiled, the standard library's among them | %d | – | – |\n", f.packages)
	fmt.Fprintf(&p, "| modules linked | %d | – | – |\n", f.modules)
	fmt.Fprintf(&p, "| modules downloaded | %d, %.1f MiB | – | – |\n", f.zips, mebibytes(f.bytes))
	return p.String()
}
