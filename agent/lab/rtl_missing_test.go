//go:build lab && !(verilator && realtime)

package lab

import "testing"

// Without Verilator the cases of the RTL are not built in.
func TestAgentOnRxeTakesFromRTL(t *testing.T) {
	leaveOut(t, "the RTL in simulation needs verilator, g++ and pkg-config")
}
