package broker

import "testing"

func TestParseRefusal(t *testing.T) {
	for text, want := range map[string]Refusal{
		`127.0.0.1:5 - cid:7 - "v1.55.0:go:boardd a - b" - "$G/nkey:UABC" - Publish Violation - Subject "x.y"`:                 {"127.0.0.1:5", "boardd a - b", "UABC", "publish", "x.y"},
		`127.0.0.1:5 - cid:7 - "v1.55.0:go" - "$G/nkey:UABC" - Subscription Violation - Subject "x.>", SID 3`:                  {"127.0.0.1:5", "", "UABC", "subscribe", "x.>"},
		`127.0.0.1:5 - cid:7 - "v1.55.0:go:a\"b" - "$G/nkey:UABC" - Subscription Violation - Subject "x.>", Queue: "q", SID 3`: {"127.0.0.1:5", `a"b`, "UABC", "subscribe", "x.>"},
		`127.0.0.1:5 - cid:7 - authentication error - Nkey "UABC"`:                                                             {"127.0.0.1:5", "", "UABC", "connect", ""},
		`127.0.0.1:5 - cid:7 - "v1:go:n" - authentication error`:                                                               {"127.0.0.1:5", "n", "", "connect", ""},
	} {
		if got, ok := parseRefusal(text); !ok || got != want {
			t.Errorf("%s: %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "x", "Error listening", `1 - "`, `1 - "a" - Publish Violation - Subject x`, "a - b - c"} {
		if got, ok := parseRefusal(text); ok {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

func FuzzParseRefusal(f *testing.F) {
	f.Add(`127.0.0.1:5 - cid:7 - "v1.55.0:go:boardd" - "$G/nkey:UABC" - Publish Violation - Subject "x.y"`)
	f.Add(`127.0.0.1:5 - cid:7 - authentication error - Nkey "UABC"`)
	f.Fuzz(func(t *testing.T, text string) {
		if r, ok := parseRefusal(text); ok && r.Action == "" {
			t.Errorf("%q: %+v", text, r)
		}
	})
}
