package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	memoryd "github.com/memoryd/memoryd/clients/go"
	pb "github.com/memoryd/memoryd/clients/go/internal/conformance/conformancepb"
)

const (
	readBuffer = 1 << 20
	// farewell is what commands that are carried out when the input ends may still take, once their clients are closed.
	farewell = 5 * time.Second
)

// driver carries commands out, each in a goroutine of its own.
type driver struct {
	ctx     context.Context // ends with the driver
	cancel  context.CancelFunc
	running sync.WaitGroup

	writing sync.Mutex
	output  io.Writer

	mutex     sync.Mutex // the rest
	clients   map[string]*memoryd.Client
	addresses map[string]string
	named     map[naming]any
}

// naming is what the commands of a client call something that they go on with: a watch, a task, a run.
type naming struct{ client, name string }

// ender is what goes on until it is ended, after its client is closed at the latest.
type ender interface{ end() }

func newDriver(output io.Writer) *driver {
	ctx, cancel := context.WithCancel(context.Background())
	return &driver{
		ctx: ctx, cancel: cancel, output: output,
		clients: map[string]*memoryd.Client{}, addresses: map[string]string{}, named: map[naming]any{},
	}
}

// serve carries out the commands of the input, to its end.
func (d *driver) serve(input io.Reader) error {
	lines := bufio.NewReaderSize(input, readBuffer)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			d.running.Go(func() { d.reply(d.answer(line)) })
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// close closes the clients, and waits for the commands that this ends.
func (d *driver) close() {
	for _, client := range d.allClients() {
		if err := client.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "a client was not closed:", err)
		}
	}
	d.cancel()
	ended := make(chan struct{})
	go func() { d.running.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(farewell):
	}
}

func (d *driver) allClients() []*memoryd.Client {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	var all []*memoryd.Client
	for _, client := range d.clients {
		all = append(all, client)
	}
	return all
}

func (d *driver) answer(line []byte) (reply *pb.Reply) {
	command := &pb.Command{}
	defer func() {
		if panicked := recover(); panicked != nil {
			fmt.Fprintf(os.Stderr, "panic: %v\n%s", panicked, debug.Stack())
			reply = &pb.Reply{Fault: fmt.Sprintf("panic: %v", panicked)}
		}
		reply.Id = command.GetId()
	}()
	if err := protojson.Unmarshal(line, command); err != nil {
		var known struct {
			ID int64 `json:"id,string"`
		}
		_ = json.Unmarshal(line, &known)
		command.Id = known.ID
		return failed(faultf("this is no command: %s", err))
	}
	reply, err := d.carryOut(command)
	if err != nil {
		return failed(err)
	}
	return reply
}

func (d *driver) reply(reply *pb.Reply) {
	text, err := protojson.Marshal(reply)
	if err != nil {
		text, _ = protojson.Marshal(&pb.Reply{Id: reply.GetId(), Fault: fmt.Sprintf("the reply cannot be written: %s", err)})
	}
	d.writing.Lock()
	defer d.writing.Unlock()
	if _, err := d.output.Write(append(text, '\n')); err != nil {
		fmt.Fprintln(os.Stderr, "a reply was not written:", err)
	}
}

// carryOut does what a command says.
func (d *driver) carryOut(command *pb.Command) (*pb.Reply, error) {
	switch operation := command.GetOperation().(type) {
	case *pb.Command_Connect:
		return d.connect(command.GetClient(), operation.Connect)
	case *pb.Command_Close:
		return d.disconnect(command.GetClient())
	case *pb.Command_ToMessages:
		return toMessages(operation.ToMessages)
	case *pb.Command_FromMessages:
		return fromMessages(operation.FromMessages)
	case *pb.Command_MakeMessage:
		return makeMessage(operation.MakeMessage)
	}
	client := d.client(command.GetClient())
	if client == nil {
		return nil, faultf("no client is called %q", command.GetClient())
	}
	c := &call{driver: d, client: client, command: command}
	ctx, cancel := c.bounded(d.ctx)
	defer cancel()
	c.ctx = ctx
	return c.carryOut()
}

func (d *driver) client(name string) *memoryd.Client {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.clients[name]
}

// take gives a name to a client, and closes the one that had it, with all that its commands gave a name. Nil takes the
// name away.
func (d *driver) take(name, address string, client *memoryd.Client) error {
	d.mutex.Lock()
	before := d.clients[name]
	delete(d.clients, name)
	if client != nil {
		d.clients[name], d.addresses[name] = client, address
	}
	var left []ender
	for naming, something := range d.named {
		if naming.client == name {
			delete(d.named, naming)
			if one, ends := something.(ender); ends {
				left = append(left, one)
			}
		}
	}
	d.mutex.Unlock()
	if before == nil {
		return nil
	}
	err := before.Close()
	for _, one := range left {
		one.end()
	}
	return err
}

func (d *driver) connect(name string, told *pb.Connect) (*pb.Reply, error) {
	var given options[memoryd.Option]
	given.when(told.Timeout != nil, memoryd.WithTimeout(told.GetTimeout().AsDuration()))
	given.when(told.GetStore() != "", memoryd.WithStore(told.GetStore()))
	given.when(told.GetToken() != "", memoryd.WithToken(told.GetToken()))
	given.when(told.GetCa() != "", memoryd.WithCAFile(told.GetCa()))
	given.when(told.GetAllowTokenWithoutTls(), memoryd.WithTokenWithoutTLS())
	client, err := memoryd.New(told.GetAddress(), given...)
	if err != nil {
		return nil, err
	}
	if err := d.take(name, told.GetAddress(), client); err != nil {
		return nil, err
	}
	return &pb.Reply{Hello: &pb.Hello{Language: "go"}}, nil
}

func (d *driver) disconnect(name string) (*pb.Reply, error) {
	if d.client(name) == nil {
		return nil, faultf("no client is called %q", name)
	}
	return done(d.take(name, "", nil))
}

// options are what a method is called with.
type options[Option any] []Option

// when adds an option, if the command gives it.
func (o *options[Option]) when(isGiven bool, option Option) {
	if isGiven {
		*o = append(*o, option)
	}
}

func done(err error) (*pb.Reply, error) { return &pb.Reply{Done: &pb.Done{}}, err }
