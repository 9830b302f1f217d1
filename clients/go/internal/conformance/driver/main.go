// Command driver does with the Go SDK what the runner of the conformance suite tells it, by the methods that a user of the
// SDK would call. tests/conformance/conformance.proto is the contract. It is no part of the SDK.
package main

import (
	"fmt"
	"os"
)

func main() {
	d := newDriver(os.Stdout)
	err := d.serve(os.Stdin)
	d.close()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
