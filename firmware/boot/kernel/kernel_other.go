//go:build !linux

// Package kernel is Linux as firmware/boot needs it.
package kernel
