package qemu

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"rocelink/boards"
	"rocelink/images/devicetree"
	"rocelink/images/fit"
)

// Machine is a board that runs.
type Machine struct {
	qemu, fabric *process
	input        io.WriteCloser
	done         chan struct{}
	err          error
}

// maxKernel is the largest kernel that is unpacked.
const maxKernel = 256 << 20

// Start starts a board. It runs until it powers itself off, restarts, or ctx is
// done.
func Start(ctx context.Context, c Config) (*Machine, error) {
	if c.Board.Boot == nil || c.Board.Boot.Emulator == nil {
		return nil, fmt.Errorf("board %s: %w", c.Board.Model, ErrNoEmulator)
	}
	m, err := fit.Read(c.Image)
	if err != nil {
		return nil, err
	}
	name := c.QEMU
	if name == "" {
		name = Program
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("%s is not installed (qemu-system-arm): %w", name, ErrNoEmulator)
	}
	var files files
	defer files.close()
	memory, err := files.memory("memory", int64(c.Board.Boot.Emulator.Memory), nil)
	if err != nil {
		return nil, err
	}
	kernel, err := m.Kernel.Unpacked(maxKernel)
	if err != nil {
		return nil, err
	}
	words := c.Arguments
	if c.Card == "" {
		words = append([]string{"rocelink.card=none"}, words...)
	} else if err := checkCard(c.Card); err != nil {
		return nil, err
	}
	tree, err := chosen(m.DeviceTree.Data, words)
	if err != nil {
		return nil, err
	}
	for _, p := range []struct {
		name string
		data []byte
	}{{"kernel", kernel}, {"devicetree", tree}, {"initramfs", m.Ramdisk.Data}} {
		if _, err := files.memory(p.name, int64(len(p.data)), p.data); err != nil {
			return nil, err
		}
	}

	r := &Machine{done: make(chan struct{})}
	console, messages := locked(c.Console), locked(c.Messages)
	if len(c.Fabric) > 0 {
		a, _ := c.Board.Aperture(c.Board.RoCE.Aperture)
		args := append(append([]string{}, c.Fabric[1:]...),
			"--registers", file(memory), "--registers-offset", strconv.FormatUint(a.Base, 10))
		if r.fabric, err = start(c.Fabric[0], args, files.files, nil, messages, messages); err != nil {
			return nil, fmt.Errorf("fabric: %w", err)
		}
	}
	// A pipe: what reads the input must not keep the machine from ending.
	input, typed, err := os.Pipe()
	if err == nil {
		r.qemu, err = start(path, emulator(c.Board, c.Card), files.files, input, console, messages)
		input.Close()
	}
	if err != nil {
		if typed != nil {
			typed.Close()
		}
		return nil, errors.Join(fmt.Errorf("emulator: %w", err), r.fabric.stop())
	}
	r.input = typed
	go r.watch(ctx)
	return r, nil
}

// chosen adds to the kernel's command line in a device tree, as boot loaders do.
func chosen(data []byte, words []string) ([]byte, error) {
	for _, w := range words {
		if err := boards.CheckArgument(w); err != nil {
			return nil, fmt.Errorf("kernel command line: %w", err)
		}
	}
	t, err := devicetree.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("device tree: %w", err)
	}
	devicetree.SetArguments(t, strings.Join(append([]string{devicetree.Arguments(t)}, words...), " "))
	// The machine has no source of randomness: without a seed the first program
	// that wants a random number waits for seconds.
	seed := make([]byte, 64)
	rand.Read(seed)
	devicetree.SetSeed(t, seed)
	return devicetree.Bytes(t)
}

// emulator is QEMU's command line. The files are the process' own.
func emulator(b *boards.Board, card string) []string {
	e := b.Boot.Emulator
	args := []string{
		"-machine", e.Machine + ",memory-backend=memory",
		"-m", strconv.FormatUint(e.Memory>>20, 10),
		"-object", fmt.Sprintf("memory-backend-file,id=memory,size=%d,mem-path=%s,share=on", e.Memory, file(0)),
		"-smp", strconv.Itoa(e.Processors),
		"-no-user-config", "-nodefaults", "-display", "none", "-no-reboot",
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-kernel", file(1), "-dtb", file(2), "-initrd", file(3),
	}
	// The machine gives its ports to the -nic in order.
	for range e.Network {
		args = append(args, "-nic", "hubport,hubid=1")
	}
	args = append(args, "-nic", "user")
	if card != "" {
		// A comma within a name is written twice.
		args = append(args, "-drive", "if=sd,index=0,format=raw,snapshot=on,file="+strings.ReplaceAll(card, ",", ",,"))
	}
	return append(args, e.Arguments...)
}

// checkCard looks whether the emulator takes a file as a card: its sizes are the
// powers of two.
func checkCard(name string) error {
	info, err := os.Stat(name)
	if err != nil {
		return fmt.Errorf("card: %w", err)
	}
	if n := info.Size(); n < 1<<20 || n&(n-1) != 0 {
		return fmt.Errorf("card %s has %d bytes: the emulator wants a power of two", name, n)
	}
	return nil
}

// file is the path under which a process finds the nth file that it inherits.
func file(n int) string { return "/proc/self/fd/" + strconv.Itoa(3+n) }

// files are files without a name: gone when the last process that has them is.
type files struct{ files []*os.File }

// memory adds a file of a size that begins with data, and returns its number.
func (f *files) memory(name string, size int64, data []byte) (int, error) {
	fd, err := unix.MemfdCreate("rocelink-"+name, unix.MFD_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("memory for the emulator: %w", err)
	}
	m := os.NewFile(uintptr(fd), name)
	f.files = append(f.files, m)
	if err := m.Truncate(size); err != nil {
		return 0, fmt.Errorf("memory for the emulator, %d bytes: %w", size, err)
	}
	if _, err := m.WriteAt(data, 0); err != nil {
		return 0, fmt.Errorf("memory for the emulator, %d bytes: %w", size, err)
	}
	return len(f.files) - 1, nil
}

func (f *files) close() {
	for _, m := range f.files {
		m.Close()
	}
}

// watch ends everything when the board has ended, when the fabric has or when
// ctx is done.
func (m *Machine) watch(ctx context.Context) {
	defer close(m.done)
	var err error
	select {
	case <-m.qemu.done:
		if err = m.qemu.err; err != nil {
			err = fmt.Errorf("emulator: %w", err)
		}
	case <-m.fabric.ended():
		err = fmt.Errorf("the fabric ended: %w", errors.Join(m.fabric.err, m.qemu.stop()))
	case <-ctx.Done():
		err = errors.Join(context.Cause(ctx), m.qemu.stop())
	}
	m.err = errors.Join(err, m.fabric.stop(), m.input.Close())
}

// Write types at the board's console.
func (m *Machine) Write(b []byte) (int, error) { return m.input.Write(b) }

// Done is closed when everything has ended.
func (m *Machine) Done() <-chan struct{} { return m.done }

// Wait waits until everything has ended. It returns nil when the board powered
// itself off or restarted.
func (m *Machine) Wait() error {
	<-m.done
	return m.err
}

// Processes are the process numbers of the emulator and of the fabric (0: none).
func (m *Machine) Processes() (emulator, fabric int) {
	if m.fabric != nil {
		fabric = m.fabric.cmd.Process.Pid
	}
	return m.qemu.cmd.Process.Pid, fabric
}

// process is a program that runs. Its methods take nil for one that ended.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// start starts a program that ends with this one, however that ends.
func start(path string, args []string, files []*os.File, stdin *os.File, stdout, stderr io.Writer) (*process, error) {
	p := &process{cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.ExtraFiles = files
	if stdin != nil {
		p.cmd.Stdin = stdin
	}
	p.cmd.Stdout, p.cmd.Stderr = stdout, stderr
	p.cmd.SysProcAttr = attributes()
	started := make(chan error)
	go func() {
		// The kernel ends the program when the thread that started it ends
		// (PR_SET_PDEATHSIG, prctl(2)): this thread does nothing else.
		release := lockThread()
		defer release()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) ended() <-chan struct{} {
	if p == nil {
		return nil
	}
	return p.done
}

// stop ends a program, gently first. That it was ended is no error.
func (p *process) stop() error {
	if p == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s: %w", p.cmd.Path, err)
	}
	if !within(p.done, stopLimit) {
		if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("kill %s: %w", p.cmd.Path, err)
		}
		<-p.done
	}
	return nil
}

// writer makes a writer one that several programs may write to.
type writer struct {
	mu sync.Mutex
	w  io.Writer
}

func (w *writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(b)
}

func locked(w io.Writer) io.Writer {
	if w == nil {
		return nil
	}
	if f, ok := w.(*os.File); ok {
		return f
	}
	return &writer{w: w}
}
