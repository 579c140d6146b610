package settings

import (
	"os"
	"path/filepath"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/secret"
)

// LookAtFiles tells of each file that the settings name whether it is there and
// right at a time; look is called with the name of the setting.
func (s *Settings) LookAtFiles(now time.Time, look func(name string, f func() edge.Finding)) {
	if s.FilterCache != "" {
		look("filter-cache", func() edge.Finding {
			if info, err := os.Stat(s.FilterCache); err == nil && (!info.IsDir() || info.Mode()&0o022 != 0) {
				return edge.Problem(edge.ClassFile, "name a directory that nobody else may write to, or one to be made", "%s is no directory of this user alone", s.FilterCache)
			}
			return edge.Fine("")
		})
	}
	if s.StateDir != "" {
		look("state-dir", func() edge.Finding {
			if info, err := os.Stat(s.StateDir); err == nil && (!info.IsDir() || info.Mode()&0o077 != 0) {
				return edge.Problem(edge.ClassFile, "name a directory that nobody else may look into, or one to be made", "%s is no directory of this user alone", s.StateDir)
			}
			return edge.Fine("")
		})
	}
	if s.StateKeyFile != "" {
		look("state-key-file", func() edge.Finding { return secret.LookAtStateKeys(s.StateKeyFile) })
	}
	if s.TLSCert != "" && s.TLSKey != "" {
		look("tls-cert", func() edge.Finding { return door.TLS{Cert: s.TLSCert, Key: s.TLSKey}.Look(now) })
	}
	for _, one := range []struct{ name, path string }{{"tls-client-ca", s.TLSClientCA}, {"store-ca", s.StoreCA}, {"ca-bundle", s.CABundle}} {
		if one.path != "" {
			look(one.name, func() edge.Finding {
				if _, err := edge.Authorities(one.path); err != nil {
					return edge.Problem(edge.ClassFile, "name a file with the certificates of authorities in PEM", "%v", err)
				}
				return edge.Fine("")
			})
		}
	}
	if s.HandOver != "" {
		look("hand-over", func() edge.Finding {
			if info, err := os.Stat(filepath.Dir(s.HandOver)); err != nil || !info.IsDir() {
				return edge.Problem(edge.ClassFile, "make the directory, or name a socket in one that is there", "%s is no directory", filepath.Dir(s.HandOver))
			}
			if info, err := os.Stat(s.HandOver); err == nil && info.Mode().Type() != os.ModeSocket {
				return edge.Problem(edge.ClassFile, "name a path of its own", "%s is there and is no socket", s.HandOver)
			}
			return edge.Fine("")
		})
	}
}
