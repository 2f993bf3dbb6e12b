package images

import (
	"fmt"

	"github.com/u-root/u-root/pkg/dt"

	"rocelink/boards"
	"rocelink/images/devicetree"
)

// treeRoom is what a boot loader may add to a device tree.
const treeRoom = 64 << 10

// sizes are those of an image's parts in memory.
type sizes struct{ image, kernel, tree, ramdisk uint64 }

// checkLayout finds parts of an image that overlap, that lie outside of the
// memory which the device tree tells of, or where it keeps something else.
func checkLayout(t *dt.FDT, at boards.Addresses, s sizes) error {
	memory, err := devicetree.Memory(t)
	if err != nil {
		return err
	}
	if len(memory) == 0 {
		return fmt.Errorf("the device tree tells of no memory: %w", ErrLayout)
	}
	reserved, err := devicetree.Reserved(t)
	if err != nil {
		return err
	}
	parts := []devicetree.Range{
		{Name: "FIT image", Base: at.Image, Size: s.image},
		{Name: "kernel", Base: at.Kernel, Size: s.kernel},
		{Name: "device tree", Base: at.DeviceTree, Size: s.tree + treeRoom},
		{Name: "initramfs", Base: at.Ramdisk, Size: s.ramdisk},
	}
	for i, p := range parts {
		within := false
		for _, m := range memory {
			within = within || p.Base >= m.Base && p.End() <= m.End() && p.End() > p.Base
		}
		if !within {
			return fmt.Errorf("%v is not within memory, %v: %w", p, memory, ErrLayout)
		}
		for _, o := range append(parts[i+1:len(parts):len(parts)], reserved...) {
			if p.Overlaps(o) {
				return fmt.Errorf("%v overlaps %v: %w", p, o, ErrLayout)
			}
		}
	}
	return nil
}

// checkApertures finds registers that the device tree takes for memory: the
// kernel would use it, and not let /dev/mem map it.
func checkApertures(t *dt.FDT, b *boards.Board) error {
	memory, err := devicetree.Memory(t)
	if err != nil {
		return err
	}
	reserved, err := devicetree.Reserved(t)
	if err != nil {
		return err
	}
	for _, a := range b.Apertures {
		r := devicetree.Range{Name: "aperture " + a.Name, Base: a.Base, Size: a.Size}
		for _, m := range memory {
			if a.File != "/dev/mem" || !r.Overlaps(m) {
				continue
			}
			kept := false
			for _, k := range reserved {
				kept = kept || r.Base >= k.Base && r.End() <= k.End()
			}
			if !kept {
				return fmt.Errorf("%v is in memory that the device tree does not reserve: %w", r, ErrLayout)
			}
		}
	}
	return nil
}
