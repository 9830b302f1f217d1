package memoryd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fragmentImports are what the README's functions use together.
const fragmentImports = `package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"time"

	memoryd "github.com/memoryd/memoryd/clients/go"
)
`

func TestTheReadmesProgramsRun(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	ok(t, err)
	root, err := os.ReadFile("../../README.md")
	ok(t, err)
	// In the module, so that no dependency has to be fetched.
	directory, err := os.MkdirTemp(".", "_readme")
	ok(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	fragments := fragmentImports
	for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme)+string(root), -1) {
		if strings.HasPrefix(block[1], "package main") {
			program := strings.ReplaceAll(block[1], "127.0.0.1:7600", shared.address)
			program = strings.Replace(program, "\tfmt.Println(len(window.Messages)", `	all := []error{
		history(ctx, session), policies(ctx, client), summaries(ctx, client), memory(ctx, client), work(ctx, client),
		failures(ctx, session), remember(ctx),
	}
	for _, err := range all {
		if err != nil {
			log.Fatal(err)
		}
	}
	_, _, _ = worker, watch, conversions
	fmt.Println(len(window.Messages)`, 1)
			write(t, filepath.Join(directory, "main.go"), program)
		} else {
			fragments += "\n" + strings.ReplaceAll(block[1], "localhost:7600", shared.address)
		}
	}
	write(t, filepath.Join(directory, "fragments.go"), fragments)
	output, err := exec.CommandContext(testContext(t), "go", "run", "./"+directory).CombinedOutput()
	if err != nil || !strings.Contains(string(output), "5 messages, ") {
		t.Errorf("got %v:\n%s", err, output)
	}
}
