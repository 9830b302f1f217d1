package memoryd

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const errorDomain = "memoryd"

// Error is the error of a failed call. [errors.Is] compares it with a [Reason] such as [ErrSessionNotFound], with a
// [Class] such as [ErrUnavailable], and with [context.DeadlineExceeded] and [context.Canceled].
type Error struct {
	// Message says what happened and what to do.
	Message string
	// Code is the gRPC status.
	Code codes.Code
	// Reason is memoryd's; empty when no server of memoryd answered.
	Reason Reason
	// Metadata is what the reason tells about this case; the comments of the reasons name the keys.
	Metadata map[string]string
	// RetryAfter is the pause that the server asks for before a further try; 0 when it does not say.
	RetryAfter time.Duration

	tls   bool
	cause error
}

// Error tells the message, and the correlation id where there is one.
func (e *Error) Error() string {
	if id := e.CorrelationID(); id != "" {
		return fmt.Sprintf("memoryd: %s (correlation id %s)", e.Message, id)
	}
	return "memoryd: " + e.Message
}

// CorrelationID finds the call in the server's log; empty when no server of memoryd answered.
func (e *Error) CorrelationID() string { return e.Metadata["correlation_id"] }

// Field is the path in the request of what is wrong with it, for example session.agent; empty when the error names none.
func (e *Error) Field() string { return e.Metadata["field"] }

// Actual is the number that the server has in the place of the expected one: the session's last seq of an
// [ErrLastSeqMismatch], the bytes or items of an [ErrFieldTooLarge]; 0 when the error tells none.
func (e *Error) Actual() int64 { return e.number("actual") }

func (e *Error) number(key string) int64 {
	number, _ := strconv.ParseInt(e.Metadata[key], 10, 64)
	return number
}

// Unwrap gives gRPC's error, or what else led to this one; nil when there is none.
func (e *Error) Unwrap() error { return e.cause }

// GRPCStatus gives the status, for status.FromError and status.Code.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Message) }

// Is says whether the error has the target's reason or is of its class.
func (e *Error) Is(target error) bool {
	switch target := target.(type) {
	case Reason:
		switch {
		case e.Reason != "":
			return e.Reason == target
		case target == ErrMethodUnknown:
			return e.Code == codes.Unimplemented
		}
		return false
	case Class:
		return target.holds(e)
	}
	switch target {
	case context.DeadlineExceeded:
		return e.Code == codes.DeadlineExceeded
	case context.Canceled:
		return e.Code == codes.Canceled
	}
	return false
}

// Class is a class of errors, by what a caller can do about them: a target of [errors.Is].
type Class string

const (
	// ErrInvalidArgument: a field of the request is missing or has a value that it cannot have; [Error.Field] names it.
	ErrInvalidArgument Class = "invalid argument"
	// ErrUnauthenticated: the server does not know who calls. Trying again does not help.
	ErrUnauthenticated Class = "unauthenticated"
	// ErrNotFound: what the call names does not exist.
	ErrNotFound Class = "not found"
	// ErrAlreadyExists: an id is known with other content, or a name is taken. Nothing was written.
	ErrAlreadyExists Class = "already exists"
	// ErrAborted: the call lost against another one. Read again, then decide.
	ErrAborted Class = "aborted"
	// ErrFailedPrecondition: the state of the session or of the run does not allow the call.
	ErrFailedPrecondition Class = "failed precondition"
	// ErrResourceExhausted: a quota is used up, or a message is larger than what gRPC lets through.
	ErrResourceExhausted Class = "resource exhausted"
	// ErrUnavailable: the server, or the store behind it, did not answer, also after retries. An append may have been
	// stored all the same: append the same messages again, and they are stored once.
	ErrUnavailable Class = "unavailable"
	// ErrServerUnavailable: no server answers at the client's address. It is an ErrUnavailable too.
	ErrServerUnavailable Class = "server unavailable"
	// ErrTLSFailed: client and server do not agree on TLS, or the client does not trust the server's certificate. It is
	// an ErrServerUnavailable too.
	ErrTLSFailed Class = "TLS failed"
	// ErrDeadlineExceeded: the call took longer than its context or the client's timeout allows, in the client or in the
	// server. It is [context.DeadlineExceeded] too. A change may have been made all the same.
	ErrDeadlineExceeded Class = "deadline exceeded"
	// ErrAnswerUnreadable: the answer is not whole.
	ErrAnswerUnreadable Class = "answer unreadable"
)

// Error is the name of the class.
func (c Class) Error() string { return "memoryd: " + string(c) }

var classCodes = map[Class]codes.Code{
	ErrInvalidArgument:    codes.InvalidArgument,
	ErrUnauthenticated:    codes.Unauthenticated,
	ErrNotFound:           codes.NotFound,
	ErrAlreadyExists:      codes.AlreadyExists,
	ErrAborted:            codes.Aborted,
	ErrFailedPrecondition: codes.FailedPrecondition,
	ErrResourceExhausted:  codes.ResourceExhausted,
	ErrUnavailable:        codes.Unavailable,
	ErrDeadlineExceeded:   codes.DeadlineExceeded,
	ErrAnswerUnreadable:   codes.DataLoss,
}

func (c Class) holds(e *Error) bool {
	switch c {
	case ErrServerUnavailable:
		return e.Code == codes.Unavailable && e.Reason == ""
	case ErrTLSFailed:
		return e.tls
	}
	code, known := classCodes[c]
	return known && e.Code == code
}

// ErrClosed is the error of calls of a client that is closed.
var ErrClosed = errors.New("memoryd: this client is closed; make a new one")

var (
	certificateNames = "the certificate of the server at %s is for other names: give the client an address with one of " +
		"its names, or the server a certificate for this one"
	// Patterns of texts of gRPC and crypto/tls, and what they mean. The texts are no part of their interfaces: where none
	// fits, they are told as they are.
	signsOfTLS = []struct {
		pattern *regexp.Regexp
		meaning string
	}{
		{regexp.MustCompile(`certificate has expired`), "the certificate of the server at %s has expired (or a clock is " +
			"wrong): its operator must renew it"},
		{regexp.MustCompile(`certificate is (not )?valid for|doesn't contain any IP SANs|not valid for any names`),
			certificateNames},
		{regexp.MustCompile(`unknown authority|certificate is not trusted|failed to verify certificate`), "the certificate " +
			"of the server at %s is not from a CA that the client trusts: give the right one by WithCA or WithCAFile"},
		{regexp.MustCompile(`first record does not look like a TLS handshake`), "the server at %s does not speak TLS: leave " +
			"out WithTLS, WithCA and WithCAFile, or have its operator give it a certificate"},
		{regexp.MustCompile(`authentication handshake failed`), "the server at %s broke off the TLS handshake: its " +
			"certificate may be one that it cannot use"},
		{regexp.MustCompile(`error reading server preface`), "the server at %s closed the connection at once: it may ask " +
			"for TLS, or be shutting down; for one with TLS, give WithCA (the certificate of its CA) or WithTLS"},
	}
)

// By whether the method is tried again.
var slow = map[bool]string{
	true: "The server is busy, or it or its store was unavailable and the call was tried again until then: see the " +
		"server's log, and Client.Stores tells which stores answer now. Or give a longer deadline. A change may have been " +
		"made all the same: an append of the same messages is safe to repeat, and so is what you gave a RequestID",
	false: "See in the server's log whether it is busy, or give a longer deadline. The change may have been made all the " +
		"same: read before you repeat it",
}

// typedError makes the typed error of a failed call. Without an ErrorInfo of memoryd the failure comes from the transport,
// and the text says which address was tried. The request is for what cannot be sent of it; nil where none is at hand.
func typedError(failed error, address, method string, request any, took time.Duration) error {
	var known *Error
	if errors.As(failed, &known) {
		return failed
	}
	told := status.FromContextError(failed)
	var carrier interface{ GRPCStatus() *status.Status }
	if errors.As(failed, &carrier) {
		told = carrier.GRPCStatus()
	}
	e := &Error{Message: told.Message(), Code: told.Code(), cause: failed}
	for _, detail := range told.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.GetDomain() == errorDomain {
				e.Reason, e.Metadata = Reason(detail.GetReason()), detail.GetMetadata()
			}
		case *errdetails.RetryInfo:
			e.RetryAfter = detail.GetRetryDelay().AsDuration()
		}
	}
	if e.Reason != "" {
		return e
	}
	name := method[strings.LastIndex(method, "/")+1:]
	switch e.Code {
	case codes.Unavailable:
		e.Message, e.tls = unreachable(address, e.Message)
	case codes.DeadlineExceeded:
		e.Message = fmt.Sprintf("%s did not end within %s at %s (%s). %s",
			name, took.Round(time.Millisecond), address, e.Message, slow[isRetried(method)])
	case codes.Canceled:
		e.Message = fmt.Sprintf("%s was cancelled", name)
	case codes.Unimplemented:
		e.Message = fmt.Sprintf("the server at %s does not know %s: it is older than this client, or not memoryd (%s)",
			address, name, e.Message)
	case codes.Internal:
		if strings.Contains(e.Message, "error while marshaling") {
			e.Code = codes.InvalidArgument
			if named := notUTF8(request); named != nil {
				e.Message, e.Metadata = named.Message, named.Metadata
			} else {
				e.Message = fmt.Sprintf("the request of %s cannot be sent, and no server saw it: %s", name, e.Message)
			}
			break
		}
		fallthrough
	default:
		e.Message = fmt.Sprintf("%s failed at %s with %s: %s", name, address, e.Code, e.Message)
	}
	return e
}

// unreachable says what keeps a client from its server, as far as gRPC's text tells, and whether that is TLS.
func unreachable(address, text string) (string, bool) {
	for _, sign := range signsOfTLS {
		if sign.pattern.MatchString(text) {
			return fmt.Sprintf(sign.meaning, address) + " (gRPC: " + text + ")", true
		}
	}
	return fmt.Sprintf("no memoryd server answers at %s: %s. Start one with `memoryd serve`, or give the client the address "+
		"of one that runs", address, text), false
}

// hasReason says whether an error has one of the reasons.
func hasReason(err error, reasons ...Reason) bool {
	for _, reason := range reasons {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}
