package memoryd_test

import (
	"context"
	"errors"
	"fmt"

	memoryd "github.com/memoryd/memoryd/clients/go"
)

func Example() {
	ctx := context.Background()
	client, err := memoryd.New(address())
	if err != nil {
		panic(err)
	}
	defer client.Close()
	session := client.NewSession("assistant")
	if _, err := session.Append(ctx, []*memoryd.Message{memoryd.User("My project is called Atlas.")}); err != nil {
		panic(err)
	}
	window, err := session.Window(ctx, memoryd.MaxTokens(4_000))
	if err != nil {
		panic(err)
	}
	fmt.Println(string(window.ToOpenAI()))
	// Output: [{"role":"user","content":"My project is called Atlas."}]
}

func ExampleReason() {
	client, err := memoryd.New(address())
	if err != nil {
		panic(err)
	}
	defer client.Close()
	_, err = client.NewSession("assistant").Window(context.Background())
	fmt.Println(errors.Is(err, memoryd.ErrSessionNotFound), errors.Is(err, memoryd.ErrUnavailable))
	// Output: true false
}

func ExampleFromOpenAI() {
	messages, err := memoryd.FromOpenAI([]byte(`[{"role": "user", "content": "Hello!"}]`))
	if err != nil {
		panic(err)
	}
	fmt.Println(memoryd.Text(messages[0]))
	fmt.Println(string(memoryd.ToAnthropic(messages).Messages))
	// Output:
	// Hello!
	// [{"role":"user","content":"Hello!"}]
}

// address is that of the examples' server, as 127.0.0.1:7600.
func address() string { return shared.address }
