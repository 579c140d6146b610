package serve

import (
	"context"
	"log/slog"
)

// Leveled returns a handler of log records that passes on to h what is of a
// level or above. A server whose operational.logLevel is debug has all of its
// own passed on; with a log of another kind it has what that lets pass.
func Leveled(h slog.Handler, level slog.Level) slog.Handler { return &leveled{h, level} }

type leveled struct {
	slog.Handler
	level slog.Level
}

// Enabled is slog.Handler.Enabled.
func (l *leveled) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= l.level && l.Handler.Enabled(ctx, level)
}

// WithAttrs is slog.Handler.WithAttrs.
func (l *leveled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &leveled{l.Handler.WithAttrs(attrs), l.level}
}

// WithGroup is slog.Handler.WithGroup.
func (l *leveled) WithGroup(name string) slog.Handler {
	return &leveled{l.Handler.WithGroup(name), l.level}
}

// log is the process log as the server writes to it.
func (o *opening) log() *slog.Logger {
	if l, ok := o.edge.log.Handler().(*leveled); ok && o.plan.Debug {
		return slog.New(Leveled(l.Handler, slog.LevelDebug))
	}
	return o.edge.log
}
