package packaging_test

import (
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"rocelink/agent/daemon"
	"rocelink/agent/stream"
)

const configFile = "rocelinkd.yaml"

func readConfig(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(configFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestConfigAsInstalled(t *testing.T) {
	var c daemon.Config
	if err := c.Parse(configFile, []byte(readConfig(t))); err != nil {
		t.Fatal(err)
	}
	if len(c.Streams) > 0 || c.NATS != (daemon.NATS{}) || c.Name != "" || c.Device != "" {
		t.Errorf("the settings as installed are not the defaults: %+v", c)
	}
}

// TestConfigUncommented sets everything that the file offers.
func TestConfigUncommented(t *testing.T) {
	text := readConfig(t)
	// A setting is "#key:" or, within a stream, "#  ".
	setting := regexp.MustCompile(`(?m)^(\s*)#((?:[a-z]|  +)\S?.*)$`)
	text = setting.ReplaceAllString(text, "$1$2")
	var c daemon.Config
	if err := c.Parse(configFile, []byte(text)); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if len(c.Streams) != 1 {
		t.Fatalf("%d streams", len(c.Streams))
	}
	if _, err := c.Streams[0].Complete(); err != nil {
		t.Error(err)
	}
	if c.Name == "" || c.Device == "" || c.NATS.URL == "" || c.NATS.Key == "" {
		t.Errorf("not everything was set: %+v", c)
	}
	// Every key that there is stands in the file, below a comment.
	lines := strings.Split(text, "\n")
	for _, kind := range []reflect.Type{reflect.TypeFor[daemon.Config](), reflect.TypeFor[daemon.NATS](), reflect.TypeFor[stream.Spec]()} {
		for i := range kind.NumField() {
			key := kind.Field(i).Tag.Get("yaml")
			if key == "-" || !kind.Field(i).IsExported() {
				continue
			}
			commented, found := false, false
			for n, line := range lines {
				line = strings.TrimPrefix(strings.TrimSpace(line), "- ")
				if strings.HasPrefix(line, key+":") {
					found = true
					for n--; n >= 0 && strings.TrimSpace(lines[n]) != ""; n-- {
						commented = commented || strings.HasPrefix(strings.TrimSpace(lines[n]), "# ")
					}
					commented = commented || key == "nats"
					break
				}
			}
			if !found || !commented {
				t.Errorf("%s: %s is in the file: %v, with a comment: %v", kind, key, found, commented)
			}
		}
	}
}

func TestScripts(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("not run: no sh")
	}
	for _, script := range []string{"postinst", "prerm", "postrm", "build.sh", "../../.ci/package"} {
		if out, err := exec.Command("sh", "-n", script).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
	}
	// What a package manager may call them with besides does nothing.
	for script, verbs := range map[string][]string{"postinst": {"abort-upgrade", "abort-remove", "triggered", ""}, "prerm": {"upgrade", "1", "failed-upgrade", ""}} {
		for _, verb := range verbs {
			cmd := exec.Command("sh", "-x", script, verb)
			cmd.Env = []string{"PATH=/nonexistent"}
			if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "systemctl") {
				t.Errorf("%s %q: %v\n%s", script, verb, err, out)
			}
		}
	}
}
