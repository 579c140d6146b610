//go:build unix

package apps

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// killedHome is the variable by which the program of these tests becomes one that writes until
// it is killed, and staysAt that of the change which it does not finish, none for "0".
const (
	killedHome = "WEIR_TEST_WRITES_UNTIL_KILLED"
	staysAt    = "WEIR_TEST_STAYS_AT_CHANGE"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(killedHome); dir != "" {
		writeUntilKilled(dir)
	}
	os.Exit(m.Run())
}

// writeUntilKilled changes an entry back and forth, and says when new content is written and
// not yet in its place.
func writeUntilKilled(home string) {
	p := Place{System: "linux", Lookup: func(name string) (string, bool) { return home, name == "HOME" }}
	changes := 0
	k := &Keeper{Dir: home, Place: p, between: func() {
		fmt.Println("between")
		if changes++; fmt.Sprint(changes) == os.Getenv(staysAt) {
			time.Sleep(time.Hour)
		}
	}}
	for i := 0; ; i++ {
		reports, err := k.Follow(known(on("files", fmt.Sprint(1+i%2))), true)
		if err != nil || reports[0].Err != nil || reports[0].Entries[0].Done.Left() {
			fmt.Println("failed", err, reports)
			os.Exit(1)
		}
	}
}

// TestKilled: whoever is killed while it writes leaves the old file or the new one, whole, and
// what it wrote is still known to be ours.
func TestKilled(t *testing.T) {
	k, file := cursor(t, "{\n  // "+strings.Repeat("x", 200<<10)+"\n  \"mcpServers\": {\"other\": {}}\n}\n")
	home, _ := k.Lookup("HOME")
	k.Dir = home
	states := map[string]bool{}
	for _, port := range []string{"1", "2"} {
		reports, err := k.Setup([]string{"cursor"}, Scope{}, known(on("files", port)))
		must(t, reports, err)
		states[read(t, file)] = true
	}
	const times = 100
	seen, leftovers := map[string]int{}, 0
	for i := range times {
		changes := 1 + i%3
		stays := 0 // a kill at any moment
		if i%5 == 0 {
			stays = changes // a kill before a new file is in its place
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), killedHome+"="+home, fmt.Sprint(staysAt, "=", stays))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		for range changes {
			if line, err := lines.ReadString('\n'); err != nil || line != "between\n" {
				t.Fatalf("it says %q, %v", line, err)
			}
		}
		time.Sleep(time.Duration(rand.IntN(1500)) * time.Microsecond)
		_ = cmd.Process.Kill()
		_, _ = io.Copy(io.Discard, lines)
		_ = cmd.Wait()

		text := read(t, file)
		if !states[text] {
			t.Fatalf("after %d kills the file has %d bytes, and is neither the old nor the new one", i+1, len(text))
		}
		seen[text]++
		if exists(file[:strings.LastIndex(file, "/")+1] + ".mcp.json.weir.tmp") {
			leftovers++
		}
		reports, err := k.Status([]Server{on("files", "1")}, true)
		if got := done(t, reports, err); got != "files:unchanged" && got != "files:outdated" {
			t.Fatalf("after %d kills its entry is %s", i+1, got)
		}
	}
	if len(seen) != 2 || leftovers < times/5 {
		t.Errorf("kills met %d states, and %d times a file that was not yet in its place: they prove nothing", len(seen), leftovers)
	}
	// What was left is cleared by the next one.
	reports, err := k.Follow(known(), true)
	must(t, reports, err)
	if strings.Contains(read(t, file), "files") || exists(file[:strings.LastIndex(file, "/")+1]+".mcp.json.weir.tmp") {
		t.Error("something was left")
	}
}
