// Package iio reads the temperatures and voltages that the kernel's IIO drivers
// for the ZynqMP AMS and the Versal sysmon measure. No such device is no error;
// one channel that cannot be read does not hide the others.
package iio

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// root is the devices' folder below /sys (Linux, Documentation/ABI/testing/sysfs-bus-iio).
const root = "bus/iio/devices"

// Sensor is one measured value.
type Sensor struct {
	Name    string // of the channel, as the kernel's driver calls it
	Unit    string // C or V
	Value   float64
	Problem string // why there is no value; empty when there is one
}

// Read reads all channels. sys is /sys.
func Read(sys fs.FS) ([]Sensor, error) {
	devices, err := fs.ReadDir(sys, root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("IIO devices: %w", err)
	}
	var sensors []Sensor
	for _, d := range devices {
		dir := path.Join(root, d.Name())
		name, err := text(sys, path.Join(dir, "name"))
		if err != nil || !strings.Contains(name, "ams") && !strings.Contains(name, "sysmon") {
			continue // another kind of device, such as a trigger or a light sensor
		}
		files, err := fs.ReadDir(sys, dir)
		if err != nil {
			return sensors, fmt.Errorf("IIO device %s: %w", name, err)
		}
		for _, f := range files {
			channel, value := strings.CutSuffix(f.Name(), "_raw")
			input := false
			if !value {
				channel, input = strings.CutSuffix(f.Name(), "_input")
			}
			unit := map[bool]string{true: "C", false: "V"}[strings.HasPrefix(channel, "in_temp")]
			if !value && !input || unit == "V" && !strings.HasPrefix(channel, "in_voltage") {
				continue
			}
			s := Sensor{Name: strings.TrimPrefix(channel, "in_"), Unit: unit}
			if !input && exists(sys, path.Join(dir, channel+"_input")) {
				continue // the kernel computes the value itself
			}
			if label, err := text(sys, path.Join(dir, channel+"_label")); err == nil && label != "" {
				s.Name = label
			}
			if s.Value, err = measure(sys, path.Join(dir, channel), input); err != nil {
				s.Value, s.Problem = 0, err.Error()
			}
			sensors = append(sensors, s)
		}
	}
	return sensors, nil
}

// measure computes (raw + offset) × scale, which is milli-degrees or millivolts.
func measure(sys fs.FS, channel string, input bool) (float64, error) {
	if input {
		v, err := number(sys, channel+"_input", nil)
		return v / 1000, err
	}
	raw, err := number(sys, channel+"_raw", nil)
	if err != nil {
		return 0, err
	}
	zero, one := 0.0, 1.0
	offset, err := shared(sys, channel, "_offset", &zero)
	if err != nil {
		return 0, err
	}
	scale, err := shared(sys, channel, "_scale", &one)
	return (raw + offset) * scale / 1000, err
}

// shared reads a number of the channel, or else the one that all channels of its
// kind share: in_voltage_scale stands for in_voltage3_scale.
func shared(sys fs.FS, channel, suffix string, absent *float64) (float64, error) {
	v, err := number(sys, channel+suffix, nil)
	if !errors.Is(err, fs.ErrNotExist) {
		return v, err
	}
	dir, name := path.Split(channel)
	if i := strings.IndexAny(name, "0123456789"); i > 0 {
		return number(sys, dir+name[:i]+suffix, absent)
	}
	return *absent, nil
}

func exists(sys fs.FS, name string) bool {
	_, err := fs.Stat(sys, name)
	return err == nil
}

// number reads a number, or takes absent where there is no such file.
func number(sys fs.FS, name string, absent *float64) (float64, error) {
	s, err := text(sys, name)
	if absent != nil && errors.Is(err, fs.ErrNotExist) {
		return *absent, nil
	}
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(v) || math.Abs(v) > 1e12 {
		return 0, fmt.Errorf("%s holds %.40q, want a number", name, s)
	}
	return v, nil
}

func text(sys fs.FS, name string) (string, error) {
	data, err := fs.ReadFile(sys, name)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(data)), nil
}
