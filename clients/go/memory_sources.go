package memoryd

import (
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/memoryd/memoryd/clients/go/internal/files"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

const (
	memoryHome        = ".openhands"
	memoryFolder      = "memory"
	mostLabelBytes    = 4_096
	mostUnreadable    = 256
	homeUnknown       = "the home folder is not known"
	memoryHomeSetting = "OH_PERSISTENCE_DIR"
)

// sourceReading is an index as it was read from the disk.
type sourceReading struct {
	files.Reading
	label string // its path, as the model is to see it
	place string // where it is, or would be, links resolved; empty when that is not known
}

func (r sourceReading) source() *memorydv1.MemorySource {
	source := &memorydv1.MemorySource{Label: r.label}
	switch {
	case r.Unreadable != "":
		source.Source = &memorydv1.MemorySource_Unreadable{Unreadable: cutBytes(r.Unreadable, mostUnreadable)}
	case r.Info != nil:
		source.Source = &memorydv1.MemorySource_Data{Data: r.Content}
	}
	return source
}

// isSameFile says whether both are one file, by whatever way, or would be once it is made.
func (r sourceReading) isSameFile(other sourceReading) bool {
	if r.Info != nil && other.Info != nil {
		return os.SameFile(r.Info, other.Info)
	}
	return r.place != "" && r.place == other.place
}

func readSource(root, label string, names ...string) sourceReading {
	return sourceReading{
		Reading: files.ReadBeneath(root, names...),
		label:   label,
		place:   placeOf(filepath.Join(append([]string{root}, names...)...)),
	}
}

// placeOf is a path with the links of what there is of it resolved.
func placeOf(path string) string {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	rest := ""
	for {
		if real, err := filepath.EvalSymlinks(absolute); err == nil {
			return filepath.Join(real, rest)
		}
		parent := filepath.Dir(absolute)
		if parent == absolute {
			return ""
		}
		rest = filepath.Join(filepath.Base(absolute), rest)
		absolute = parent
	}
}

// readUserFiles reads the index of the user tier: in a folder; in the usual one where none is named.
func readUserFiles(folder string) sourceReading {
	if folder == "" {
		// Empty is as good as not set.
		home := os.Getenv(memoryHomeSetting)
		if home == "" {
			home = filepath.Join("~", memoryHome)
		}
		folder = filepath.Join(home, memoryFolder)
	}
	expanded, known := withHome(folder)
	if !known {
		label := filepath.ToSlash(filepath.Join(folder, MemoryIndex))
		return sourceReading{Reading: files.Reading{Unreadable: homeUnknown}, label: label}
	}
	return readSource(expanded, withTilde(filepath.Join(expanded, MemoryIndex)), MemoryIndex)
}

// readProjectFiles reads the index of the project tier in a workspace.
func readProjectFiles(workspace string) sourceReading {
	label := strings.Join([]string{memoryHome, memoryFolder, MemoryIndex}, "/")
	expanded, known := withHome(workspace)
	if !known {
		return sourceReading{Reading: files.Reading{Unreadable: homeUnknown}, label: label}
	}
	reading := readSource(expanded, label, memoryHome, memoryFolder, MemoryIndex)
	if reading.Info == nil && reading.Unreadable == "" {
		if info, err := os.Stat(expanded); err != nil || !info.IsDir() {
			reading = sourceReading{
				Reading: files.Reading{Unreadable: "there is no folder " + withTilde(expanded)}, label: label,
			}
		}
	}
	return reading
}

// withHome is a path in which ~ at the beginning stands for the home folder; false when that is not known.
func withHome(path string) (string, bool) {
	rest, found := strings.CutPrefix(path, "~")
	if !found || rest != "" && !os.IsPathSeparator(rest[0]) {
		return path, true
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, rest), err == nil
}

// withTilde is a path from the root on, or from the home folder where it is in there, as text that a request can carry.
func withTilde(path string) string {
	label := path
	if absolute, err := filepath.Abs(path); err == nil {
		label = absolute
		if home, err := os.UserHomeDir(); err == nil {
			home = strings.TrimRight(filepath.Clean(home), string(filepath.Separator)) + string(filepath.Separator)
			if rest, found := strings.CutPrefix(label, home); found {
				label = "~" + string(filepath.Separator) + rest
			}
		}
	}
	return cutBytes(strings.ToValidUTF8(filepath.ToSlash(label), "\uFFFD"), mostLabelBytes)
}

// cutBytes is the beginning of a text that has at most so many bytes.
func cutBytes(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
