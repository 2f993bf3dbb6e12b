package path

import "time"

// Began is when a diagnosis was first made, and the link as it was then.
type Began struct {
	At   time.Time
	Link *Link
}

// Tracker remembers since when each path has its diagnosis. It is not safe for
// concurrent use.
type Tracker struct {
	known map[string]tracked
}

type tracked struct {
	rule  string
	began Began
}

// Update takes what Analyse found at a time and returns, by the ID of the path,
// when each diagnosis began. Paths that are gone are forgotten.
func (t *Tracker) Update(now time.Time, paths []Path) map[string]Began {
	next := make(map[string]tracked, len(paths))
	began := make(map[string]Began, len(paths))
	for _, p := range paths {
		k, ok := t.known[p.ID]
		if !ok || k.rule != p.Diagnosis.Rule {
			k = tracked{p.Diagnosis.Rule, Began{now, p.Link}}
		}
		next[p.ID] = k
		began[p.ID] = k.began
	}
	t.known = next
	return began
}
