package compile

import (
	"strconv"

	"github.com/weir-edge/weir/edge/v1beta1"
)

// publishes plans which ports of a server this machine listens on, too.
func (c *compiler) publishes(o *object, run *v1beta1.ServerRun, w *Workload) {
	const at = "spec.run.publish"
	if len(run.Publish) > 0 && w.Host != "" {
		c.fail(o, at, ReasonConflict, "the server is reached at %s, and its ports are there already: take one out", brief(w.Host))
		return
	}
	for i, text := range run.Publish {
		p, ok := v1beta1.ParsePublished(text)
		path := at + "[" + strconv.Itoa(i) + "]"
		switch {
		case !ok: // said where the object was judged
		case p.Container == 53 || p.Container == 3128:
			c.fail(o, path, ReasonConflict, "port %d of a server is that of its way out: have it listen at another one", p.Container)
		default:
			if !p.IP.IsLoopback() {
				c.find(Warning, o, path, ReasonNotHere, "%s: others than this machine reach the server there, and nobody asks who they are", p.Address())
			}
			w.Publish = append(w.Publish, p)
		}
	}
}
