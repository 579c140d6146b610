package main

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settled is how long files must be unchanged before they are read: editors, and
// Kubernetes when it updates a volume, change several at once.
const settled = 200 * time.Millisecond

// lookEvery is how often it is looked where links lead, and whether what was gone is there again:
// the system tells neither.
const lookEvery = time.Second

// watch calls changed after the configuration has changed, files, folders and what is behind
// links, and at each of hangups, and asks for them again after that. modules are further files, which the
// configuration names. The caller must call stop, which waits for its goroutine to end.
func watch(log *slog.Logger, hangups <-chan os.Signal, config []string, modules func() []string, changed func()) (stop func(), err error) {
	files, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", config[0], err)
	}
	for _, path := range config {
		if err := addFolders(files, path); err != nil {
			files.Close()
			return nil, fmt.Errorf("watch %s: %w", path, err)
		}
	}
	all := slices.Clone(config)
	seen := map[string]fs.FileInfo{}
	hear := func() {
		for _, path := range all {
			_ = addFolders(files, path) // there may be new ones; one that is gone is looked for
		}
	}
	look := func() {
		all = slices.Concat(config, modules())
		hear()
		for path, is := range leads(all) {
			if _, ok := seen[path]; !ok {
				seen[path] = is
			}
		}
	}
	reload := func(because string) {
		log.Info("reload", "because", because)
		hear() // before it is read: what changes from here on is seen
		seen = leads(all)
		changed()
		look()
	}
	look()
	end := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		defer files.Close()
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		rest := time.NewTimer(time.Hour)
		defer rest.Stop()
		rest.Stop()
		cause := ""
		for {
			select {
			case <-end:
				return
			case <-hangups:
				reload("SIGHUP")
			case event, ok := <-files.Events:
				if !ok {
					return
				}
				if i := slices.IndexFunc(all, func(path string) bool { return matters(path, event) }); i >= 0 && event.Op != fsnotify.Chmod {
					cause = all[i]
					rest.Reset(settled)
				}
			case <-tick.C:
				for path, was := range seen {
					is := leadsTo(path)
					if same(is, was) {
						continue
					}
					seen[path], cause = is, path
					rest.Reset(settled)
					if is == nil || was == nil || !os.SameFile(is, was) {
						for _, folder := range files.WatchList() {
							_ = files.Remove(folder) // another may have its name by now
						}
					}
				}
			case err, ok := <-files.Errors:
				if !ok {
					return
				}
				log.Warn("watching the configuration failed, and changes may go unnoticed; send SIGHUP after a change", "error", err)
			case <-rest.C:
				reload(cause + " changed")
			}
		}
	})
	return func() {
		close(end)
		work.Wait()
	}, nil
}

// reopening calls reopen at each of signals, which say that a log was rotated (notifyReopen).
// The caller must call stop, which ends them and waits for its goroutine to end.
func reopening(signals chan os.Signal, reopen func()) (stop func()) {
	var work sync.WaitGroup
	work.Go(func() {
		for range signals {
			reopen()
		}
	})
	return func() {
		signal.Stop(signals)
		close(signals)
		work.Wait()
	}
}

// addFolders watches the folder of a file, which sees the file replaced, or a
// folder with all that are in it.
func addFolders(files *fsnotify.Watcher, config string) error {
	info, err := os.Stat(config)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return files.Add(filepath.Dir(config))
	}
	config = filepath.Clean(config)
	if at, err := os.Lstat(config); err == nil && at.Mode()&fs.ModeSymlink != 0 {
		// Its own folder sees that it leads elsewhere. No walk begins at a link, but behind one.
		if err := files.Add(filepath.Dir(config)); err != nil {
			return err
		}
		config += string(filepath.Separator)
	}
	return filepath.WalkDir(config, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return files.Add(path)
	})
}

// leads returns what is at each path of a configuration, and behind the links in its folders; nil
// for nothing.
func leads(config []string) map[string]fs.FileInfo {
	found := map[string]fs.FileInfo{}
	for _, path := range config {
		found[path] = leadsTo(path)
		if found[path] == nil || !found[path].IsDir() {
			continue
		}
		_ = filepath.WalkDir(path+string(filepath.Separator), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type()&fs.ModeSymlink != 0 {
				if is := leadsTo(path); isConfig(path) || is != nil && is.IsDir() {
					found[path] = is
				}
			}
			return nil
		})
	}
	return found
}

// leadsTo is what a path leads to; nil for nothing.
func leadsTo(path string) fs.FileInfo {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return info
}

// same reports whether what a path leads to is what it was. What is in a folder is told by the
// system.
func same(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && (a.IsDir() || a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size())
}

// isConfig reports whether a file in a folder of the configuration is a manifest or a certificate
// by its name.
func isConfig(path string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json", ".pem", ".crt", ".cer"}, strings.ToLower(filepath.Ext(path)))
}

// matters reports whether a change may be one of the configuration.
func matters(config string, event fsnotify.Event) bool {
	path := event.Name
	if info, err := os.Stat(config); err == nil && info.IsDir() {
		// What is only written to, and is no manifest and no certificate, may be a log beside them: a
		// reload for each line of it would log the next one.
		if event.Op&^(fsnotify.Write|fsnotify.Chmod) == 0 && !isConfig(path) {
			return false
		}
		below, err := filepath.Rel(config, path)
		return err == nil && below != ".." && !strings.HasPrefix(below, ".."+string(filepath.Separator))
	}
	if filepath.Dir(filepath.Clean(path)) != filepath.Dir(filepath.Clean(config)) {
		return false // another folder that is watched
	}
	// A mounted volume swaps a link beside the file.
	return filepath.Base(path) == filepath.Base(config) || strings.HasPrefix(filepath.Base(path), "..")
}
