// Package clock sets a board's reference clocks before the transceivers need
// them, and tells whether they are locked: nothing is written until all that is
// to be written is known to be sound.
//
// A Si570 is set to a frequency; other parts are loaded with the register export
// of their vendor's tool.
//
// Registers and export formats are those of the parts as known, not yet compared
// with the manuals line by line, and nothing of it has run on a part: the tests
// play back what is written here.
package clock
