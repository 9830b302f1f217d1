package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	memoryd "github.com/memoryd/memoryd/clients/go"
	pb "github.com/memoryd/memoryd/clients/go/internal/conformance/conformancepb"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

// fault is the error of what the driver or the SDK cannot do.
type fault string

func (f fault) Error() string { return string(f) }

func faultf(format string, values ...any) error { return fault(fmt.Sprintf(format, values...)) }

// sentinels are what users compare errors with, the narrower ones first: reasons, then classes.
var sentinels = []struct {
	error
	name string
}{
	{memoryd.ErrFieldRequired, "ErrFieldRequired"},
	{memoryd.ErrFieldInvalid, "ErrFieldInvalid"},
	{memoryd.ErrFieldTooLarge, "ErrFieldTooLarge"},
	{memoryd.ErrPageTokenInvalid, "ErrPageTokenInvalid"},
	{memoryd.ErrStoreUnknown, "ErrStoreUnknown"},
	{memoryd.ErrSessionNotFound, "ErrSessionNotFound"},
	{memoryd.ErrMessageNotFound, "ErrMessageNotFound"},
	{memoryd.ErrMessageIDConflict, "ErrMessageIDConflict"},
	{memoryd.ErrRequestIDConflict, "ErrRequestIDConflict"},
	{memoryd.ErrLastSeqMismatch, "ErrLastSeqMismatch"},
	{memoryd.ErrEtagMismatch, "ErrEtagMismatch"},
	{memoryd.ErrContention, "ErrContention"},
	{memoryd.ErrWindowTooLarge, "ErrWindowTooLarge"},
	{memoryd.ErrWindowTooSmall, "ErrWindowTooSmall"},
	{memoryd.ErrWindowChanged, "ErrWindowChanged"},
	{memoryd.ErrStoreUnavailable, "ErrStoreUnavailable"},
	{memoryd.ErrRecordTooLarge, "ErrRecordTooLarge"},
	{memoryd.ErrInternal, "ErrInternal"},
	{memoryd.ErrServerDraining, "ErrServerDraining"},
	{memoryd.ErrServerDeadlineExceeded, "ErrServerDeadlineExceeded"},
	{memoryd.ErrMethodUnknown, "ErrMethodUnknown"},
	{memoryd.ErrCredentialMissing, "ErrCredentialMissing"},
	{memoryd.ErrCredentialInvalid, "ErrCredentialInvalid"},
	{memoryd.ErrSessionExists, "ErrSessionExists"},
	{memoryd.ErrForkInterrupted, "ErrForkInterrupted"},
	{memoryd.ErrResumeTokenInvalid, "ErrResumeTokenInvalid"},
	{memoryd.ErrWatchStalled, "ErrWatchStalled"},
	{memoryd.ErrTooManyWatchers, "ErrTooManyWatchers"},
	{memoryd.ErrSummaryNotFound, "ErrSummaryNotFound"},
	{memoryd.ErrSummaryTaskVoid, "ErrSummaryTaskVoid"},
	{memoryd.ErrOriginalsRemoved, "ErrOriginalsRemoved"},
	{memoryd.ErrSummarizerFailed, "ErrSummarizerFailed"},
	{memoryd.ErrSummariesDisabled, "ErrSummariesDisabled"},
	{memoryd.ErrSummarizerDiffers, "ErrSummarizerDiffers"},
	{memoryd.ErrSummaryUnderWay, "ErrSummaryUnderWay"},
	{memoryd.ErrSecretFound, "ErrSecretFound"},
	{memoryd.ErrMemoryFileNotFound, "ErrMemoryFileNotFound"},
	{memoryd.ErrMemoryFileFull, "ErrMemoryFileFull"},
	{memoryd.ErrRunNotFound, "ErrRunNotFound"},
	{memoryd.ErrRunExists, "ErrRunExists"},
	{memoryd.ErrRunLeaseLost, "ErrRunLeaseLost"},
	{memoryd.ErrRunEnded, "ErrRunEnded"},
	{memoryd.ErrRunNotClaimable, "ErrRunNotClaimable"},
	{memoryd.ErrStepMismatch, "ErrStepMismatch"},
	{memoryd.ErrTooManyRuns, "ErrTooManyRuns"},
	{memoryd.ErrRunUnfinished, "ErrRunUnfinished"},
	{memoryd.ErrTLSFailed, "ErrTLSFailed"},
	{memoryd.ErrServerUnavailable, "ErrServerUnavailable"},
	{memoryd.ErrInvalidArgument, "ErrInvalidArgument"},
	{memoryd.ErrUnauthenticated, "ErrUnauthenticated"},
	{memoryd.ErrNotFound, "ErrNotFound"},
	{memoryd.ErrAlreadyExists, "ErrAlreadyExists"},
	{memoryd.ErrAborted, "ErrAborted"},
	{memoryd.ErrFailedPrecondition, "ErrFailedPrecondition"},
	{memoryd.ErrResourceExhausted, "ErrResourceExhausted"},
	{memoryd.ErrUnavailable, "ErrUnavailable"},
	{memoryd.ErrDeadlineExceeded, "ErrDeadlineExceeded"},
	{memoryd.ErrAnswerUnreadable, "ErrAnswerUnreadable"},
}

// failed is the reply to a command whose method gave an error. What the SDK refuses by itself has no type that users tell
// apart.
func failed(err error) *pb.Reply {
	var known *memoryd.Error
	var mine fault
	switch {
	case errors.As(err, &mine):
		fmt.Fprintln(os.Stderr, mine)
		return &pb.Reply{Fault: mine.Error()}
	case errors.Is(err, memoryd.ErrClosed):
		return failure("ErrClosed", "", err)
	case errors.As(err, &known):
		return &pb.Reply{Failure: &pb.Failure{
			Reason:     memorydv1.ErrorReason(memorydv1.ErrorReason_value["ERROR_REASON_"+string(known.Reason)]),
			Code:       code.Code(known.Code).String(),
			Message:    known.Message,
			Field:      known.Field(),
			Metadata:   known.Metadata,
			RetryAfter: retryAfter(known),
			Type:       typeOf(known),
		}}
	case errors.Is(err, context.DeadlineExceeded):
		return failure("DeadlineExceeded", codeOf(err), err)
	case errors.Is(err, context.Canceled):
		return failure("Canceled", codeOf(err), err)
	}
	if errors.Is(err, io.EOF) {
		return failure("EOF", "", err)
	}
	return failure("error", "", err)
}

func failure(name, code string, err error) *pb.Reply {
	return &pb.Reply{Failure: &pb.Failure{Code: code, Message: err.Error(), Type: name}}
}

func codeOf(err error) string { return code.Code(status.FromContextError(err).Code()).String() }

func retryAfter(err *memoryd.Error) *durationpb.Duration {
	if err.RetryAfter == 0 {
		return nil
	}
	return durationpb.New(err.RetryAfter)
}

func typeOf(err *memoryd.Error) string {
	for _, sentinel := range sentinels {
		if errors.Is(err, sentinel.error) {
			return sentinel.name
		}
	}
	return "Error"
}
