package memoryd

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"regexp"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Defaults of a client.
const (
	// DefaultAddress is where a server listens that was told nothing else.
	DefaultAddress = "127.0.0.1:7600"
	// DefaultTimeout is what an operation may take whose context has no deadline.
	DefaultTimeout = 30 * time.Second
)

type settings struct {
	address             string
	timeout             time.Duration
	store               string
	token               *string
	roots               *x509.CertPool
	tls                 bool
	tokenWithoutTLS     bool
	logger              *slog.Logger
	dialOptions         []grpc.DialOption
	credentials         credentials.TransportCredentials
	authorizationHeader string
}

// Option sets how a client talks to its server.
type Option func(*settings) error

// WithTimeout sets what an operation may take whose context has no deadline: 30 seconds without it.
func WithTimeout(timeout time.Duration) Option {
	return func(s *settings) error {
		if timeout <= 0 {
			return fmt.Errorf("the timeout is %s; give what an operation may take, more than 0", timeout)
		}
		s.timeout = timeout
		return nil
	}
}

// WithStore uses a store of the server by its name, rather than the server's default.
func WithStore(name string) Option {
	return func(s *settings) error {
		s.store = name
		return checkStore(name)
	}
}

// WithToken shows the server who calls: a token that `memoryd token create` made. The token is never sent unencrypted to
// another machine, unless [WithTokenWithoutTLS] says so.
func WithToken(token string) Option {
	return func(s *settings) error {
		switch {
		case token == "":
			return errors.New("the token is empty; give one that `memoryd token create` made, or leave WithToken out")
		case !printable(token) || strings.Contains(token, " "):
			return errors.New("the token holds white space or characters that no token has; give it as `memoryd token " +
				"create` printed it, without the end of its line")
		}
		s.token = &token
		return nil
	}
}

// WithTokenWithoutTLS sends the token unencrypted, also to another machine: for a network where nobody else can read.
func WithTokenWithoutTLS() Option {
	return func(s *settings) error { s.tokenWithoutTLS = true; return nil }
}

// WithTLS encrypts, and checks the server's certificate against the CAs that this machine trusts. The host of the address
// must be a name of the certificate.
func WithTLS() Option {
	return func(s *settings) error { s.tls = true; return nil }
}

// WithCA encrypts, and checks the server's certificate against your own CA: its certificates in PEM.
func WithCA(pem []byte) Option {
	return func(s *settings) error { return s.trust("the CA", pem) }
}

// WithCAFile is [WithCA] with the path of a PEM file.
func WithCAFile(path string) Option {
	return func(s *settings) error {
		pem, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("the CA cannot be read: %w; give the path of a PEM file", err)
		}
		return s.trust(fmt.Sprintf("the CA %q", path), pem)
	}
}

// WithLogger tells a logger what a client meets on its way, such as a watch that is resumed. [slog.Default] without it.
func WithLogger(logger *slog.Logger) Option {
	return func(s *settings) error { s.logger = logger; return nil }
}

// WithDialOptions gives gRPC further options, such as interceptors for traces; they come behind the client's own.
func WithDialOptions(options ...grpc.DialOption) Option {
	return func(s *settings) error { s.dialOptions = append(s.dialOptions, options...); return nil }
}

func (s *settings) trust(name string, pem []byte) error {
	s.tls = true
	if s.roots == nil {
		s.roots = x509.NewCertPool()
	}
	if !s.roots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s holds no certificate; give one or more, in PEM", name)
	}
	return nil
}

func newSettings(address string, options []Option) (*settings, error) {
	s := &settings{address: address, timeout: DefaultTimeout, logger: slog.Default()}
	if address == "" {
		return nil, fmt.Errorf("memoryd: the address is empty; give the server's host:port, for example %q", DefaultAddress)
	}
	for _, option := range options {
		if err := option(s); err != nil {
			return nil, fmt.Errorf("memoryd: %w", err)
		}
	}
	if s.token != nil && !s.tls && !s.tokenWithoutTLS && !isLoopback(address) {
		return nil, fmt.Errorf("memoryd: the token would go to %s unencrypted, for anybody on the way to read; give WithCA "+
			"(the certificate of the server's CA) or WithTLS (for one from a public CA), or accept it by "+
			"WithTokenWithoutTLS", address)
	}
	if s.token != nil {
		s.authorizationHeader = "Bearer " + *s.token
	}
	s.credentials = insecure.NewCredentials()
	if s.tls {
		s.credentials = credentials.NewTLS(&tls.Config{RootCAs: s.roots, MinVersion: tls.VersionTLS12})
	}
	return s, nil
}

func checkStore(name string) error {
	if name == "" || !printable(name) {
		return fmt.Errorf("the store is %q; the name of a store is printable ASCII", name)
	}
	return nil
}

func printable(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

var port = regexp.MustCompile(`:[0-9]+$`)

// isLoopback says whether an address is this machine's own, so that nobody in between can read along.
func isLoopback(address string) bool {
	if strings.HasPrefix(address, "unix:") || strings.HasPrefix(address, "unix-abstract:") {
		return true
	}
	if ip := net.ParseIP(address); ip != nil {
		return ip.IsLoopback()
	}
	host := port.ReplaceAllString(address, "")
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return ip != nil && ip.IsLoopback()
}
