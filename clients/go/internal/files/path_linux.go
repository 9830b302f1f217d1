package files

import "golang.org/x/sys/unix"

// pathOnly opens folders that may be passed though not read.
const pathOnly = unix.O_PATH
