//go:build unix && !linux

package files

// pathOnly would open folders that may be passed though not read; this platform does not have it.
const pathOnly = 0
