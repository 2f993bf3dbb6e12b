// Package vivado holds no Go: it is the script that makes a board's Vivado
// project. See README.md; the tests check what can be checked without Vivado.
package vivado
