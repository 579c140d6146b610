package route

import (
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/mcp"
)

// What every backend says that it cannot do, the server of them does not offer.
func TestUnionOfWhatIsNot(t *testing.T) {
	for caps, want := range map[string]bool{
		`{"resources":{"subscribe":false,"listChanged":false}}`: false,
		`{"resources":{"subscribe":null}}`:                      false,
		`{"resources":{"subscribe":true}}`:                      true,
	} {
		if got := string(union([][]byte{[]byte(caps), []byte(`{"tools":{}}`)}, mcp.Legacy)); strings.Contains(got, "subscribe") != want || !strings.Contains(got, `"resources"`) {
			t.Errorf("%s: %s", caps, got)
		}
	}
}
