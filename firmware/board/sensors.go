package board

import (
	"context"
	"io/fs"
	"os"
	"time"

	"rocelink"
	"rocelink/bsp/iio"
	"rocelink/bsp/soc"
)

// sensorEvery is how often temperatures and voltages are read.
const sensorEvery = 5 * time.Second

// watchSensors reads the sensors of the SoC until ctx ends.
func (b *Board) watchSensors(ctx context.Context) {
	ticker := time.NewTicker(sensorEvery)
	defer ticker.Stop()
	sys := os.DirFS("/sys")
	told := ""
	for {
		told = b.readSensors(sys, told)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// readSensors takes what can be read of sys; what cannot is missing in the status
// and is told once. It returns what was told.
func (b *Board) readSensors(sys fs.FS, told string) string {
	read, err := iio.Read(sys)
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	list := []rocelink.Sensor{}
	for _, s := range read {
		if s.Problem != "" {
			problem = s.Problem
			continue
		}
		list = append(list, rocelink.Sensor{Name: s.Name, Unit: s.Unit, Value: s.Value})
	}
	b.sensors.Store(&list)
	if problem != "" && problem != told {
		b.log.Warn("read the sensors", "err", problem)
	}
	return problem
}

// chip is what the kernel says of the chip, for the end of a sentence.
func (b *Board) chip(sys fs.FS) string {
	i, err := soc.Read(sys)
	if err != nil {
		b.log.Warn("read what the chip is", "err", err)
	}
	if s := i.String(); s != "" {
		return "; chip " + s
	}
	return ""
}
