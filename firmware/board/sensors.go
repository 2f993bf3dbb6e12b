package board

import (
	"context"
	"os"
	"time"

	"rocelink"
	"rocelink/bsp/iio"
)

// sensorEvery is how often temperatures and voltages are read.
const sensorEvery = 5 * time.Second

// watchSensors reads the sensors of the SoC until ctx ends.
func (b *Board) watchSensors(ctx context.Context) {
	ticker := time.NewTicker(sensorEvery)
	defer ticker.Stop()
	sys := os.DirFS("/sys")
	for {
		// What cannot be read is missing in the status.
		read, err := iio.Read(sys)
		if err != nil {
			b.log.Debug("read the sensors", "err", err)
		}
		list := []rocelink.Sensor{}
		for _, s := range read {
			if s.Problem == "" {
				list = append(list, rocelink.Sensor{Name: s.Name, Unit: s.Unit, Value: s.Value})
			}
		}
		b.sensors.Store(&list)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
