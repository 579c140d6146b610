package wasm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// wazeroDir is where the module of the engine lies, with the specification's
// tests in it.
var wazeroDir = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	return strings.TrimSpace(string(out)), err
})

// specFiles returns the files of the specification's tests that match a
// pattern, in the versions of the specification that guests may use.
func specFiles(t testing.TB, pattern string) []string {
	t.Helper()
	dir, err := wazeroDir()
	if err != nil {
		t.Fatalf("where is wazero: %v", err)
	}
	var all []string
	for _, version := range []string{"v1", "v2"} {
		files, err := filepath.Glob(filepath.Join(dir, "internal/integration_test/spectest", version, "testdata", pattern))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, files...)
	}
	if len(all) == 0 {
		t.Fatalf("no %s among the specification's tests in %s", pattern, dir)
	}
	return all
}

type specCommand struct {
	Type     string
	Line     int
	Name     string
	Filename string
	As       string
	Module   string `json:"module_type"`
	Action   struct {
		Type   string
		Field  string
		Module string
		Args   []specValue
	}
}

type specValue struct {
	Type  string
	Lane  string `json:"lane_type"`
	Value any
}

func (v specValue) bits(t *testing.T) []uint64 {
	one := func(s string, width int) uint64 {
		if strings.HasPrefix(s, "nan:") {
			if width == 32 {
				return uint64(math.Float32bits(float32(math.NaN())))
			}
			return math.Float64bits(math.NaN())
		}
		if n, err := strconv.ParseInt(s, 10, 64); err == nil && n < 0 {
			return uint64(n) & (1<<width - 1)
		}
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("value %q: %v", s, err)
		}
		return n
	}
	switch v.Type {
	case "v128":
		width, err := strconv.Atoi(v.Lane[1:])
		if err != nil {
			t.Fatal(err)
		}
		var words [2]uint64
		for i, lane := range v.Value.([]any) {
			at := i * width
			words[at/64] |= one(lane.(string), width) << (at % 64)
		}
		return words[:]
	case "funcref", "externref":
		if s, _ := v.Value.(string); s != "" && s != "null" {
			return []uint64{one(s, 64) + 1}
		}
		return []uint64{0}
	case "i32", "f32":
		return []uint64{one(v.Value.(string), 32)}
	}
	return []uint64{one(v.Value.(string), 64)}
}

// errStack is what ends a call of the tests that recurses too deep.
var errStack = errors.New("stack overflow")

// side is one of the two runtimes that do the same things.
type side struct {
	metered bool
	runtime wazero.Runtime
	modules map[string]api.Module
	last    api.Module
	depths  []api.MutableGlobal // a host sets them anew after a call that failed
	yields  int
}

func newSide(ctx context.Context, t testing.TB, metered bool) *side {
	s := &side{metered: metered, modules: make(map[string]api.Module)}
	s.runtime = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(api.CoreFeaturesV2))
	t.Cleanup(func() { s.runtime.Close(ctx) })
	yield := api.GoFunc(func(_ context.Context, stack []uint64) {
		s.yields++
		if int64(stack[1]) < 0 {
			panic(errStack)
		}
		stack[0] = 1000
	})
	_, err := s.runtime.NewHostModuleBuilder(meterModule).NewFunctionBuilder().
		WithGoFunction(yield, []api.ValueType{api.ValueTypeI64, api.ValueTypeI64}, []api.ValueType{api.ValueTypeI64}).
		Export(meterYield).Instantiate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := wazeroDir()
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.ReadFile(filepath.Join(dir, "internal/integration_test/spectest/testdata/spectest.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.load(ctx, host, "spectest"); err != nil {
		t.Fatalf("the spectest module: %v", err)
	}
	return s
}

func (s *side) load(ctx context.Context, b []byte, name string) (api.Module, error) {
	if s.metered {
		m, err := parse(b)
		if err != nil {
			return nil, err
		}
		if b, _, err = meter(m, metering{pages: 1 << 16, runStart: true}); err != nil {
			return nil, err
		}
	}
	mod, err := s.runtime.InstantiateWithConfig(ctx, b, wazero.NewModuleConfig().WithName(name).WithStartFunctions())
	if err == nil && s.metered {
		s.depths = append(s.depths, mod.ExportedGlobal(exportDepth).(api.MutableGlobal))
	}
	return mod, err
}

// outcome is what a command did, in words that must be equal on both sides.
func outcome(results []uint64, types []api.ValueType, err error) string {
	switch {
	case err == nil:
	case errors.Is(err, errStack):
		return "error: stack overflow"
	default:
		text, _, _ := strings.Cut(err.Error(), "\n")
		return "error: " + strings.TrimPrefix(text, "wasm error: ")
	}
	var b strings.Builder
	i := 0
	for _, typ := range types {
		switch {
		case typ == 0x7b:
			fmt.Fprintf(&b, "v128:%x,%x ", results[i], results[i+1])
			i++
		case typ == api.ValueTypeF32 && math.IsNaN(float64(math.Float32frombits(uint32(results[i])))):
			b.WriteString("nan ")
		case typ == api.ValueTypeF64 && math.IsNaN(math.Float64frombits(results[i])):
			b.WriteString("nan ")
		case typ == 0x70:
			fmt.Fprintf(&b, "funcref:%t ", results[i] != 0)
		default:
			fmt.Fprintf(&b, "%x ", results[i])
		}
		i++
	}
	return b.String()
}

// TestMeterSpec runs the WebAssembly specification's own tests on modules as
// they are and on the same modules metered, and compares every outcome.
func TestMeterSpec(t *testing.T) {
	commands, yields := 0, 0
	for _, file := range specFiles(t, "*.json") {
		name := filepath.Base(filepath.Dir(filepath.Dir(file))) + "/" + strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			n, y := compareSpec(t, file)
			commands, yields = commands+n, yields+y
		})
	}
	t.Logf("%d commands, %d yields", commands, yields)
	if commands < 20_000 || yields == 0 {
		t.Errorf("only %d commands and %d yields: the tests were not run", commands, yields)
	}
}

func compareSpec(t *testing.T, file string) (commands, yields int) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var script struct{ Commands []specCommand }
	if err := json.Unmarshal(raw, &script); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	plain, metered := newSide(ctx, t, false), newSide(ctx, t, true)
	for i, c := range script.Commands {
		var module []byte
		if strings.HasSuffix(c.Filename, ".wasm") {
			if module, err = os.ReadFile(filepath.Join(filepath.Dir(file), c.Filename)); err != nil {
				t.Fatal(err)
			}
		}
		switch c.Type {
		case "module":
			as := ""
			if i+1 < len(script.Commands) && script.Commands[i+1].Type == "register" {
				as = script.Commands[i+1].As
			}
			commands++
			for _, s := range []*side{plain, metered} {
				m, err := s.load(ctx, module, as)
				if err != nil {
					t.Fatalf("line %d: metered %t: %v", c.Line, s.metered, err)
				}
				s.last = m
				if c.Name != "" {
					s.modules[c.Name] = m
				}
			}
		case "assert_malformed", "assert_invalid", "assert_unlinkable", "assert_uninstantiable":
			if module == nil {
				continue
			}
			commands++
			_, want := plain.load(ctx, module, "")
			_, got := metered.load(ctx, module, "")
			if (want == nil) != (got == nil) {
				t.Errorf("line %d: %s: plain says %v, metered says %v", c.Line, c.Type, want, got)
			}
		case "assert_return", "assert_trap", "assert_exhaustion", "action":
			commands++
			var all [2]string
			for k, s := range []*side{plain, metered} {
				m := s.last
				if c.Action.Module != "" {
					m = s.modules[c.Action.Module]
				}
				if c.Action.Type == "get" {
					all[k] = fmt.Sprint(m.ExportedGlobal(c.Action.Field).Get())
					continue
				}
				var args []uint64
				for _, a := range c.Action.Args {
					args = append(args, a.bits(t)...)
				}
				f := m.ExportedFunction(c.Action.Field)
				results, err := f.Call(ctx, args...)
				all[k] = outcome(results, f.Definition().ResultTypes(), err)
				for _, depth := range s.depths {
					if err == nil && depth.Get() != maxDepth {
						t.Errorf("line %d: %s: the depth is %d after a call", c.Line, c.Action.Field, depth.Get())
					}
					depth.Set(maxDepth)
				}
			}
			if all[0] != all[1] {
				t.Errorf("line %d: %s: plain gives %q, metered gives %q", c.Line, c.Action.Field, all[0], all[1])
			}
		}
	}
	return commands, metered.yields
}

// compileRaw meters and compiles a module as it is, without the ABI.
func compileRaw(m *module) ([]byte, error) {
	b, _, err := meter(m, metering{pages: MaxMemory / pageSize, runStart: true})
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(api.CoreFeaturesV2))
	defer r.Close(ctx)
	_, err = r.CompileModule(ctx, b)
	return b, err
}
