//go:build unix

package wasm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-edge/weir/edge/edgetest/need"
	"github.com/weir-edge/weir/wasm/wasi"
)

// mutantEnv makes the test binary a child that compiles and runs mutants.
const mutantEnv = "WEIR_MUTANT_CHILD"

// What a child runs them as: its values.
const (
	asGuests  = "guests"
	asServers = "servers" // which are told to end soon
	asLasting = "lasting" // servers that are left alone
)

// allMutants is how many the threat model asks for.
const allMutants = 200_000

// mutants is how many mutants to try: WEIR_MUTANTS, else a few thousand.
func mutants(t *testing.T) int {
	text := os.Getenv("WEIR_MUTANTS")
	if text == "" {
		return 4000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("WEIR_MUTANTS: %v", err)
	}
	return n
}

// A mutant may use so much before the child calls it a failure.
const (
	mutantTime   = 5 * time.Second          // of the processors
	mutantWait   = time.Minute * heavier    // by the clock, for the end of one that is left alone: others may have the processors
	mutantWork   = 2 * mutantTime * heavier // of both processors, for the largest modules there can be
	mutantMemory = 256 << 20                // resident, with all of the child
	mutantSpace  = 4 << 30                  // of addresses, most of which the runtime reserves
)

// TestW16 gives mutated modules to a child process that parses, meters,
// compiles, opens and calls them under a limit of address space.
func TestW16(t *testing.T) {
	need.Of(t, runtime.GOOS == "linux", "limits of a child process are set the way of Linux")
	for as, seeds := range map[string][][]byte{
		asGuests:  {scanner().bytes(), counter().bytes(), byCommand().bytes()},
		asServers: {echoing(), waiting(), serverModule([]string{"sched_yield"}, "", loop(call(0), ins(opDrop, opBr, 0)))},
	} {
		t.Run(as, func(t *testing.T) { giveMutants(t, as, seeds) })
	}
}

func giveMutants(t *testing.T, as string, seeds [][]byte) {
	n := mutants(t)
	for _, file := range specFiles(t, "*.wasm") {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 8 && len(b) < 32<<10 {
			seeds = append(seeds, b)
		}
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), mutantEnv+"="+as)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, uint64(n)))
	var last []byte
	for i := range n {
		// The first three get half of the mutants: what they do goes deepest.
		seed := seeds[i%3]
		if i%2 == 0 {
			seed = seeds[r.IntN(len(seeds))]
		}
		last = mutate(r, seed, seeds)
		if err := binary.Write(stdin, binary.LittleEndian, uint32(len(last))); err != nil {
			break
		}
		if _, err := stdin.Write(last); err != nil {
			break
		}
	}
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("the child ended with %v: %s; the last mutant written was %x", err, out.Bytes(), last)
	}
	var tried, accepted, opened, called, peak int
	var used time.Duration
	if _, err := fmt.Sscan(out.String(), &tried, &accepted, &opened, &called, (*int64)(&used), &peak); err != nil || tried != n {
		t.Errorf("%d mutants were tried, want %d: %q", tried, n, out.String())
	}
	t.Logf("%d mutants: %d compiled, %d opened, %d calls returned; at most %v of CPU and %d MiB resident", tried, accepted, opened, called, used, peak>>20)
	if used > mutantTime {
		t.Errorf("a mutant cost %v of CPU, and may cost %v", used, mutantTime)
	}
	if opened < n/100 {
		t.Errorf("only %d of %d mutants were opened: the mutations are too coarse to show anything", opened, n)
	}
}

// mutate changes a few bytes, numbers or stretches of a module.
func mutate(r *rand.Rand, seed []byte, seeds [][]byte) []byte {
	b := bytes.Clone(seed)
	for range 1 + r.IntN(4) {
		if len(b) < 9 {
			return b
		}
		i := 8 + r.IntN(len(b)-8)
		switch r.IntN(8) {
		case 0:
			b[i] ^= 1 << r.IntN(8)
		case 1:
			b[i] = byte(r.Uint32())
		case 2: // a neighbouring number
			b[i] += byte(r.IntN(3)) - 1
		case 3: // a large number in place of a small one
			b = append(b[:i], append(appendU32(nil, r.Uint32()), b[i+1:]...)...)
		case 4: // a stretch twice
			j := i + r.IntN(min(16, len(b)-i))
			b = append(b[:j], append(bytes.Clone(b[i:j]), b[j:]...)...)
		case 5: // a stretch less
			b = append(b[:i], b[i+r.IntN(min(8, len(b)-i)):]...)
		case 6: // a stretch of another module
			o := seeds[r.IntN(len(seeds))]
			j := r.IntN(len(o))
			copy(b[i:], o[j:j+r.IntN(min(32, len(o)-j))])
		case 7: // another instruction
			b[i] = []byte{opLoop, opBlock, opIf, opBr, opBrIf, opCall, opMemoryGrow, opGlobalSet, opPrefixFC, opPrefixFD, opReturn, opEnd}[r.IntN(12)]
		}
	}
	return b
}

// mutantMain is the child. It ends with 1 when a mutant costs too much.
func mutantMain() int {
	limit := unix.Rlimit{Cur: mutantSpace, Max: mutantSpace}
	if err := unix.Setrlimit(unix.RLIMIT_AS, &limit); err != nil {
		fmt.Println("setrlimit:", err)
		return 1
	}
	var tried, accepted, opened, called int
	try := tryMutant
	switch os.Getenv(mutantEnv) {
	case asServers:
		try = func(b []byte, n, o, c int) (int, int, int, error) { return tryServer(b, 20*time.Millisecond, n, o, c) }
	case asLasting:
		try = func(b []byte, n, o, c int) (int, int, int, error) { return tryServer(b, mutantWait, n, o, c) }
	}
	var most struct {
		used time.Duration
		peak int64
	}
	for {
		var size uint32
		if err := binary.Read(os.Stdin, binary.LittleEndian, &size); err == io.EOF {
			break
		} else if err != nil {
			fmt.Println("reading:", err)
			return 1
		}
		b := make([]byte, size)
		if _, err := io.ReadFull(os.Stdin, b); err != nil {
			fmt.Println("reading:", err)
			return 1
		}
		_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
		before := processorTime()
		tried++
		var err error
		accepted, opened, called, err = try(b, accepted, opened, called)
		used, peak := processorTime()-before, statusOf("VmHWM")
		most.used, most.peak = max(most.used, used), max(most.peak, peak)
		if err != nil || used > mutantWork || peak > mutantMemory {
			fmt.Printf("%v of CPU, %d MiB resident, %v: mutant %x\n", used, peak>>20, err, b)
			return 1
		}
	}
	fmt.Println(tried, accepted, opened, called, int64(most.used), most.peak)
	return 0
}

func tryMutant(b []byte, accepted, opened, called int) (int, int, int, error) {
	c, err := NewCompiler(Compilation{Timeout: mutantTime})
	if err != nil {
		return accepted, opened, called, err
	}
	defer c.Close()
	ctx := context.Background()
	m, err := c.Compile(ctx, b, "")
	if err != nil {
		// A seed that is no guest is refused for that, after it was decoded;
		// metered and compiled it is all the same.
		if parsed, err := parse(b); err == nil {
			_, _ = compileRaw(parsed)
		}
		// A machine with other things to do may take longer than a compilation may:
		// what counts is the time of the processors.
		var r *Refusal
		if !errors.As(err, &r) && !errors.Is(err, context.DeadlineExceeded) {
			return accepted, opened, called, err
		}
		return accepted, opened, called, nil
	}
	accepted++
	defer m.Close()
	g, err := m.Open(ctx, Binding{Name: "mutant", Isolation: PerRequest, Limits: Limits{
		Init: 100 * time.Millisecond, Timeout: 20 * time.Millisecond, Instances: 1,
	}})
	if err != nil {
		return accepted, opened, called, nil
	}
	opened++
	defer g.Close()
	for range 3 {
		if _, err := g.Call(ctx, hook, "", Sender{}, record(100), nil); err == nil {
			called++
		} else if f := (*Failure)(nil); !errors.As(err, &f) {
			return accepted, opened, called, err
		}
	}
	return accepted, opened, called, nil
}

// tryServer has a module live as a server for at most so long. It has called when it ended by
// itself.
func tryServer(b []byte, long time.Duration, accepted, opened, called int) (int, int, int, error) {
	c, err := NewCompiler(Compilation{Timeout: mutantTime})
	if err != nil {
		return accepted, opened, called, err
	}
	defer c.Close()
	m, err := c.CompileServer(context.Background(), b, "")
	if err != nil {
		var r *Refusal
		if !errors.As(err, &r) && !errors.Is(err, context.DeadlineExceeded) {
			return accepted, opened, called, err
		}
		return accepted, opened, called, nil
	}
	accepted++
	s, err := m.OpenServer(64<<20, nil)
	if err != nil {
		m.Close()
		return accepted, opened, called, nil
	}
	defer s.Close()
	in, err := s.Start(wasi.Config{Args: []string{"mutant"}, Env: []string{"A=B"}})
	if err != nil {
		return accepted, opened, called, nil
	}
	opened++
	go func() { _, _ = io.Copy(io.Discard, in.Stdout()) }()
	go func() { _, _ = io.Copy(io.Discard, in.Stderr()) }()
	_, _ = in.Stdin().Write([]byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n"))
	in.Stdin().CloseWrite()
	select {
	case <-in.done:
		called++
	case <-time.After(long):
		in.End()
		<-in.done
	}
	return accepted, opened, called, nil
}

func processorTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
