package memoryd_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	memoryd "github.com/memoryd/memoryd/clients/go"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

func TestWithoutAServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	address := listener.Addr().String()
	silent := newClient(t, address, memoryd.WithTimeout(300*time.Millisecond)) // It accepts, and says nothing.
	begun := time.Now()
	_, err = silent.Session("a", "b").Info(t.Context())
	failure := failsWith(t, err, memoryd.ErrDeadlineExceeded)
	if !errors.Is(err, context.DeadlineExceeded) || status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v is of another kind", err)
	}
	if took := time.Since(begun); took > 2*time.Second || !strings.Contains(failure.Message, "GetSession did not end within") {
		t.Errorf("got %v after %v", err, took)
	}
	ok(t, listener.Close())
	gone := newClient(t, address)
	_, err = gone.Agent("a").Update(t.Context(), memoryd.LoadMemory(true)) // It is not tried again.
	failure = failsWith(t, err, memoryd.ErrServerUnavailable)
	if !errors.Is(err, memoryd.ErrUnavailable) || errors.Is(err, memoryd.ErrTLSFailed) ||
		!strings.Contains(failure.Message, "no memoryd server answers at "+address) {
		t.Errorf("got %v", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = gone.Stores(cancelled)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	short, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	memory, err := gone.RenderContext(short, memoryd.StoredUser("ana"))
	ok(t, err)
	if memory.Enabled || memory.Prompt() != "" || len(memory.Warnings) != 1 || memory.User.State != memoryd.TierUnreadable {
		t.Errorf("got %v", memory)
	}
	ok(t, gone.Close())
	ok(t, gone.Close())
	if _, err = gone.Stores(t.Context()); !errors.Is(err, memoryd.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if _, err = gone.Session("a", "b").Watch(t.Context()); !errors.Is(err, memoryd.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestWhatCannotBeSentIsNamed(t *testing.T) {
	ctx, session, _ := newSession(t)
	fine := memoryd.User("Hello!")
	for field, message := range map[string]*memoryd.Message{
		"messages[1].content.parts[0].text":                      memoryd.User("a\xff"),
		"messages[1].name":                                       memoryd.User("a", memoryd.Named("\xff")),
		"messages[1].content.parts[0].tool_result.parts[0].text": memoryd.Tool("c", "\xff"),
		"messages[1].content.parts[0].tool_call":                 memoryd.CallTools(nil),
		"messages[1].content.parts[1].tool_call":                 memoryd.Assistant("a", memoryd.WithCalls(nil)),
		"messages[1].content.parts[0].tool_result":               memoryd.NewMessage(memoryd.RoleTool, []*memoryd.Part{memoryd.ResultPart(nil)}),
		"messages[1].content.parts[0].tool_result.parts[0]":      memoryd.ToolParts("c", []*memoryd.Part{nil}),
		"messages[1].content.parts[0]":                           memoryd.NewMessage(memoryd.RoleUser, []*memoryd.Part{nil}),
		"messages[1]":                                            nil,
	} {
		t.Run(field, func(t *testing.T) {
			_, err := session.Append(ctx, []*memoryd.Message{fine, message})
			failure := failsWith(t, err, memoryd.ErrInvalidArgument)
			equal(t, "field", failure.Field(), field)
			if message != nil && !strings.Contains(failure.Message, message.Id) {
				t.Errorf("%v does not name the message", err)
			}
			remedy := "leave"
			if strings.HasSuffix(field, "text") || strings.HasSuffix(field, "name") {
				remedy = "strings.ToValidUTF8"
			}
			if !strings.Contains(failure.Message, remedy) {
				t.Errorf("%v does not say what to do", err)
			}
		})
	}
	_, err := session.Info(ctx)
	failsWith(t, err, memoryd.ErrSessionNotFound)
	_, err = session.Append(ctx, []*memoryd.Message{fine}, memoryd.SessionSettings{Labels: map[string]string{"a\xff": ""}})
	failure := failsWith(t, err, memoryd.ErrInvalidArgument)
	if !strings.HasPrefix(failure.Field(), "create.labels[") {
		t.Errorf("got %v", err)
	}
	_, err = session.Append(ctx, nil)
	failure = failsWith(t, err, memoryd.ErrInvalidArgument)
	if failure.CorrelationID() == "" || !strings.Contains(err.Error(), failure.CorrelationID()) {
		t.Errorf("got %v", err)
	}
}

func TestEveryReasonAndMethodIsKnown(t *testing.T) {
	source, err := os.ReadFile("reasons.go")
	ok(t, err)
	var known []string
	for _, found := range regexp.MustCompile(`Reason = "(\w+)"`).FindAllStringSubmatch(string(source), -1) {
		known = append(known, found[1])
	}
	for number, name := range memorydv1.ErrorReason_name {
		if number != 0 && !slices.Contains(known, strings.TrimPrefix(name, "ERROR_REASON_")) {
			t.Errorf("reasons.go lacks %s", name)
		}
	}
	equal(t, "reasons", len(known), len(memorydv1.ErrorReason_name)-1)
}

// certificate makes a certificate for 127.0.0.1 of an authority of its own, and gives the authority's.
func certificate(t *testing.T, directory string, ip net.IP) (authority []byte, flags []string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(t, err)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	signed, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	ok(t, err)
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(t, err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), IPAddresses: []net.IP{ip}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
	}
	leafSigned, err := x509.CreateCertificate(rand.Reader, leaf, ca, &leafKey.PublicKey, key)
	ok(t, err)
	encodedKey, err := x509.MarshalPKCS8PrivateKey(leafKey)
	ok(t, err)
	write := func(name, kind string, content []byte) string {
		path := filepath.Join(directory, name)
		ok(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600))
		return path
	}
	flags = []string{
		"--tls-certificate", write("server.pem", "CERTIFICATE", leafSigned),
		"--tls-key", write("server.key", "PRIVATE KEY", encodedKey),
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), flags
}

func TestTokensAndTLS(t *testing.T) {
	directory := t.TempDir()
	authority, flags := certificate(t, directory, net.IPv4(127, 0, 0, 1))
	other, _ := certificate(t, t.TempDir(), net.IPv4(127, 0, 0, 1))
	tokens := filepath.Join(directory, "tokens")
	binary, err := findBinary()
	ok(t, err)
	create := exec.Command(binary, "token", "create", "--file", tokens, "--tenant", "acme")
	create.Env = serverEnvironment()
	output, err := create.Output()
	ok(t, err)
	token := regexp.MustCompile(`memoryd_\S+`).FindString(string(output))
	server := ownServer(t, anyPort, append(flags, "--store", "main=memory://", "--tokens-file", tokens)...)

	stores := func(options ...memoryd.Option) error {
		_, err := newClient(t, server.address, append(options, memoryd.WithTimeout(20*time.Second))...).
			Agent("a").Update(t.Context(), memoryd.LoadMemory(true))
		return err
	}
	path := filepath.Join(directory, "ca.pem")
	ok(t, os.WriteFile(path, authority, 0o600))
	ok(t, stores(memoryd.WithCA(authority), memoryd.WithToken(token)))
	ok(t, stores(memoryd.WithCAFile(path), memoryd.WithToken(token)))
	failsWith(t, stores(memoryd.WithCA(authority)), memoryd.ErrCredentialMissing)
	wrong := stores(memoryd.WithCA(authority), memoryd.WithToken("memoryd_wrong"))
	failsWith(t, wrong, memoryd.ErrCredentialInvalid)
	failsWith(t, wrong, memoryd.ErrUnauthenticated)
	for name, options := range map[string][]memoryd.Option{
		"not from a CA that the client trusts": {memoryd.WithCA(other)},
		"give the right one by WithCA":         {memoryd.WithTLS()},
		"it may ask for TLS":                   {},
	} {
		err := stores(options...)
		failure := failsWith(t, err, memoryd.ErrTLSFailed)
		if !errors.Is(err, memoryd.ErrServerUnavailable) || !strings.Contains(failure.Message, name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	plain := newClient(t, shared.address, memoryd.WithTLS())
	_, err = plain.Agent("a").Update(t.Context(), memoryd.LoadMemory(true))
	if failure := failsWith(t, err, memoryd.ErrTLSFailed); !strings.Contains(failure.Message, "does not speak TLS") {
		t.Errorf("got %v", err)
	}
}

func TestOptionsThatAreWrong(t *testing.T) {
	ok := []memoryd.Option{memoryd.WithToken("memoryd_a")}
	for complaint, options := range map[string][]memoryd.Option{
		"unencrypted":            ok,
		"the token is empty":     {memoryd.WithToken("")},
		"the token holds white":  {memoryd.WithToken("a\n")},
		"the timeout is 0s":      {memoryd.WithTimeout(0)},
		"the store is":           {memoryd.WithStore("")},
		"holds no certificate":   {memoryd.WithCA([]byte("nothing"))},
		"the CA cannot be read":  {memoryd.WithCAFile("/nowhere")},
		"the address is empty":   nil,
		"no client of \x00:\x00": {},
	} {
		address := "memory.example.com:7600"
		switch complaint {
		case "the address is empty":
			address = ""
		case "no client of \x00:\x00":
			address = "\x00:\x00"
		}
		if _, err := memoryd.New(address, options...); err == nil || !strings.Contains(err.Error(), complaint) {
			t.Errorf("%q: got %v", complaint, err)
		}
	}
	for _, address := range []string{"127.0.0.1:7600", "localhost:7600", "[::1]:7600", "::1", "unix:/run/memoryd"} {
		client, err := memoryd.New(address, ok...)
		if err != nil {
			t.Errorf("%s: got %v", address, err)
			continue
		}
		_ = client.Close()
	}
	client, err := memoryd.New("memory.example.com:7600", append(ok, memoryd.WithTokenWithoutTLS())...)
	if err != nil {
		t.Fatal(err)
	}
	_ = client.Close()
}
