package serve

import (
	"context"
	"log/slog"
)

// Leveled returns a handler of log records that passes on to h those of a level or above.
// All records of a server whose operational.logLevel is debug are passed on. With another
// handler that field has no effect beyond what the handler passes.
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

// log returns the process log for the server.
func (o *opening) log() *slog.Logger {
	if l, ok := o.edge.log.Handler().(*leveled); ok && o.plan.Debug {
		return slog.New(Leveled(l.Handler, slog.LevelDebug))
	}
	return o.edge.log
}
