package memoryd_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	memoryd "github.com/memoryd/memoryd/clients/go"
)

// shared is the server of the tests that change nothing of it.
var shared *server

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	binary, err := findBinary()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	shared, err = startServer(binary, anyPort, "--store", "main=memory://", "--store", "other=memory://", "--default-store", "main")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer shared.stop()
	return m.Run()
}

func findBinary() (string, error) {
	if given := os.Getenv("TEST_MEMORYD"); given != "" {
		return given, nil
	}
	if found, err := exec.LookPath("memoryd"); err == nil {
		return found, nil
	}
	const inRepository = "../../.venv/bin/memoryd"
	if _, err := os.Stat(inRepository); err == nil {
		return inRepository, nil
	}
	return "", fmt.Errorf("the tests need a server: put memoryd on the PATH, run `make install` in the repository, or name it " +
		"in TEST_MEMORYD")
}

// server is a real server on a port of its own.
type server struct {
	address string
	process *exec.Cmd
	ended   chan struct{}
	said    strings.Builder
}

var serving = regexp.MustCompile(`memoryd serves on (\S+)`)

// anyPort has a server take a free port.
const anyPort = "127.0.0.1:0"

func startServer(binary, listen string, flags ...string) (*server, error) {
	process := exec.Command(binary, append([]string{"serve", "--listen", listen}, flags...)...)
	process.Env = serverEnvironment()
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	process.Stdout, process.Stderr = writer, writer
	err = process.Start()
	_ = writer.Close()
	if err != nil {
		return nil, err
	}
	s := &server{process: process, ended: make(chan struct{})}
	address := make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(reader)
		for lines.Scan() {
			if found := serving.FindStringSubmatch(lines.Text()); found != nil {
				address <- found[1]
			}
			s.said.WriteString(lines.Text() + "\n")
		}
	}()
	go func() {
		defer close(s.ended)
		_ = process.Wait()
		_ = reader.Close() // Though a process that the server left behind may hold the other end.
	}()
	select {
	case s.address = <-address:
		return s, nil
	case <-time.After(time.Minute):
		s.kill()
		return nil, fmt.Errorf("%s did not serve within a minute", binary)
	case <-s.ended:
		<-read
		return nil, fmt.Errorf("%s did not serve: %s", binary, s.said.String())
	}
}

// serverEnvironment is this process's, without settings of a server.
func serverEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(setting string) bool { return strings.HasPrefix(setting, "MEMORYD_") })
}

// stop drains the server.
func (s *server) stop() {
	_ = s.process.Process.Signal(syscall.SIGTERM)
	<-s.ended
}

// kill ends the server without a word.
func (s *server) kill() {
	_ = s.process.Process.Kill()
	<-s.ended
}

// ownServer starts a server for one test.
func ownServer(t *testing.T, listen string, flags ...string) *server {
	t.Helper()
	binary, err := findBinary()
	if err != nil {
		t.Fatal(err)
	}
	s, err := startServer(binary, listen, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	return s
}

// newClient makes a client of a server for one test.
func newClient(t *testing.T, address string, options ...memoryd.Option) *memoryd.Client {
	t.Helper()
	client, err := memoryd.New(address, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// newSession names a session of the shared server that no other test uses; its agent is the test's own, too.
func newSession(t *testing.T) (context.Context, *memoryd.Session, *memoryd.Client) {
	t.Helper()
	client := newClient(t, shared.address)
	return testContext(t), client.NewSession(newAgent(t)), client
}

func newAgent(t *testing.T) string { return t.Name() + " " + memoryd.NewID()[20:] }

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
