//go:build unix

package files

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	rootFlags   = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_DIRECTORY | unix.O_NONBLOCK | pathOnly
	folderFlags = rootFlags | unix.O_NOFOLLOW
	// O_NONBLOCK: a pipe that stands there all of a sudden has nobody wait for its writer.
	fileFlags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY
)

var open = walked

// walked opens the file, folder by folder.
func walked(root string, names []string) (*os.File, error) {
	last := len(names) - 1
	top, err := unix.Open(root, rootFlags, 0)
	if err != nil {
		return nil, err
	}
	folder, isLinked, err := walk(top, root, names[:last], folderFlags, true)
	unix.Close(top)
	if err != nil {
		return nil, err
	}
	defer unix.Close(folder)
	// Two links together would lead to any file: that of the folder makes any folder the file's own.
	path := filepath.Join(append([]string{root}, names[:last]...)...)
	file, _, err := walk(folder, path, names[last:], fileFlags, !isLinked)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(file), filepath.Join(path, names[last])), nil
}

// walk opens, with these flags, what the names lead to from an open folder, and says whether links led there. No link is
// followed out of that folder, whose path is only to know where in it an absolute link leads.
func walk(top int, path string, names []string, flags int, follows bool) (int, bool, error) {
	left := slices.Clone(names)
	slices.Reverse(left)
	var opened []int
	defer func() {
		for _, descriptor := range opened {
			unix.Close(descriptor)
		}
	}()
	first, err := unix.FcntlInt(uintptr(top), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return 0, false, err
	}
	opened = append(opened, first)
	links := 0
	for len(left) > 0 {
		name := left[len(left)-1]
		left = left[:len(left)-1]
		here := opened[len(opened)-1]
		if name == ".." {
			if len(opened) == 1 {
				return 0, false, outside
			}
			unix.Close(here)
			opened = opened[:len(opened)-1]
			continue
		}
		var stat unix.Stat_t
		if err := unix.Fstatat(here, name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return 0, false, err
		}
		mode := uint32(stat.Mode) & unix.S_IFMT
		if mode == unix.S_IFLNK {
			links++
			if !follows {
				return 0, false, linkedTwice
			}
			if links > mostLinks {
				return 0, false, circle
			}
			target, err := readlink(here, name)
			if err != nil {
				return 0, false, err
			}
			if strings.HasPrefix(target, "/") {
				if target, err = inside(path, target); err != nil {
					return 0, false, err
				}
				for _, descriptor := range opened[1:] {
					unix.Close(descriptor)
				}
				opened = opened[:1]
			}
			parts := strings.Split(target, "/")
			slices.Reverse(parts)
			left = append(left, slices.DeleteFunc(parts, func(part string) bool { return part == "" || part == "." })...)
			continue
		}
		as := folderFlags
		if len(left) == 0 && flags != folderFlags {
			if err := checkKind(kindOf(mode)); err != nil {
				return 0, false, err
			}
			as = flags
		}
		next, err := unix.Openat(here, name, as, 0)
		if err != nil {
			return 0, false, err
		}
		opened = append(opened, next)
	}
	found := opened[len(opened)-1]
	opened = opened[:len(opened)-1]
	if flags != folderFlags && len(opened) == 0 { // A link to the folder itself.
		unix.Close(found)
		return 0, false, checkKind(fs.ModeDir)
	}
	return found, links > 0, nil
}

func readlink(folder int, name string) (string, error) {
	buffer := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(folder, name, buffer)
	if err != nil {
		return "", err
	}
	return string(buffer[:n]), nil
}

func kindOf(mode uint32) fs.FileMode {
	switch mode {
	case unix.S_IFREG:
		return 0
	case unix.S_IFDIR:
		return fs.ModeDir
	case unix.S_IFIFO:
		return fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return fs.ModeSocket
	case unix.S_IFCHR, unix.S_IFBLK:
		return fs.ModeDevice
	}
	return fs.ModeIrregular
}
