// Command boardd stands in for the daemon in the test of process 1: it says
// what it was given, leaves an orphan behind, and waits to be told to end.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "middle":
		// Its child has no parent once this one ends.
		_ = exec.Command(os.Args[0], "orphan").Start()
		return
	case len(os.Args) > 1 && os.Args[1] == "orphan":
		return
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	host, _ := os.Hostname()
	fmt.Println("standin args", strings.Join(os.Args[1:], " "))
	fmt.Println("standin problem", os.Getenv("ROCELINK_PROBLEM"))
	fmt.Println("standin host", host)
	if err := exec.Command(os.Args[0], "middle").Run(); err != nil {
		fmt.Println("standin orphan", err)
	}
	fmt.Println("standin ready", os.Getpid())
	<-told
	fmt.Print("standin ended in order") // without an end of line
}
