//go:build verilator && realtime

// Command rocelink-fabric-rtl plays the fabric as rocelink-fabric does, with the
// RTL, verilated, as its core. It needs the build tags verilator and realtime,
// after fpga/sim/verilate.
package main

import (
	"fmt"
	"log/slog"
	"time"

	"rocelink/fpga/model"
	"rocelink/fpga/model/program"
	"rocelink/fpga/roce"
	"rocelink/fpga/sim/fabric"
)

const about = `rocelink-fabric-rtl plays the FPGA with the core's own RTL in simulation: it
serves the fabric's registers in a file that boardd maps and sends RoCE v2 over
UDP from the address that is programmed there. The core is one for a clock of
250 kHz, which runs in real time as far as this machine keeps up and stands still
while no stream is started; all its timers and rates are by that clock.

Example: a fabric that loses one packet in a hundred, the same ones each time

  rocelink-fabric-rtl --registers /dev/shm/rocelink0 --drop 1 --seed 7
`

func main() {
	p := program.Program{Name: "rocelink-fabric-rtl", About: about, Build: build}
	p.Main()
}

func build(s program.Setup) (p program.Fabric, err error) {
	var f *fabric.Fabric
	p.Driver, err = model.NewMachineDriver(func(port model.Port) (m model.Machine, err error) {
		f, err = fabric.New(fabric.Config{Port: port, Registers: s.Registers, Link: s.Link, SourcePort: roce.Port})
		return f, err
	}, s.Driver)
	if err != nil {
		return p, err
	}
	p.Sim = f.Shell()
	_, kHz := f.Clock()
	p.Has = fmt.Sprintf("%d queue pairs in RTL, verilated, at %d kHz", f.QueuePairs(), kHz)
	began := time.Now()
	p.Ended = func(log *slog.Logger) {
		cycles, _ := f.Clock()
		log.Info("the core's clock", "cycles", cycles, "kHz", kHz, "ran", time.Since(began).Round(time.Millisecond))
	}
	return p, nil
}
