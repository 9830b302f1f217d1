package dev.memoryd.conformance;

import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.util.JsonFormat;
import dev.memoryd.MemorydException;
import dev.memoryd.conformance.v1.Command;
import dev.memoryd.conformance.v1.Done;
import dev.memoryd.conformance.v1.Failure;
import dev.memoryd.conformance.v1.Hello;
import dev.memoryd.conformance.v1.Reply;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** The driver of the Java SDK: conformance.proto tells what it does. */
public final class Driver {
  private static final JsonFormat.Parser PARSER = JsonFormat.parser();
  private static final JsonFormat.Printer PRINTER =
      JsonFormat.printer().preservingProtoFieldNames().omittingInsignificantWhitespace();

  private final OutputStream output;
  private final Map<String, Client> clients = new ConcurrentHashMap<>();
  private final ExecutorService threads =
      Executors.newCachedThreadPool(
          work -> {
            Thread thread = new Thread(work, "conformance-command");
            // A command that waits, for an event or a run, keeps nobody.
            thread.setDaemon(true);
            return thread;
          });

  private Driver(OutputStream output) {
    this.output = output;
  }

  /** Carries out what it reads from standard input, to its end. */
  public static void main(String[] arguments) throws IOException {
    OutputStream output = new FileOutputStream(FileDescriptor.out);
    // Nothing but replies goes there.
    System.setOut(System.err);
    try (BufferedReader input =
        new BufferedReader(
            new InputStreamReader(new FileInputStream(FileDescriptor.in), StandardCharsets.UTF_8))) {
      new Driver(output).run(input);
    }
  }

  private void run(BufferedReader input) throws IOException {
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      Command.Builder command = Command.newBuilder();
      PARSER.merge(line, command);
      threads.execute(() -> answer(command.build()));
    }
    clients.values().forEach(Client::close);
  }

  private void answer(Command command) {
    Reply.Builder reply = Reply.newBuilder();
    try {
      carryOut(command, reply);
    } catch (MemorydException failed) {
      reply.clear().setFailure(Told.failure(failed));
    } catch (Throwable failed) { // Whatever it is, the runner is told.
      failed.printStackTrace();
      if (isRefusal(failed)) {
        reply
            .clear()
            .setFailure(
                Failure.newBuilder()
                    .setMessage(String.valueOf(failed.getMessage()))
                    .setType(failed.getClass().getSimpleName()));
      } else {
        reply.clear().setFault(failed.toString());
      }
    }
    write(reply.setId(command.getId()).build());
  }

  /** Whether the SDK refuses by itself what it was given: the exception comes from its code, and not from the driver's. */
  private static boolean isRefusal(Throwable failed) {
    if (!(failed instanceof IllegalArgumentException || failed instanceof IllegalStateException)) {
      return false;
    }
    for (StackTraceElement frame : failed.getStackTrace()) {
      if (frame.getClassName().startsWith("dev.memoryd.")) {
        return !frame.getClassName().startsWith(Driver.class.getPackageName());
      }
    }
    return false;
  }

  private void carryOut(Command command, Reply.Builder reply) throws Exception {
    String name = command.getClient();
    switch (command.getOperationCase()) {
      case CONNECT -> {
        close(name);
        clients.put(name, new Client(command.getConnect()));
        reply.setHello(Hello.newBuilder().setLanguage("java"));
      }
      case CLOSE -> {
        close(name);
        reply.setDone(Done.getDefaultInstance());
      }
      default -> {
        Client client = clients.get(name);
        if (client == null) {
          throw new Fault("there is no client " + name);
        }
        client.carryOut(command, reply);
      }
    }
  }

  private void close(String name) {
    Client client = clients.remove(name);
    if (client != null) {
      client.close();
    }
  }

  private void write(Reply reply) {
    try {
      byte[] line = (PRINTER.print(reply) + "\n").getBytes(StandardCharsets.UTF_8);
      synchronized (output) {
        output.write(line);
      }
    } catch (InvalidProtocolBufferException impossible) {
      throw new IllegalStateException(impossible);
    } catch (IOException gone) {
      throw new UncheckedIOException(gone);
    }
  }
}
