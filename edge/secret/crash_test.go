package secret_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/secret"
)

// writerVariable names the file that this program writes again and again, in place of its
// tests.
const writerVariable = "WEIR_TEST_SECRETS"

// writeForever keeps two values that are always the same, and others each time.
func writeForever(path string) {
	e := secret.NewEncrypted(path)
	if err := e.Unlock(password); err != nil {
		panic(err)
	}
	for n := 0; ; n++ {
		value := edge.Secret(strings.Repeat(fmt.Sprint(n), 1+n%50_000))
		if err := e.Set(context.Background(), map[secret.Ref]edge.Secret{own("A"): value, own("B"): value}); err != nil {
			panic(err)
		}
		if n == 0 {
			fmt.Println("writing")
		}
	}
}

// A writer that is killed, whenever it is, leaves a whole file, and nothing that the next one
// does not clean up.
func TestEncryptedKilledWhileWriting(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e := made(t, map[secret.Ref]edge.Secret{own("A"): "0", own("B"): "0"})
	changed := 0
	for range 100 {
		before := string(contents(t, e))
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), writerVariable+"="+e.Path())
		said, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(said).ReadString('\n'); err != nil || line != "writing\n" {
			t.Errorf("the writer says %q, %v", line, err)
		}
		time.Sleep(time.Duration(rand.N(20_000)) * time.Microsecond) // any moment is as good
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		fresh := secret.NewEncrypted(e.Path())
		if err := fresh.Unlock(password); err != nil {
			t.Fatal(err)
		}
		a, err := fresh.Get(t.Context(), own("A"))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := fresh.Get(t.Context(), own("B")); err != nil || a != b {
			t.Fatalf("two values of two times, %v", err)
		}
		if string(contents(t, e)) != before {
			changed++
		}
	}
	if changed < 90 {
		t.Errorf("only %d of 100 wrote anything", changed)
	}
	if err := e.Set(t.Context(), map[secret.Ref]edge.Secret{own("A"): "end"}); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(e.Path() + ".new-*"); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
}
