// Package files reads one file of a folder beneath a root: best effort, bounded, and never out of the folder.
//
// Whoever can write to a root (that of a cloned project, say) must not make the client read something else, wait, or run
// out of memory. So each part of the path is looked at before it is opened, from the folder that it is in, and no link is
// followed but by this package itself: that of a folder within the root, and that of the file within its folder, since not
// all that is in a project is for the model's eyes. Nor is one that appears in between: the file is unreadable then.
package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// MaxBytes is the most bytes of a memory file (a limit of the server).
const MaxBytes = 1_048_576

// mostLinks is how many symbolic links one path may lead over, as on Linux: more are a circle.
const mostLinks = 40

// unreadable is why a file cannot be read, in a few words.
type unreadable string

func (u unreadable) Error() string { return string(u) }

const (
	outside     unreadable = "a symbolic link leads out of its folder"
	linkedTwice unreadable = "it is a symbolic link in a folder that is reached over one"
	circle      unreadable = "its symbolic links go in a circle, or change"
	notAFolder  unreadable = "a part of its path is not a folder"
	forbidden   unreadable = "it may not be read by this user"
	tooLarge    unreadable = "it is larger than 1,048,576 bytes"
)

// Reading is what became of a file.
type Reading struct {
	// Content is what it holds; nil when there is no such file, or Unreadable says why it could not be read.
	Content []byte
	// Unreadable says why it could not be read, in a few words; empty when it could, or when there is no such file.
	Unreadable string
	// Info tells which file it is, when it was read.
	Info os.FileInfo
}

// ReadBeneath reads a file of at most 1 MiB. The names lead to it from the root, and all but the last to its folder: over
// links that stay in the root, which may be one itself. The file may be a link that stays in the folder, where no link led
// there.
func ReadBeneath(root string, names ...string) Reading {
	return readBeneath(open, root, names)
}

func readBeneath(open func(root string, names []string) (*os.File, error), root string, names []string) Reading {
	file, err := open(root, names)
	if err != nil {
		return failed(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return failed(err)
	}
	if err := checkKind(info.Mode()); err != nil {
		return failed(err)
	}
	if info.Size() > MaxBytes {
		return failed(tooLarge)
	}
	content, err := io.ReadAll(io.LimitReader(file, MaxBytes+1))
	switch {
	case err != nil:
		return failed(err)
	case len(content) > MaxBytes:
		return failed(tooLarge)
	}
	return Reading{Content: content, Info: info}
}

func failed(err error) Reading {
	var reason unreadable
	var number syscall.Errno
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Reading{}
	case errors.As(err, &reason):
	case errors.Is(err, fs.ErrPermission):
		reason = forbidden
	case errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.EINVAL): // The latter: a link that is none any more.
		reason = circle
	case errors.Is(err, syscall.ENOTDIR):
		reason = notAFolder
	case errors.As(err, &number):
		reason = unreadable(number.Error())
	default:
		reason = "it cannot be read"
	}
	return Reading{Unreadable: string(reason)}
}

func checkKind(mode fs.FileMode) error {
	kind := "something else"
	switch {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		kind = "a folder"
	case mode&fs.ModeNamedPipe != 0:
		kind = "a pipe"
	case mode&fs.ModeSocket != 0:
		kind = "a socket"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	}
	return unreadable("it is " + kind + ", not a file")
}

// inside is an absolute path, as it is to be walked from the folder.
func inside(folder, target string) (string, error) {
	bases := []string{}
	if absolute, err := filepath.Abs(folder); err == nil {
		bases = append(bases, absolute)
	}
	if real, err := filepath.EvalSymlinks(folder); err == nil {
		if real, err = filepath.Abs(real); err == nil {
			bases = append(bases, real)
		}
	}
	for _, base := range bases {
		if rest, found := strings.CutPrefix(target+"/", strings.TrimRight(base, "/")+"/"); found {
			return rest, nil
		}
	}
	return "", outside
}

// resolved opens the file where a platform cannot walk: what changes between look and opening is not noticed.
func resolved(root string, names []string) (*os.File, error) {
	base, err := realPath(root)
	if err != nil {
		return nil, err
	}
	last := len(names) - 1
	plain := filepath.Join(append([]string{base}, names[:last]...)...)
	folder, err := realPath(plain)
	if err != nil {
		return nil, err
	}
	path, err := realPath(filepath.Join(folder, names[last]))
	if err != nil {
		return nil, err
	}
	switch {
	case !beneath(base, folder):
		return nil, outside
	case folder != plain && path != filepath.Join(folder, names[last]):
		return nil, linkedTwice
	case !beneath(folder, path):
		return nil, outside
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if err := checkKind(info.Mode()); err != nil {
		return nil, err
	}
	return os.Open(path)
}

func realPath(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	return filepath.Abs(real)
}

func beneath(folder, path string) bool {
	relative, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(relative)
}
