package incoming_test

import (
	"bytes"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// A user whom nothing on the machine gives a name, as in containers that run as any number, is
// served by that number.
func TestLocalWithoutAName(t *testing.T) {
	const nobody = 54321
	_, err := user.LookupId("54321")
	edgetest.Need(t, err != nil, "somebody has the number 54321")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLocal$", "-test.v")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "USER=") })
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getgid(), Size: 1}},
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	edgetest.Need(t, cmd.Start() == nil, "this machine gives no user namespaces")
	if err := cmd.Wait(); err != nil || !strings.Contains(said.String(), "--- PASS: TestLocal ") {
		t.Errorf("%v: %s", err, said.String())
	}
}
