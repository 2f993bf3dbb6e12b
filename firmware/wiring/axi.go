package wiring

import (
	"fmt"

	"periph.io/x/conn/v3/i2c"

	"rocelink/boards"
	"rocelink/fpga/regs"
)

func openAXIIIC(_ regs.Bus, d boards.I2C) (i2c.Bus, error) {
	return nil, fmt.Errorf("driver %q: %w", d.Driver, ErrUnknown)
}

func openAXIGPIO(_ regs.Bus, d boards.GPIO) (Lines, error) {
	return nil, fmt.Errorf("driver %q: %w", d.Driver, ErrUnknown)
}
