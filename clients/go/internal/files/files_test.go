//go:build unix

package files

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

var names = []string{".openhands", "memory", "MEMORY.md"}

const (
	memory = "- prefers uv over pip\n"
	secret = "what is outside"
)

type space struct {
	t                  *testing.T
	workspace, outside string
	folder, index      string
}

func (s space) put(path, content string) {
	s.t.Helper()
	s.must(os.MkdirAll(filepath.Dir(path), 0o755))
	s.must(os.WriteFile(path, []byte(content), 0o600))
}

func (s space) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s space) link(to string) { s.must(os.Symlink(to, s.index)) }
func (s space) folderLink(to string) {
	s.must(os.Remove(s.folder))
	s.must(os.Symlink(to, s.folder))
}

func (s space) linkedTwice(to string) {
	s.folderLink(to)
	s.put(filepath.Join(s.workspace, "private", ".env"), secret)
	s.must(os.Symlink(".env", s.index))
}

func newSpace(t *testing.T) space {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := space{t: t, workspace: filepath.Join(root, "workspace"), outside: filepath.Join(root, "outside")}
	s.folder = filepath.Join(s.workspace, ".openhands", "memory")
	s.index = filepath.Join(s.folder, "MEMORY.md")
	s.put(filepath.Join(s.outside, "MEMORY.md"), secret)
	s.put(filepath.Join(s.workspace, ".env"), secret)
	s.put(filepath.Join(s.workspace, ".openhands", "config"), secret)
	s.must(os.MkdirAll(s.folder, 0o755))
	return s
}

func truncated(s space, size int64) {
	s.put(s.index, "")
	s.must(os.Truncate(s.index, size))
}

var traps = map[string]struct {
	spring func(space)
	reason unreadable
}{
	"link out, absolute":            {func(s space) { s.link(filepath.Join(s.outside, "MEMORY.md")) }, outside},
	"link out, relative":            {func(s space) { s.link("../../../outside/MEMORY.md") }, outside},
	"link into the workspace":       {func(s space) { s.link("../../.env") }, outside},
	"link into it, absolute":        {func(s space) { s.link(filepath.Join(s.workspace, ".env")) }, outside},
	"link to what is above":         {func(s space) { s.link("../config") }, outside},
	"link to a name that is alike":  {func(s space) { s.link(s.workspace + "-2/MEMORY.md") }, outside},
	"link to a pipe of the system":  {func(s space) { s.link("/dev/stdin") }, outside},
	"link in a linked folder":       {func(s space) { s.linkedTwice("../private") }, linkedTwice},
	"folder's link out":             {func(s space) { s.folderLink(s.outside) }, outside},
	"folder's link to the root":     {func(s space) { s.folderLink("/") }, outside},
	"links in a circle":             {func(s space) { s.link("MEMORY.md") }, circle},
	"link to a folder":              {func(s space) { s.link(".") }, "it is a folder, not a file"},
	"folder":                        {func(s space) { s.must(os.Mkdir(s.index, 0o755)) }, "it is a folder, not a file"},
	"pipe":                          {func(s space) { s.must(syscall.Mkfifo(s.index, 0o600)) }, "it is a pipe, not a file"},
	"5 GB":                          {func(s space) { truncated(s, 5_000_000_000) }, tooLarge},
	"one byte too large":            {func(s space) { truncated(s, MaxBytes+1) }, tooLarge},
	"file on the way":               {func(s space) { s.must(os.Remove(s.folder)); s.put(s.folder, "") }, notAFolder},
	"link over another link":        {func(s space) { s.link("first"); s.must(os.Symlink("../../.env", filepath.Join(s.folder, "first"))) }, outside},
	"link over a folder's link":     {func(s space) { s.link("all/.env"); s.must(os.Symlink(s.workspace, filepath.Join(s.folder, "all"))) }, outside},
	"link out and back, walked off": {func(s space) { s.link("../memory/notes.md") }, outside},
	"socket": {func(s space) {
		s.t.Chdir(s.folder) // The path of a socket is short.
		listener, err := net.Listen("unix", "MEMORY.md")
		s.must(err)
		s.t.Cleanup(func() { _ = listener.Close() })
	}, "it is a socket, not a file"},
}

func TestWhatIsNoFileOfTheFolderIsUnreadableAtOnce(t *testing.T) {
	for name, trap := range traps {
		t.Run(name, func(t *testing.T) {
			s := newSpace(t)
			trap.spring(s)
			begun := time.Now()
			reading := ReadBeneath(s.workspace, names...)
			if took := time.Since(begun); took > time.Second {
				t.Errorf("it took %v", took)
			}
			if reading.Unreadable != string(trap.reason) || reading.Content != nil || reading.Info != nil {
				t.Errorf("got %+v, want %q", reading, trap.reason)
			}
			// As platforms do that cannot walk: what is resolved as a whole is only looked at where it ends.
			if reading := readBeneath(resolved, s.workspace, names); len(reading.Content) > 0 {
				t.Errorf("resolved, it is read: %q", reading.Content)
			}
		})
	}
	if reading := ReadBeneath("/dev", "zero"); reading.Unreadable != "it is a device, not a file" {
		t.Errorf("got %+v", reading)
	}
}

func TestWhatIsNotThereIsNoError(t *testing.T) {
	s := newSpace(t)
	for name, root := range map[string]string{"file": s.workspace, "workspace": s.workspace + "/nothing"} {
		if reading := ReadBeneath(root, names...); reading.Unreadable != "" || reading.Info != nil {
			t.Errorf("%s: got %+v", name, reading)
		}
	}
	s.link("notes.md")
	if reading := ReadBeneath(s.workspace, names...); reading.Unreadable != "" || reading.Info != nil {
		t.Errorf("got %+v", reading)
	}
}

func TestLinksWithinAreFollowed(t *testing.T) {
	within := func(s space, to string) {
		s.put(filepath.Join(s.folder, "notes", "all.md"), memory)
		s.link(to)
	}
	ofFolder := func(s space, to string) {
		s.put(filepath.Join(s.workspace, "notes", "MEMORY.md"), memory)
		s.folderLink(to)
	}
	for name, prepare := range map[string]func(space){
		"no link":          func(s space) { s.put(s.index, memory) },
		"relative":         func(s space) { within(s, "notes/all.md") },
		"absolute":         func(s space) { within(s, filepath.Join(s.folder, "notes", "all.md")) },
		"by a way around":  func(s space) { within(s, "./notes/..//./notes/./all.md") },
		"of a folder":      func(s space) { ofFolder(s, "../notes") },
		"of one, absolute": func(s space) { ofFolder(s, filepath.Join(s.workspace, "notes")) },
		"of two folders": func(s space) {
			ofFolder(s, "../first")
			s.must(os.Symlink("./notes/../.openhands/../notes", filepath.Join(s.workspace, "first")))
		},
		"of the workspace":  func(s space) { s.put(s.index, memory) },
		"exactly so large":  func(s space) { truncated(s, MaxBytes) },
		"a file of nothing": func(s space) { s.put(s.index, "") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpace(t)
			prepare(s)
			root := s.workspace
			if name == "of the workspace" {
				root = s.outside + "-link"
				s.must(os.Symlink(s.workspace, root))
			}
			for _, open := range []func(string, []string) (*os.File, error){walked, resolved} {
				reading := readBeneath(open, root, names)
				if reading.Unreadable != "" || reading.Info == nil || reading.Content == nil {
					t.Errorf("got %+v", reading)
				}
				if name[:2] != "ex" && name[:2] != "a " && string(reading.Content) != memory {
					t.Errorf("got %q", reading.Content)
				}
			}
		})
	}
}

func TestNoDescriptorIsLeftOpen(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("this platform does not list open files")
		}
		return len(entries)
	}
	before := count()
	for _, trap := range traps {
		s := newSpace(t)
		if trap.reason == "it is a socket, not a file" {
			continue
		}
		trap.spring(s)
		ReadBeneath(s.workspace, names...)
	}
	if after := count(); after > before {
		t.Errorf("%d files were open before, %d are after", before, after)
	}
}
