package wiring

import (
	"cmp"

	"periph.io/x/conn/v3/i2c"

	"rocelink/boards"
	"rocelink/bsp/axigpio"
	"rocelink/bsp/axiiic"
	"rocelink/bsp/fabricio"
	"rocelink/fpga/regs"
)

// defaultHz is the clock of a bus whose description gives none.
const defaultHz = 400_000

func openAXIIIC(r regs.Bus, d boards.I2C) (i2c.Bus, error) {
	return axiiic.New(d.Name, r, axiiic.Config{Hz: cmp.Or(d.Hz, defaultHz)}), nil
}

func openAXIGPIO(r regs.Bus, d boards.GPIO) (Lines, error) { return axigpio.New(d.Name, r), nil }

func openFabricBus(r regs.Bus, d boards.I2C) (i2c.Bus, error) {
	return fabricio.NewBus(d.Name, r, fabricio.Config{}), nil
}

func openFabricLines(r regs.Bus, d boards.GPIO) (Lines, error) {
	return fabricio.NewChip(d.Name, r), nil
}
