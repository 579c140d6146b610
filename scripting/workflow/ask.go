package workflow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.starlark.net/starlark"

	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/scripting"
)

// The actions of an answer.
const (
	actionAccept  = "accept"
	actionDecline = "decline"
	actionCancel  = "cancel"
)

// errSkipped ends a step whose question is not asked any more, because the rest is skipped.
var errSkipped = errors.New("the rest is skipped")

// ask asks the caller: ask("a", template("…"), schema, on_decline="abort", on_cancel="abort").
func (r *run) ask(t *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var (
		id, message string
		given       *starlark.Dict
		on          = map[string]*string{actionDecline: new(string), actionCancel: new(string)}
	)
	if err := starlark.UnpackArgs("ask", args, named, "id", &id, "message", &message, "schema?", &given, "on_decline?", on[actionDecline], "on_cancel?", on[actionCancel]); err != nil {
		return nil, err
	}
	h := aroundOf(t).step
	if h == nil {
		return nil, errors.New("ask: stands in a step")
	}
	for name, action := range on {
		switch v1beta1.ElicitationAction(*action) {
		case "", v1beta1.ElicitationAbort, v1beta1.ElicitationContinue, v1beta1.ElicitationSkipRemaining:
		default:
			return nil, fmt.Errorf("ask: on_%s is %s, and must be abort, continue or skip_remaining", name, shown(*action))
		}
	}
	var text []byte
	if given != nil && given.Len() > 0 {
		var err error
		if text, err = scripting.JSON("schema", given); err != nil {
			return nil, err
		}
	}
	s, err := questionSchema(text)
	if err != nil {
		return nil, fmt.Errorf("ask: schema: %w", err)
	}
	if r.host.Ask == nil {
		return nil, failed("the client cannot be asked")
	}
	if r.skipping {
		return nil, errSkipped
	}

	// 1. The question, for as long as the step has, and as nothing skips it.
	var (
		reply *Reply
		wrong error
	)
	asked, cancel := r.limited(t.Context(), min(maxAsk, h.timeout))
	defer cancel()
	back := t.With(asked, t.Local())
	q := &Question{Step: id, Message: message, Schema: s.text}
	if r.asking == nil {
		r.asking = map[*Question]context.CancelFunc{}
	}
	r.asking[q] = cancel
	err = r.outside(t, func(ctx context.Context) { reply, wrong = r.host.Ask(ctx, q) })
	delete(r.asking, q)
	back()
	switch {
	case err != nil:
		return nil, err
	case r.skipping && wrong != nil:
		return nil, errSkipped
	case asked.Err() == context.DeadlineExceeded && wrong != nil:
		reply = &Reply{Action: actionCancel}
	case wrong != nil:
		return nil, failed("%s", scripting.Clean(wrong.Error()))
	case reply == nil:
		return nil, failed("the client cannot be asked")
	}

	// 2. The answer.
	switch reply.Action {
	case actionAccept:
		if err := s.reply(reply.Content); err != nil {
			return nil, failed("the answer does not fit: %s", err)
		}
		content := reply.Content
		if len(content) == 0 {
			content = []byte("{}")
		}
		v, err := t.Value(content)
		if err != nil {
			return nil, failed("the answer does not fit: %s", err)
		}
		h.content = v
		return answered(actionAccept, "content", v, nil)
	case actionDecline, actionCancel:
		switch action := v1beta1.ElicitationAction(*on[reply.Action]); action {
		case v1beta1.ElicitationContinue, v1beta1.ElicitationSkipRemaining:
			if action == v1beta1.ElicitationSkipRemaining {
				r.skipping = true
				for _, withdraw := range r.asking {
					withdraw()
				}
			}
			h.content = contentOf(h.def)
			return answered(reply.Action, "", nil, h.def)
		}
		if asked.Err() == context.DeadlineExceeded {
			f := failed("nobody answered within %s", scripting.Seconds(min(maxAsk, h.timeout).Round(time.Millisecond)))
			f.unanswered = true
			return nil, f
		}
		return nil, failed("the user said: %s", reply.Action)
	}
	return nil, failed("the answer has the action %s", shown(reply.Action))
}

// answered is the output of an elicitation: the action, the content, and what the defaults
// have besides.
func answered(action, name string, content, def starlark.Value) (starlark.Value, error) {
	out := starlark.NewDict(2)
	if err := out.SetKey(starlark.String("action"), starlark.String(action)); err != nil {
		return nil, err
	}
	if name != "" {
		if err := out.SetKey(starlark.String(name), content); err != nil {
			return nil, err
		}
	}
	d, ok := def.(*starlark.Dict)
	if !ok {
		return out, nil
	}
	for key, v := range d.Entries() {
		if s, _ := starlark.AsString(key); s == "action" {
			continue
		}
		if err := out.SetKey(key, v); err != nil {
			return nil, err
		}
	}
	return out, nil
}
