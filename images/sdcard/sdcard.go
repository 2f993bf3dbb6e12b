// Package sdcard writes the image of a memory card: a partition table and one
// FAT32 file system that boot ROM and boot loader read. The same files give the
// same bytes.
package sdcard

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/diskfs/go-diskfs"
	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/disk"
	"github.com/diskfs/go-diskfs/filesystem"
	"github.com/diskfs/go-diskfs/partition/mbr"

	"rocelink/images/artifact"
)

// ErrTooSmall means that the files do not fit onto the card.
var ErrTooSmall = errors.New("the card is too small")

// File is a file of the card.
type File struct {
	Name string // with folders: extlinux/extlinux.conf
	Data []byte
}

// Card is what is on a card.
type Card struct {
	// Size in bytes. Default: 128 MiB, or more if the files need more. The
	// image fits onto every larger card.
	Size int64
	// Spare is how many bytes the default size leaves free at least.
	Spare int64
	Label string // up to 11 characters
	// Time of all files, 1980 or later.
	Time  time.Time
	Files []File
}

const (
	sector = 512
	// start of the partition: what erases a card's blocks likes a multiple of
	// 1 MiB (SD Physical Layer Simplified Specification, 4.13).
	start = 1 << 20
	// minimum of a FAT32 file system: fewer clusters than 65525 make it FAT16
	// (Microsoft, FAT: General Overview of On-Disk Format, 1.03).
	minimum     = 40 << 20
	defaultSize = 128 << 20
	// clusters of up to 4 KiB below 8 GiB.
	cluster = 4 << 10
)

// environment guards SOURCE_DATE_EPOCH, from which the file system's writer takes
// its times and nowhere else.
var environment sync.Mutex

// Write writes the card's image to the file at path, which appears only when it
// is whole. What is not used takes no room on a disk that knows holes.
func (c *Card) Write(path string) error {
	size, err := c.size()
	if err != nil {
		return fmt.Errorf("card %s: %w", path, err)
	}
	return artifact.Write(path, func(f *os.File) error {
		if err := f.Truncate(size); err != nil {
			return err
		}
		return c.fill(f, size)
	})
}

// size checks the files and returns the size of the image.
func (c *Card) size() (int64, error) {
	need := int64(0)
	seen := map[string]bool{}
	for _, f := range c.Files {
		if !fs.ValidPath(f.Name) || f.Name == "." || strings.ContainsAny(f.Name, `"*:<>?\|`) {
			return 0, fmt.Errorf("%q is no name for a file on FAT", f.Name)
		}
		lower := strings.ToLower(f.Name)
		if seen[lower] {
			return 0, fmt.Errorf("two files %q: FAT does not tell capitals apart", f.Name)
		}
		seen[lower] = true
		if len(f.Data) == 0 {
			return 0, fmt.Errorf("%s is empty", f.Name)
		}
		if len(f.Data) >= math.MaxUint32 {
			return 0, fmt.Errorf("%s has %d bytes, FAT takes fewer than 4 GiB", f.Name, len(f.Data))
		}
		// Its folders and entries are within another cluster each.
		need += (int64(len(f.Data))+cluster-1)/cluster*cluster + int64(1+strings.Count(f.Name, "/"))*cluster
	}
	// Two tables of 4 bytes a cluster of 512, and the reserved sectors.
	need = start + need + need/64 + 64<<10
	if c.Time.Year() < 1980 || c.Time.Year() > 2107 {
		return 0, fmt.Errorf("time %v: FAT knows 1980 to 2107", c.Time)
	}
	if len(c.Label) > 11 {
		return 0, fmt.Errorf("label %q has more than 11 characters", c.Label)
	}
	size := c.Size
	if size == 0 {
		size = max(defaultSize, (need+c.Spare)*5/4)
	}
	size -= size % sector
	if size < start+minimum {
		return 0, fmt.Errorf("%d bytes, FAT32 needs at least %d: %w", size, start+minimum, ErrTooSmall)
	}
	if size < need {
		return 0, fmt.Errorf("%d bytes, the files need %d: %w", size, need, ErrTooSmall)
	}
	if size > math.MaxUint32*sector {
		return 0, fmt.Errorf("%d bytes, a partition table of this kind takes 2 TiB", size)
	}
	return size, nil
}

func (c *Card) fill(f *os.File, size int64) (err error) {
	environment.Lock()
	defer environment.Unlock()
	const name = "SOURCE_DATE_EPOCH"
	if old, ok := os.LookupEnv(name); ok {
		defer func() { err = errors.Join(err, os.Setenv(name, old)) }()
	} else {
		defer func() { err = errors.Join(err, os.Unsetenv(name)) }()
	}
	if err := os.Setenv(name, strconv.FormatInt(c.Time.Unix(), 10)); err != nil {
		return err
	}

	// Whoever opened the file closes it: the disk is not closed here.
	d, err := diskfs.OpenBackend(file.New(f, false), diskfs.WithSectorSize(diskfs.SectorSize512))
	if err != nil {
		return err
	}
	table := &mbr.Table{LogicalSectorSize: sector, PhysicalSectorSize: sector, Partitions: []*mbr.Partition{
		{Index: 1, Bootable: true, Type: mbr.Fat32LBA, Start: start / sector, Size: uint32((size - start) / sector)},
	}}
	if err := d.Partition(table); err != nil {
		return fmt.Errorf("partition table: %w", err)
	}
	v, err := d.CreateFilesystem(disk.FilesystemSpec{Partition: 1, FSType: filesystem.TypeFat32, VolumeLabel: c.Label, Reproducible: true})
	if err != nil {
		return fmt.Errorf("file system: %w", err)
	}
	files := slices.Clone(c.Files)
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	for _, x := range files {
		if err := write(v, x); err != nil {
			return fmt.Errorf("%s: %w", x.Name, err)
		}
	}
	return repair(f)
}

func write(v filesystem.FileSystem, f File) error {
	if dir := path.Dir(f.Name); dir != "." {
		if err := v.Mkdir(dir); err != nil {
			return err
		}
	}
	w, err := v.OpenFile(f.Name, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return err
	}
	n, err := w.Write(f.Data)
	if err == nil && n < len(f.Data) {
		err = fmt.Errorf("%d bytes of %d were written", n, len(f.Data))
	}
	return errors.Join(err, w.Close())
}

// Read reads the files of a card's image, for checks.
func Read(image string) ([]File, error) {
	d, err := diskfs.Open(image, diskfs.WithOpenMode(diskfs.ReadOnly))
	if err != nil {
		return nil, fmt.Errorf("card %s: %w", image, err)
	}
	defer d.Close()
	v, err := d.GetFilesystem(1)
	if err != nil {
		return nil, fmt.Errorf("card %s: %w", image, err)
	}
	var out []File
	err = fs.WalkDir(v, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := fs.ReadFile(v, name)
		out = append(out, File{name, data})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("card %s: %w", image, err)
	}
	return out, nil
}
