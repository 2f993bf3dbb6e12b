package kernel

import (
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"rocelink/firmware/boot"
)

// Start starts a program in a session of its own. os/exec cannot be used: it
// waits for its children, and so does process 1.
func (k *Kernel) Start(c boot.Command) (pid int, err error) {
	attr := &syscall.ProcAttr{Dir: "/", Env: c.Env, Sys: &syscall.SysProcAttr{Setsid: true}}
	if c.Output == nil {
		tty, err := os.OpenFile(console(), os.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			return 0, err
		}
		defer tty.Close()
		attr.Files = []uintptr{tty.Fd(), tty.Fd(), tty.Fd()}
		attr.Sys.Setctty = true
		return syscall.ForkExec(c.Path, append([]string{c.Path}, c.Args...), attr)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	attr.Files = []uintptr{null.Fd(), w.Fd(), w.Fd()}
	pid, err = syscall.ForkExec(c.Path, append([]string{c.Path}, c.Args...), attr)
	_ = w.Close()
	if err != nil {
		_ = r.Close()
		return 0, &os.PathError{Op: "start", Path: c.Path, Err: err}
	}
	go func() {
		defer r.Close()
		// Output never fails; a reader that fails has nothing more to say. A
		// last line without an end gets one.
		_, _ = io.Copy(c.Output, r)
		_, _ = io.WriteString(c.Output, "\n")
	}()
	return pid, nil
}

// console is the terminal behind /dev/console, which itself cannot control a
// session.
func console() string {
	if active, err := os.ReadFile("/sys/class/tty/console/active"); err == nil {
		if names := bytes.Fields(active); len(names) > 0 {
			return "/dev/" + string(names[len(names)-1])
		}
	}
	return "/dev/console"
}

// Terminate asks a process, or all others, to end.
func (k *Kernel) Terminate(pid int) error { return kill(pid, unix.SIGTERM) }

// Kill ends a process, or all others.
func (k *Kernel) Kill(pid int) error { return kill(pid, unix.SIGKILL) }

func kill(pid int, s syscall.Signal) error {
	if pid == 0 {
		pid = -1 // all that this process may signal, except itself
	}
	if err := unix.Kill(pid, s); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// Reap takes the children that have ended.
func (k *Kernel) Reap() (ended []boot.Exit, others bool) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // ECHILD: there are none
			return ended, false
		case pid == 0:
			return ended, true
		case status.Signaled():
			ended = append(ended, boot.Exit{PID: pid, Signal: status.Signal().String()})
		case status.Exited():
			ended = append(ended, boot.Exit{PID: pid, Code: status.ExitStatus()})
		}
	}
}
