package boot

import (
	"errors"
	"io/fs"
	"os"
	"strings"
)

const (
	moduleList   = "/lib/modules-list"
	moduleFolder = "/lib/modules"
)

// loadModules loads the kernel modules of the image's list in its order. One
// that is missing or refused is reported; the rest follows.
func (i *Init) loadModules() {
	list, err := os.ReadFile(i.path(moduleList))
	if errors.Is(err, fs.ErrNotExist) {
		return // a kernel with everything built in
	}
	if err != nil {
		i.fault("list of kernel modules: %v", err)
		return
	}
	loaded := 0
	for line := range strings.Lines(string(list)) {
		name := strings.TrimSpace(line)
		if name == "" || strings.HasPrefix(name, "#") {
			continue
		}
		if !fs.ValidPath(name) {
			i.fault("%s: %.80q is no path below %s", moduleList, name, moduleFolder)
			continue
		}
		switch err := i.sys.LoadModule(i.path(moduleFolder + "/" + name)); {
		case err == nil:
			loaded++
		case !errors.Is(err, ErrPresent):
			i.fault("load kernel module %s: %v", name, err)
		}
	}
	i.log.Info("kernel modules", "loaded", loaded)
}
