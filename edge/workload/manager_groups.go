package workload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/weir-edge/weir/edge/workload/logs"
)

// defaultGroup is the group of workloads that name none. It is there always.
const defaultGroup = "default"

// maxGroups bounds how many groups there are, and maxGroupsFile the file of their names.
const maxGroups, maxGroupsFile = 1000, 128 << 10

// groupsFile is groups.yaml.
type groupsFile struct {
	Groups []string `yaml:"groups"`
}

// groupNames are the names of all groups, sorted.
func (k *Keeper) groupNames() ([]string, error) {
	var f groupsFile
	text, err := readOwn(k.Paths.groups(), maxGroupsFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("groups: %w", err)
	default:
		if err := yaml.Unmarshal(text, &f); err != nil {
			return nil, fmt.Errorf("groups: %s: %w", k.Paths.groups(), err)
		}
	}
	all := append([]string{defaultGroup}, f.Groups...)
	all = slices.DeleteFunc(all, func(name string) bool { return !IsName(name) })
	slices.Sort(all)
	return slices.Compact(all), nil
}

// knows says that there is no such group; nil where there is.
func (k *Keeper) knows(group string) error {
	if group == "" || group == defaultGroup {
		return nil
	}
	all, err := k.groupNames()
	if err == nil && !slices.Contains(all, group) {
		err = noGroup(group)
	}
	return err
}

func noGroup(name string) error {
	return &Error{Code: CodeNotFound, Field: "--group", Message: fmt.Sprintf("there is no group %s", strconv.Quote(name)), Next: "weir group create " + name}
}

// Groups is Manager.Groups.
func (k *Keeper) Groups(ctx context.Context) ([]Group, error) {
	all, err := k.groupNames()
	if err != nil {
		return nil, err
	}
	workloads, err := k.List(ctx)
	members := map[string][]string{}
	for _, w := range workloads {
		members[w.Group] = append(members[w.Group], w.Name)
		if !slices.Contains(all, w.Group) { // it came with its directory
			all = append(all, w.Group)
		}
	}
	slices.Sort(all)
	groups := make([]Group, 0, len(all))
	for _, name := range all {
		groups = append(groups, Group{name, append([]string{}, members[name]...)})
	}
	return groups, err
}

// CreateGroup is Manager.CreateGroup.
func (k *Keeper) CreateGroup(_ context.Context, name string) error {
	if err := checkName("group", name); err != nil {
		return err
	}
	return k.changeGroups(func(all []string) ([]string, error) {
		switch {
		case slices.Contains(all, name):
			return nil, &Error{Code: CodeTaken, Message: fmt.Sprintf("there is a group %s already", name)}
		case len(all) >= maxGroups:
			return nil, &Error{Code: CodeInvalid, Message: fmt.Sprintf("there are %d groups, which are the most", len(all))}
		}
		return append(all, name), nil
	})
}

// changeGroups writes groups.yaml anew.
func (k *Keeper) changeGroups(change func(all []string) ([]string, error)) error {
	k.grouping.Lock()
	defer k.grouping.Unlock()
	all, err := k.groupNames()
	if err == nil {
		all, err = change(all)
	}
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(name string) bool { return name == defaultGroup })
	slices.Sort(all)
	text, err := yaml.Marshal(groupsFile{all})
	if err == nil {
		err = writeOwn(k.Paths.groups(), text)
	}
	if err != nil {
		return fmt.Errorf("groups: %w", err)
	}
	return nil
}

// RemoveGroup is Manager.RemoveGroup.
func (k *Keeper) RemoveGroup(ctx context.Context, name string, withWorkloads bool, told func(Event)) error {
	if name == defaultGroup {
		return &Error{Code: CodeInvalid, Message: "the group default is there always"}
	}
	groups, err := k.Groups(ctx)
	i := slices.IndexFunc(groups, func(g Group) bool { return g.Name == name })
	switch {
	case err != nil:
		return err
	case i < 0:
		return noGroup(name)
	}
	for _, member := range groups[i].Members {
		if withWorkloads {
			err = k.Remove(ctx, member, RemoveOptions{Force: true}, steps(told))
		} else {
			err = k.regroup(ctx, member, steps(told))
		}
		if e := asError(err); e != nil && e.Code != CodeNotFound { // else it is gone, as it was to be
			return err
		}
	}
	err = k.changeGroups(func(all []string) ([]string, error) {
		return slices.DeleteFunc(all, func(one string) bool { return one == name }), nil
	})
	if err == nil && told != nil {
		told(Event{Time: time.Now(), Text: "removed the group " + name, State: Removing})
	}
	return err
}

// regroup moves a workload to the default group. It goes on meanwhile.
func (k *Keeper) regroup(ctx context.Context, name string, told func(Event)) error {
	w, err := k.take(ctx, name, nil)
	if err != nil {
		return err
	}
	defer w.release()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.folder == nil || w.facts == nil {
		return &Error{Code: CodeFault, Message: w.now.Reason, Next: "weir rm --force " + name}
	}
	text, err := withGroup(w.manifest, defaultGroup)
	if err == nil {
		err = writeOwn(w.folder.manifest(), text)
	}
	if err != nil {
		return fmt.Errorf("what is kept of %s: %w", name, err)
	}
	facts := *w.facts
	facts.Group = defaultGroup
	w.describe(text)
	w.facts = &facts
	told(Event{Time: time.Now(), Text: name + " is in the group default now"})
	return nil
}

// mostGone is how many workloads that were removed have logs left.
const mostGone = 32

// bury removes what is kept of a workload, but for its logs, which PruneLogs removes. From the
// moment that nobody takes it for one that is kept it is gone, also where something of it stays.
func (k *Keeper) bury(f *folder, name string) error {
	if err := privateDir(k.Paths.gone()); err != nil {
		return err
	}
	grave := filepath.Join(k.Paths.gone(), fmt.Sprintf("%d-%s", time.Now().UnixNano(), name))
	if err := os.Rename(f.path, grave); errors.Is(err, fs.ErrNotExist) { // somebody has removed it
		f.close()
		return nil
	} else if err != nil { // from here on nobody takes it for one that is kept
		return err
	}
	f.close()
	entries, err := os.ReadDir(grave)
	for _, e := range entries {
		if !isLog(e.Name()) {
			err = errors.Join(err, removeAll(filepath.Join(grave, e.Name())))
		}
	}
	_ = os.Remove(grave) // where it had no logs
	graves, _ := os.ReadDir(k.Paths.gone())
	for len(graves) > mostGone { // they are sorted, the oldest first
		err = errors.Join(err, removeAll(filepath.Join(k.Paths.gone(), graves[0].Name())))
		graves = graves[1:]
	}
	if err != nil {
		k.Log.Warn("something of workloads that are gone is not removed", "directory", k.Paths.gone(), "error", err)
	}
	return nil
}

// removeAll is os.RemoveAll of what a server has made. One that has taken the right to write from
// its own directories, as the Go toolchain does with what it fetches, keeps nobody from that.
func removeAll(path string) error {
	err := os.RemoveAll(path)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if info, failed := os.Lstat(path); failed == nil && info.IsDir() {
		_ = os.Chmod(path, 0o700) // what cannot be done is told below
	}
	root, failed := os.OpenRoot(path) // a link in it leads nowhere else
	if failed != nil {
		return err
	}
	defer root.Close()
	_ = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, _ error) error {
		if e != nil && e.IsDir() {
			_ = root.Chmod(name, 0o700)
		}
		return nil
	})
	return os.RemoveAll(path)
}

// isLog reports whether a file of a workload's directory is a log of it.
func isLog(name string) bool { return slices.Contains(logs.Files(), name) }

// PruneLogs is Manager.PruneLogs.
func (k *Keeper) PruneLogs(context.Context) (files int, bytes int64, err error) {
	graves, err := os.ReadDir(k.Paths.gone())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	for _, g := range graves {
		dir := filepath.Join(k.Paths.gone(), g.Name())
		err = errors.Join(err, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			if info, err := e.Info(); err == nil {
				bytes += info.Size()
			}
			files++
			return nil
		}), removeAll(dir))
	}
	return files, bytes, err
}
