package compile

import "testing"

func TestNearest(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"groupReff", "groupRef"},
		{"group_ref", "groupRef"},
		{"GROUPREF", "groupRef"},
		{"gruopRef", "groupRef"},
		{"incomingauth", "incomingAuth"},
		{"redis", "kvstore"},
		{"awsSts", "cloudSts"},
		{"spec", ""},
		{"colour", ""},
		{"", ""},
		{"___", ""},
		{"groupRefgroupRefgroupRefgroupRefgroupRefgroupRefgroupRefgroupRefgroupRef", ""},
	} {
		got, ok := Nearest(c.name, []string{"groupRef", "incomingAuth", "config", "kvstore", "cloudSts"})
		if got != c.want || ok != (c.want != "") {
			t.Errorf("Nearest(%q) = %q, %t, want %q", c.name, got, ok, c.want)
		}
	}
	if got, ok := Nearest("x", nil); ok {
		t.Errorf("nearest of nothing is %q", got)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"abc", "abd", 1}, {"abc", "abcd", 1}, {"kitten", "sitting", 3}, {"abc", "xyzabc", 3},
	} {
		for _, pair := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
			if got := distance(pair[0], pair[1], 9); got != c.want {
				t.Errorf("distance(%q, %q) = %d, want %d", pair[0], pair[1], got, c.want)
			}
		}
	}
	if got := distance("abcdef", "uvwxyz", 2); got != 2 {
		t.Errorf("beyond the limit of 2: %d", got)
	}
}
