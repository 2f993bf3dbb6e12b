// Package rtl holds no Go: it is the fabric in SystemVerilog. See README.md for
// what exists; fpga/sim runs it.
package rtl

//go:generate go run ./gen
