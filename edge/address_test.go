package edge_test

import (
	"net/netip"
	"testing"

	"github.com/weir-edge/weir/edge"
)

// TestMayDial holds the addresses of each class against both kinds of caller.
func TestMayDial(t *testing.T) {
	for text, want := range map[string]struct{ public, private bool }{
		"93.184.216.34":          {true, true},
		"2606:2800:220:1::1":     {true, true},
		"127.0.0.1":              {false, true},
		"::1":                    {false, true},
		"10.1.2.3":               {false, true},
		"172.31.0.1":             {false, true},
		"192.168.1.1":            {false, true},
		"100.64.0.1":             {false, true},
		"fd12:3456::1":           {false, true},
		"0.0.0.0":                {false, true},
		"::ffff:10.1.2.3":        {false, true},
		"64:ff9b::7f00:1":        {false, true},
		"169.254.169.254":        {false, false},
		"::ffff:169.254.169.254": {false, false},
		"64:ff9b::a9fe:a9fe":     {false, false},
		"fe80::1":                {false, false},
		"fe80::1%eth0":           {false, false},
		"100.100.100.200":        {false, false},
		"fd00:ec2::254":          {false, false},
		"168.63.129.16":          {false, false},
	} {
		addr := netip.MustParseAddr(text)
		if got := edge.MayDial(addr, false) == nil; got != want.public {
			t.Errorf("%s for a stranger: %v", text, got)
		}
		if got := edge.MayDial(addr, true) == nil; got != want.private {
			t.Errorf("%s for the operator: %v", text, got)
		}
	}
}
