//go:build unix

package authserver_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
)

// TestA23 is a replica whose clock is ahead of the other's: by 50 s nobody sees a difference; by
// 10 min each goes on, and what the one ahead issues is refused by the other until then, which
// that says.
func TestA23(t *testing.T) {
	s, _ := onRedis(t)
	one := s.reps[0]
	for _, ahead := range []time.Duration{50 * time.Second, 10 * time.Minute} {
		t.Run(fmt.Sprint(ahead), func(t *testing.T) {
			late := &scene{t: t, place: s.place, hub: s.hub, clock: &clock{}, kept: s.kept}
			late.clock.moves(ahead)
			two := late.replica(patience)
			near, far := one.gate(audience), two.gate(audience)
			lets := func(at string, token string) error {
				g := near
				if at == "far" {
					g = far
				}
				_, err := g.Identify(t.Context(), edge.Secret("Bearer "+token), "")
				return err
			}
			skewed := ahead > time.Minute
			mixed := &scene{t: t, place: s.place, hub: s.hub, clock: s.clock, kept: s.kept, reps: []*rig{one, two}}
			if skewed {
				mixed.reps = []*rig{two}
			}
			client := mixed.client()
			got := mixed.login(client)
			// The refresh is at the one that is ahead, so that its tokens are.
			ours := two.tokens(two.post("/oauth/token", refreshing(client, got.Refresh)))
			if err := lets("far", ours.Access); err != nil {
				t.Errorf("the edge that is ahead refuses its own token: %v", err)
			}
			if err := lets("near", ours.Access); (edge.KindOf(err) == edge.Unauthenticated) != skewed || err == nil == skewed {
				t.Errorf("the other one, of a token of %s from now: %v", ahead, err)
			}
			// A refresh and a login at the other one go on, and both take what it issues.
			theirs := one.tokens(one.post("/oauth/token", refreshing(client, ours.Refresh)))
			for _, at := range []string{"near", "far"} {
				if err := lets(at, theirs.Access); err != nil {
					t.Errorf("%s: after a refresh at the other one: %v", at, err)
				}
			}
			mixed.reps = []*rig{one}
			again := mixed.login(client)
			for _, at := range []string{"near", "far"} {
				if err := lets(at, again.Access); err != nil {
					t.Errorf("%s: after a login at the other one: %v", at, err)
				}
			}
			for _, r := range []*rig{two, one} {
				if _, err := r.Compare(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			a, err := one.Compare(t.Context())
			if err != nil || strings.Contains(a.Message, "ahead") != skewed {
				t.Errorf("it is said: %+v, %v", a, err)
			}
		})
	}
}
