package memoryd_test

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	memoryd "github.com/memoryd/memoryd/clients/go"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

// BenchmarkCalls compares the client with bare generated stubs: an append, and a window of 20 messages, of one caller.
func BenchmarkCalls(b *testing.B) {
	ctx := context.Background()
	client, err := memoryd.New(shared.address)
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	conn, err := grpc.NewClient(shared.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	history, windows := memorydv1.NewHistoryServiceClient(conn), memorydv1.NewWindowServiceClient(conn)
	session := client.NewSession("bench")
	key := &memorydv1.SessionKey{Agent: session.Agent(), SessionId: session.ID()}
	message := func() []*memoryd.Message { return []*memoryd.Message{memoryd.User(fmt.Sprintf("%0200d", 1))} }
	for range 20 {
		if _, err := session.Append(ctx, message()); err != nil {
			b.Fatal(err)
		}
	}
	for name, call := range map[string]func() error{
		"append/client": func() error { _, err := session.Append(ctx, message()); return err },
		"append/stub": func() error {
			_, err := history.AppendMessages(ctx, &memorydv1.AppendMessagesRequest{Session: key, Messages: message()})
			return err
		},
		"window/client": func() error { _, err := session.Window(ctx, memoryd.MaxMessages(20)); return err },
		"window/stub": func() error {
			_, err := windows.LoadWindow(ctx, &memorydv1.LoadWindowRequest{Session: key, Options: &memorydv1.WindowOptions{
				Mode: memoryd.WindowModeMessages.Enum(), Limit: new(int64(20)),
			}})
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := call(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
