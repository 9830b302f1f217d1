//go:build !unix

package files

var open = resolved
