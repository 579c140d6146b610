package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/cmd/weir/apps"
	"github.com/weir-edge/weir/cmd/weir/clients"
	"github.com/weir-edge/weir/cmd/weir/local"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/workload"
)

// foreground runs one workload in this process, without a manager, until its server has
// ended or ctx has: then it is gone. It returns nil when the server ended with 0, or ctx has
// once the server is there. told hears of each step, and of what the server prints.
func (a *app) foreground(ctx context.Context, manifest []byte, replace bool, wait time.Duration, told func(workload.Event)) (err error) {
	outliveReaders()
	paths, err := a.paths()
	if err != nil {
		return err
	}
	var keeper atomic.Pointer[workload.Keeper]
	s := serve.Defaults()
	given, err := a.settingsInPassing()
	if err != nil {
		return err
	}
	s.AdminListen, s.CABundle = "", given.CABundle
	log := keptLog(io.Discard, s, &keeper)
	d := local.NewDoors(s, paths, log)
	k, err := workload.Open(workload.KeeperOptions{Paths: paths, Edge: d, Log: log, Version: thisBuild().Version, Foreground: true, Forget: d.Forget, Ports: local.Ports(paths), Judge: d.Judge, Evict: a.replaced})
	if err != nil {
		return err
	}
	defer k.Close()
	keeper.Store(k)
	facts, err := d.Read(manifest)
	if err != nil {
		return err
	}
	plan, _, err := workload.Check(manifest)
	if err != nil {
		return err
	}
	secrets, _, _, err := a.secrets().OfWorkloads(ctx, s.SecretsDir, len(plan.Needs) > 0) // what is locked is told by whoever needs it
	if err != nil {
		return err
	}
	broken, end, err := d.Serve(append(a.edgeOptions(), serve.WithSecrets(secrets))...)
	if err != nil {
		return err
	}
	defer end()
	defer k.End()
	// What a workload kept that was there before is not that of this one alone.
	gone := workload.RemoveOptions{Force: true, KeepImage: true, KeepVolumes: replace}
	if err := k.Run(ctx, manifest, replace, wait, told); err != nil {
		_ = k.Remove(context.WithoutCancel(ctx), facts.Name, gone, nil) // where it got so far
		if known := new(workload.Error); errors.As(err, &known) && known.Next == "weir logs "+facts.Name {
			told := *known // its log is gone with it
			told.Next = "mend the command, or run it by itself to see what it says"
			err = &told
		}
		return err
	}
	defer func() {
		if failed := k.Remove(context.WithoutCancel(ctx), facts.Name, gone, nil); err == nil {
			err = failed
		}
		a.followOne(ctx, told, func(context.Context) ([]apps.Server, error) {
			return []apps.Server{{Name: facts.Name, Wish: apps.Gone}}, nil
		})
	}()
	a.followOne(ctx, told, func(ctx context.Context) (servers []apps.Server, err error) {
		all, err := k.List(ctx)
		for _, w := range all {
			if w.Name == facts.Name {
				servers = append(servers, clients.ServerOf(w))
			}
		}
		return servers, err
	})
	k.Begin()
	following, stop := context.WithCancel(ctx)
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		since := workload.LogOptions{Follow: true, Since: time.Now()}
		_ = k.Logs(following, facts.Name, since, func(l workload.Line) { // it ends with the workload
			told(workload.Event{Time: l.Time, Text: facts.Name + ": " + l.Source + ": " + edge.Clean(l.Text)})
		})
	}()
	defer func() {
		stop()
		<-heard
	}()
	return watchEnd(ctx, func() (workload.Look, bool) { return d.Look(facts.Name) }, facts.Name, broken, told)
}

// followOne has clients follow a workload that this process keeps.
func (a *app) followOne(ctx context.Context, told func(workload.Event), list func(context.Context) ([]apps.Server, error)) {
	for _, text := range a.clients().Follow(ctx, nil, list, false) {
		told(workload.Event{Time: time.Now(), Text: text})
	}
}

// watchEnd returns when the server of a workload has ended and is not started again. That one
// does not run for now is told.
func watchEnd(ctx context.Context, look func() (workload.Look, bool), name string, broken <-chan error, told func(workload.Event)) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for was := workload.Running; ; {
		select {
		case <-ctx.Done():
			return nil
		case err := <-broken:
			return err
		case <-tick.C:
		}
		switch look, ok := look(); {
		case ok && !look.Over:
			if look.State == workload.Failed && was != workload.Failed {
				told(workload.Event{Time: time.Now(), Text: name + " is error: " + look.Reason + "; it is tried again every minute"})
			}
			was = look.State
		case look.Ended == "exit 0":
			return nil
		default:
			return &workload.Error{Code: workload.CodeStart, Message: fmt.Sprintf("%s has ended: %s", name, strings.TrimPrefix(look.Reason, "ended: "))}
		}
	}
}
