package boot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

const (
	buildFile   = "/etc/rocelink/build.json"
	defaultName = "rocelink"
)

// Build says which image this is.
type Build struct {
	Name    string `json:"name"`    // of the board
	Version string `json:"version"` // of the image
	Time    int64  `json:"time"`    // Unix seconds; the clock is never before it
}

// readBuild reads which image this is and sets the clock no earlier than its
// making: without a battery a board starts in 1970, where no certificate is
// valid yet.
func (i *Init) readBuild() {
	i.build = Build{Name: defaultName, Version: "unknown"}
	b, err := loadBuild(i.path(buildFile))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			i.fault("%s: %v", buildFile, err)
		}
		return
	}
	i.build = b
	floor := i.floor()
	if !time.Now().Before(floor) {
		return
	}
	if err := i.sys.SetTime(floor); err != nil {
		i.fault("set the clock to the image's making: %v", err)
	}
}

// floor is the earliest time that can be.
func (i *Init) floor() time.Time { return time.Unix(i.build.Time, 0) }

func loadBuild(name string) (Build, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return Build{}, err
	}
	b := Build{Name: defaultName}
	if err := json.Unmarshal(data, &b); err != nil {
		return Build{}, err
	}
	// The upper bound is the year 9999.
	if b.Time < 0 || b.Time > 253402300799 {
		return Build{}, fmt.Errorf("time %d is no time in Unix seconds", b.Time)
	}
	var s settings
	if err := setName(&s, b.Name); err != nil {
		return Build{}, fmt.Errorf("name %w", err)
	}
	return b, nil
}
