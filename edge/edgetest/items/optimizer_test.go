package items_test

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/embedder"
)

// TestQ14KilledWhileIndexing: an edge that is killed while its tools are embedded has written
// nothing, and the next one answers by words at once (row Q14).
func TestQ14KilledWhileIndexing(t *testing.T) {
	t.Parallel()
	weir := program(t)
	s, err := embedder.Start("small", 32)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	back := edgetest.NewServer(t, edgetest.Modern)
	var tools []string
	for i := range 2000 {
		tools = append(tools, fmt.Sprintf(`{"name":"read_%d","description":"Reads the file of number %d.","inputSchema":{"type":"object"}}`, i, i))
	}
	back.Always("tools/list", func(c *edgetest.Call) {
		c.Result(`{"resultType":"complete","ttlMs":60000,"cacheScope":"public","tools":[` + strings.Join(tools, ",") + `]}`)
	})
	config := group(servers{"back": back}, fmt.Sprintf("optimizer: {embeddingService: %q}\naggregation: {conflictResolution: prefix}", s.URL))
	dir := t.TempDir()
	env := []string{"HOME=" + dir, "TMPDIR=" + dir, "XDG_CACHE_HOME=" + dir, "XDG_STATE_HOME=" + dir, "XDG_DATA_HOME=" + dir, "XDG_CONFIG_HOME=" + dir, "XDG_RUNTIME_DIR=" + dir}
	find := func(p *process) string {
		r := p.client().Modern("1", "tools/call", edgetest.CallParams("find_tool", `{"tool_description":"read the file of number 7"}`))
		if r.Status != 200 {
			t.Fatalf("status %d: %s", r.Status, r.Body)
		}
		return r.Result()
	}
	s.Take(300 * time.Millisecond) // of a batch
	for range 3 {
		p := run(t, weir, config, "", env)
		before := s.Counts().Requests
		edgetest.Until(t, "batches under way", func() bool { return s.Counts().Requests > before+2 })
		p.signal(syscall.SIGKILL)
		p.end()
		wrote(t, dir)
		if entries := filesIn(t, filepath.Dir(p.config)); len(entries) != 1 {
			t.Errorf("beside the configuration there is %v", entries)
		}
	}
	s.Take(time.Hour)
	p := run(t, weir, config, "", env)
	began := time.Now()
	answer := find(p)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the first answer took %s", took)
	}
	if !strings.Contains(answer, `"weir.dev/search":"keyword"`) || !strings.Contains(answer, "back_read_7") {
		t.Errorf("the first answer is %s", answer)
	}
	p.signal(syscall.SIGTERM)
	if code := p.end(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	wrote(t, dir)
}

// wrote fails the test where an edge has written a file.
func wrote(t *testing.T, dir string) {
	t.Helper()
	if files := filesIn(t, dir); len(files) != 0 {
		t.Errorf("the edge has written %v", files)
	}
}

func filesIn(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
