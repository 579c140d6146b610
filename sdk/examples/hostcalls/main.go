// Command hostcalls is a guest that calls every function of the host.
package main

import (
	"encoding/hex"
	"errors"
	"strconv"

	weir "github.com/weir-edge/weir/sdk"
)

func main() {}

const minute = 60_000

func init() {
	weir.OnInit(func(s *weir.Setup) error {
		for _, grant := range []string{"random", "kv", "metrics", "keys", "http", "tools", "events"} {
			if !s.Granted(grant) {
				return errors.New(grant + " is not granted")
			}
		}
		return nil
	})
	weir.OnCall(func(c *weir.Call) {
		text, err := answer(c.Tool(), c.Selected(0).Text())
		if err != nil {
			text = "error: " + err.Error()
		}
		c.Respond(weir.TextResult(text))
	}, weir.Pointers("/text"), weir.Blocking())
}

func answer(tool weir.View, text string) (string, error) {
	switch {
	case tool.Is("give up"):
		panic("given up on " + text)
	case tool.Is("count"):
		n, err := weir.KVAdd("calls", 1, minute)
		return strconv.FormatInt(n, 10), err
	case tool.Is("remember"):
		return "", weir.KVSet("note", []byte(text), minute)
	case tool.Is("recall"):
		note, err := weir.KVGet("note", make([]byte, 0, 4))
		return string(note), err
	case tool.Is("forever"):
		return "", weir.KVSet("note", nil, 365*24*60*minute)
	case tool.Is("digest"):
		sum := weir.SHA256([]byte(text))
		return hex.EncodeToString(sum[:]), nil
	case tool.Is("sign"):
		sum, err := weir.HMAC("sign", []byte(text))
		return hex.EncodeToString(sum[:]), err
	case tool.Is("sign with another"):
		sum, err := weir.HMAC("other", nil)
		return hex.EncodeToString(sum[:]), err
	case tool.Is("random"):
		var one, two [32]byte
		if err := weir.Random(one[:]); err != nil {
			return "", err
		}
		if err := weir.Random(two[:]); err != nil {
			return "", err
		}
		return strconv.FormatBool(one != two), nil
	case tool.Is("too random"):
		return "", weir.Random(make([]byte, 5000))
	case tool.Is("measure"):
		if err := weir.Gauge("level", 7); err != nil {
			return "", err
		}
		return "", weir.Count("asked", 2)
	case tool.Is("measure badly"):
		return "", weir.Count("Asked!", 2)
	case tool.Is("time"):
		before := weir.Monotonic()
		return strconv.FormatBool(weir.NowMillis() > 1_600_000_000_000 && weir.Monotonic() >= before), nil
	case tool.Is("log"):
		weir.Debug("d " + text)
		weir.Info("i " + text)
		weir.Warn("w " + text)
		weir.Error("e " + text)
		return strconv.Itoa(weir.LogLevel()), nil
	case tool.Is("fetch"):
		in, err := weir.Fetch(weir.Outbound{
			Method: "POST", URL: "https://api.example/judge?x=1", Headers: [][2]string{{"x-say", "hello"}}, Body: text, Millis: 2000,
		})
		return strconv.Itoa(in.Status) + " " + in.Header("x-kind") + " " + string(in.Body), err
	case tool.Is("fetch size"):
		in, err := weir.Fetch(weir.Outbound{Method: "POST", URL: "https://api.example/judge?x=1"})
		return strconv.Itoa(len(in.Body)), err
	case tool.Is("fetch elsewhere"):
		in, err := weir.Fetch(weir.Outbound{URL: "https://elsewhere.example/"})
		return strconv.Itoa(in.Status), err
	case tool.Is("tool"):
		result, failed, err := weir.CallTool(text, `{"deep":true}`)
		if failed.Exists() {
			return "failed: " + failed.Get("message").Text(), err
		}
		return result.At("/content/0/text").Text(), err
	case tool.Is("emit"):
		return "", weir.Emit("seen", `{"text":`+weir.Text(text)+`}`)
	case tool.Is("emit badly"):
		return "", weir.Emit("Seen!", "")
	}
	return "", errors.New("no such tool")
}
