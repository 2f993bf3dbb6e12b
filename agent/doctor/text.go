package doctor

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Select Graphic Rendition (ECMA-48, 8.3.117).
const (
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	red    = "\x1b[1;31m"
	plain  = "\x1b[0m"
)

// Text writes the report for people: what belongs together under a heading, a
// line for each check, and a last one that sums up.
func (r Report) Text(w io.Writer, colour bool) error {
	b := bufio.NewWriter(w)
	subject := ""
	for _, c := range r.Checks {
		if c.Subject != subject {
			subject = c.Subject
			fmt.Fprintln(b, subject)
		}
		word, paint := string(c.State), green
		switch c.State {
		case Warn:
			paint = yellow
		case Fail:
			word, paint = "FAIL", red
		}
		word = fmt.Sprintf("%-4s", word)
		if colour {
			word = paint + word + plain
		}
		fmt.Fprintf(b, "  %s  %-10s  %s\n", word, c.Name, c.Found)
		for _, d := range c.Details {
			fmt.Fprintf(b, "%20s%s\n", "", d)
		}
		if c.Remedy != "" {
			fmt.Fprintf(b, "%20s-> %s\n", "", c.Remedy)
		}
	}
	fmt.Fprintln(b, r.summary())
	return b.Flush()
}

func (r Report) summary() string {
	count := map[State]int{}
	for _, c := range r.Checks {
		count[c.State]++
	}
	text := fmt.Sprintf("%d ok, %d warn, %d FAIL", count[OK], count[Warn], count[Fail])
	var ready []string
	for _, d := range r.Devices {
		if !d.Ready {
			continue
		}
		use := "rocelinkd --device " + d.Name
		var facts []string
		if d.Address != "" && !strings.HasPrefix(d.Name, softPrefix) {
			facts = append(facts, d.Address)
		}
		if d.GIDIndex != nil {
			facts = append(facts, fmt.Sprintf("GID index %d", *d.GIDIndex))
		}
		if d.MTU > 0 {
			facts = append(facts, fmt.Sprintf("path MTU %d", d.MTU))
		}
		if len(facts) > 0 {
			use += " (" + strings.Join(facts, ", ") + ")"
		}
		ready = append(ready, use)
	}
	if len(ready) == 0 {
		return text + ": not ready"
	}
	slices.Sort(ready)
	return text + ": ready for " + strings.Join(ready, " or ")
}
