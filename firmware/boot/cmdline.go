package boot

import "strings"

// keyPrefix is what our keys begin with on the kernel's command line.
const keyPrefix = "rocelink."

// commandLine finds our keys on the kernel's command line: words separated by
// blanks, where double quotes keep blanks together, up to a "--" (Linux,
// Documentation/admin-guide/kernel-parameters.rst). As for the kernel's own
// parameters, "-" and "_" are the same in a key.
func commandLine(text string) []pair {
	var pairs []pair
	for {
		var word string
		word, text = nextWord(text)
		if word == "" || word == "--" {
			return pairs
		}
		key, value, _ := strings.Cut(word, "=")
		key, ours := strings.CutPrefix(strings.ReplaceAll(key, `"`, ""), keyPrefix)
		if !ours {
			continue
		}
		pairs = append(pairs, pair{strings.ReplaceAll(key, "_", "-"), strings.ReplaceAll(value, `"`, "")})
	}
}

// nextWord cuts the next word off, quotes included. It is "" at the end.
func nextWord(text string) (word, rest string) {
	text = strings.TrimLeft(text, blanks)
	quoted := false
	for n := range len(text) {
		switch c := text[n]; {
		case c == '"':
			quoted = !quoted
		case !quoted && strings.IndexByte(blanks, c) >= 0:
			return text[:n], text[n:]
		}
	}
	return text, ""
}

const blanks = " \t\r\n\v\f\x00"
