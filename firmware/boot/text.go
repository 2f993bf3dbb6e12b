package boot

import (
	"slices"
	"strconv"
)

// maxTexts bounds how many problems are kept: a file full of them says no more
// than the first few.
const maxTexts = 16

// appendText adds a text unless it is there already or there are too many.
func appendText(list []string, texts ...string) []string {
	for _, t := range texts {
		if len(list) < maxTexts && !slices.Contains(list, t) {
			list = append(list, t)
		}
	}
	return list
}

func itoa(n int) string { return strconv.Itoa(n) }
