package cloud_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
)

// A security token service that gives the user's own token back as that of a session has it sent
// to no backend (T12).
func TestT12EchoedCloud(t *testing.T) {
	s := stage(t, nil)
	s.Instead = func(w http.ResponseWriter, r *http.Request) bool {
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		fmt.Fprintf(w, "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ASIA</AccessKeyId><SecretAccessKey>key</SecretAccessKey><SessionToken>%s</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>",
			r.PostForm.Get("WebIdentityToken"), time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		return true
	}
	who := s.who("alice", map[string]any{"groups": []any{"eng"}})
	_, status, err := send(t, s.attach, who, "http://127.0.0.1:1/", nil, "", false)
	if edge.KindOf(err) != edge.Unavailable || status != 0 || strings.Contains(err.Error(), string(who.Token)) {
		t.Errorf("status %d, %v", status, err)
	}
}
