// Package optics reads and controls the modules in a board's cages: it follows
// what is plugged and pulled, leaves a module the time it needs, and never shows
// the values of a module that is gone.
//
// A Cage is one QSFP or SFP cage: its way through I2C switches, its GPIO lines
// with the polarity they have on the board. Cages that share an I2C bus share a
// Bus. The package knows no board; it decodes with sff, which has no bus.
package optics
