package near

import "testing"

func TestWord(t *testing.T) {
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
		got, ok := Word(c.name, []string{"groupRef", "incomingAuth", "config", "kvstore", "cloudSts"})
		if got != c.want || ok != (c.want != "") {
			t.Errorf("Word(%q) = %q, %t, want %q", c.name, got, ok, c.want)
		}
	}
	if got, ok := Word("x", nil); ok {
		t.Errorf("nearest of nothing is %q", got)
	}
}

// A word that is another's is told from a slip of the hand.
func TestZ24Hint(t *testing.T) {
	for _, c := range []struct{ name, word, hint string }{
		{"redis", "kvstore", "it is called kvstore here"},
		{"aws_sts", "cloud_sts", "it is called cloud_sts here"},
		{"Cedar", "policy", "it is called policy here"},
		{"openai", "compat", "it is called compat here"},
		{"tools/call", "call_tool", "it is called call_tool here"},
		{"kvstor", "kvstore", "did you mean kvstore?"},
		{"elephant", "", ""},
	} {
		word, hint := Hint(c.name, []string{"kvstore", "cloud_sts", "policy", "compat", "call_tool"})
		if word != c.word || hint != c.hint {
			t.Errorf("Hint(%q) = %q, %q, want %q, %q", c.name, word, hint, c.word, c.hint)
		}
	}
	if word, hint := Hint("redis", []string{"memory"}); word != "" || hint != "" {
		t.Errorf("redis is %q where there is none: %s", word, hint)
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
