package relay

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestZ43PulsesAreBounded: as many edges are remembered as there may be, and what is
// known of one is forgotten when nobody has asked about it for longest.
func TestZ43PulsesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p peers
		dead, forgotten := NewName(), NewName()
		p.get(forgotten).looks = looksFor
		time.Sleep(time.Millisecond)
		for range 4 {
			p.get(dead).looks = looksFor
			for range MaxPeers / 2 {
				time.Sleep(time.Millisecond)
				p.get(NewName())
			}
		}
		if p.get(dead).looks != looksFor || p.get(forgotten).looks != 0 || len(p.of) > MaxPeers {
			t.Errorf("%d looks at one that is asked about, %d at one that is not, %d edges", p.get(dead).looks, p.get(forgotten).looks, len(p.of))
		}
	})
}
