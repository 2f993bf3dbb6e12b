package boot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"rocelink/fpga/regs"
)

// errNoFabric: there is nothing whose sender could be on.
var errNoFabric = errors.New("no fabric of ours")

// senderOff switches the fabric's sender off without boardd. The identity is
// read first; what is not ours is left alone.
func (i *Init) senderOff() {
	err := i.disableCore()
	switch {
	case errors.Is(err, errNoFabric):
		i.log.Warn("sender off: nothing to switch", "err", err)
	case err != nil:
		i.log.Error("sender off", "err", err)
	default:
		i.log.Info("sender off")
	}
}

func (i *Init) disableCore() error {
	if i.board == nil {
		return fmt.Errorf("the board description cannot be read: %w", errNoFabric)
	}
	a, err := i.aperture(i.set.registers)
	if err != nil {
		return fmt.Errorf("%w: %w", err, errNoFabric)
	}
	if a.File == "/dev/mem" {
		if err := i.fabricLoaded(); err != nil {
			return err
		}
	}
	r, err := i.sys.Map(a.File, a.Base, a.Size)
	if err != nil {
		return err
	}
	defer r.Close()
	core := regs.At(r, i.board.RoCE.Offset)
	ident, err := regs.CoreIdent.Read(core)
	if err != nil {
		return fmt.Errorf("read Core.Ident: %w", err)
	}
	if ident != regs.IdentCore {
		return fmt.Errorf("Core.Ident reads %#08x, want %#08x: %w", ident, uint32(regs.IdentCore), errNoFabric)
	}
	version, err := regs.CoreVersion.Read(core)
	if err != nil {
		return fmt.Errorf("read Core.Version: %w", err)
	}
	if major := regs.CoreVersionMajor.Get(version); major != regs.VersionMajor {
		return fmt.Errorf("register layout %d, this program knows %d: %w", major, regs.VersionMajor, errNoFabric)
	}
	control, err := regs.CoreControl.Read(core)
	if err != nil {
		return fmt.Errorf("read Core.Control: %w", err)
	}
	if regs.CoreControlEnable.Get(control) == 0 {
		return nil
	}
	if err := regs.CoreControl.Write(core, regs.CoreControlEnable.Put(control, 0)); err != nil {
		return fmt.Errorf("write Core.Control: %w", err)
	}
	if control, err = regs.CoreControl.Read(core); err != nil {
		return fmt.Errorf("read back Core.Control: %w", err)
	}
	if regs.CoreControlEnable.Get(control) != 0 {
		return fmt.Errorf("Core.Control reads %#x after Enable was cleared", control)
	}
	return nil
}

// fabricLoaded asks the kernel's FPGA managers, if there are any: on an empty
// fabric an access hangs the bus. A driver that cannot tell, as Versal's, says
// "unknown" (Linux, drivers/fpga/fpga-mgr.c).
func (i *Init) fabricLoaded() error {
	states, err := filepath.Glob(i.path("/sys/class/fpga_manager/*/state"))
	if err != nil {
		return err
	}
	for _, name := range states {
		data, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("FPGA manager: %w", err)
		}
		state := strings.TrimSpace(string(data))
		if state == "operating" || state == "unknown" && i.board.SoC != "zynqmp" {
			continue
		}
		return fmt.Errorf("the FPGA manager says %q, no bitstream is loaded: %w", state, errNoFabric)
	}
	return nil
}
