package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	cardLabel  = "ROCELINK"
	cardFile   = "rocelink.yaml"
	cardMount  = "/run/rocelink/card"
	runFolder  = "/run/rocelink"
	imageFile  = "/etc/rocelink/rocelink.yaml"
	boardFile  = "/etc/rocelink/board.yaml"
	secretMode = 0o600

	// maxSecret is the largest credentials or certificate file that is read.
	maxSecret = 256 << 10
)

// readFile reads a configuration file; one that does not exist says nothing.
func readFile(name, path string) source {
	src := source{name: name}
	data, err := readLimited(path, maxConfig)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		src.problems = []string{err.Error()}
	default:
		src.pairs, src.problems = configFile(data)
	}
	return src
}

func readLimited(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, fmt.Errorf("%s: more than %d bytes", path, limit)
	}
	return data, err
}

// openCard mounts the card and reads its configuration. The folder is "" when
// there is no card; otherwise done unmounts it.
func (i *Init) openCard(wait time.Duration) (src source, folder string, done func()) {
	src = source{name: "card: " + cardFile}
	if wait < 0 {
		return src, "", func() {}
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	device, err := i.sys.Volume(ctx, cardLabel)
	switch {
	case errors.Is(err, ErrNoVolume):
		i.log.Info("no card", "label", cardLabel)
		return src, "", func() {}
	case err != nil:
		i.fault("look for a volume labelled %s: %v", cardLabel, err)
		return src, "", func() {}
	}
	folder = i.path(cardMount)
	if err = os.MkdirAll(folder, 0o700); err == nil {
		err = i.sys.Mount(Mount{Source: device, Target: folder, Type: "vfat", ReadOnly: true, NoExec: true, NoDevices: true, NoSetUID: true})
	}
	if err != nil {
		// What it would have said is not known.
		src.problems = []string{fmt.Sprintf("mount %s: %v", device, err)}
		return src, "", func() {}
	}
	src = readFile(src.name, filepath.Join(folder, cardFile))
	i.log.Info("card", "device", device, "keys", len(src.pairs), "problems", len(src.problems))
	return src, folder, func() {
		if err := i.sys.Unmount(folder); err != nil {
			i.fault("unmount the card %s: %v", device, err)
		}
	}
}

// fetch copies the files for access to NATS from the card and makes their names
// paths, so that the card need not stay mounted. A file that cannot be had is a
// problem; its setting is taken out.
func (i *Init) fetch(a *access, card string) (problems []string) {
	for _, f := range []struct {
		key  string
		name *string
	}{{"creds", &a.creds}, {"nkey", &a.nkey}, {"tls-ca", &a.ca}, {"tls-cert", &a.cert}, {"tls-key", &a.key}} {
		if *f.name == "" {
			continue
		}
		path, err := i.fetchFile(*f.name, card)
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", f.key, err))
		}
		*f.name = path
	}
	return problems
}

func (i *Init) fetchFile(name, card string) (string, error) {
	if strings.HasPrefix(name, "/") {
		_, err := os.Stat(i.path(name))
		if err != nil {
			return "", err
		}
		return name, nil
	}
	if card == "" {
		return "", fmt.Errorf("%s: there is no card to take it from", name)
	}
	data, err := readLimited(filepath.Join(card, name), maxSecret)
	if err != nil {
		return "", err
	}
	to := runFolder + "/" + name
	if err := os.WriteFile(i.path(to), data, secretMode); err != nil {
		return "", err
	}
	return to, nil
}
