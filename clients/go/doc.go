// Package memoryd is the Go client of memoryd, the memory service for agents: it keeps conversations and hands each run
// the window of history that fits, and the Markdown memory of its user and project.
//
//	client, err := memoryd.New("127.0.0.1:7600")
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	session := client.Session("assistant", "user_123")
//	if _, err := session.Append(ctx, []*memoryd.Message{memoryd.User("My project is called Atlas.")}); err != nil {
//		return err
//	}
//	window, err := session.Window(ctx, memoryd.MaxTokens(4_000))
//	if err != nil {
//		return err
//	}
//	messages := window.ToOpenAI() // JSON for a chat completion's messages
//
// # Calls
//
// Each operation takes a context. One without a deadline gets the client's timeout, 30 seconds unless [WithTimeout] says
// otherwise; it bounds all the calls and tries that the operation takes. A watch and the loops over tasks and runs have no
// deadline but the context's own.
//
// Reads, and changes that are safe to repeat, are tried again while the server or its store is unavailable: up to eight
// tries, with growing pauses of about seven seconds in all between them, so that a server that restarts is not noticed.
// Ids of messages, and request ids, are made before the first try, so that a repeat does no more than the first try did.
//
// # Errors
//
// A call that fails gives an [*Error] whose reason and status [errors.Is] knows:
//
//	switch _, err := session.Window(ctx); {
//	case errors.Is(err, memoryd.ErrSessionNotFound):
//		// a conversation that has not begun
//	case errors.Is(err, memoryd.ErrUnavailable):
//		// no server, or no store behind it, also after retries
//	}
//
// # Types
//
// Messages and what servers tell are the types of the API itself (package memorydv1), by shorter names here. Their getters
// can be called on nil. Treat what comes from a server as immutable.
//
// A client and the sessions, agents and files that it names may be used by several goroutines. A [Watch], a [Run] and
// what an iterator gives belong to one goroutine at a time, unless their methods say otherwise.
package memoryd
