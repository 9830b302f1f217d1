package dev.memoryd;

import com.google.protobuf.ByteString;
import dev.memoryd.v1.AddMemoryEntriesRequest;
import dev.memoryd.v1.AddMemoryEntriesResponse;
import dev.memoryd.v1.AppendDailyLogRequest;
import dev.memoryd.v1.DeleteMemoryFileRequest;
import dev.memoryd.v1.GetMemoryFileRequest;
import dev.memoryd.v1.GetMemoryFileResponse;
import dev.memoryd.v1.ListMemoryFileVersionsRequest;
import dev.memoryd.v1.ListMemoryFilesRequest;
import dev.memoryd.v1.ListMemoryFilesResponse;
import dev.memoryd.v1.MemoryContextServiceGrpc;
import dev.memoryd.v1.MemoryOwner;
import dev.memoryd.v1.PutMemoryFileRequest;
import java.time.Duration;
import java.time.LocalDate;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.util.List;

/**
 * The memory files of one owner in the store. Made by {@link MemoryClient#userFiles} and {@link MemoryClient#projectFiles};
 * nothing of it needs to exist.
 *
 * <p>A file is {@code MEMORY.md} (the index, which is rendered) or the log of a day, {@code YYYY-MM-DD.md}. Each write makes a
 * new version, of which the last 50 are kept. A text that holds a credential is {@link MemorydException.SecretFound}, with its
 * line and kind, and not written; {@link WriteOptions#allowSecrets} overrides that where it is none. All writes but {@link
 * #delete} are tried again by themselves, and made once.
 */
public final class MemoryFiles {
  private final Caller caller;
  private final MemoryOwner owner;

  MemoryFiles(Caller caller, MemoryOwner owner) {
    this.caller = caller;
    this.owner = owner;
  }

  /**
   * How to write.
   *
   * @param author who writes, at most 256 bytes; told in the versions
   * @param allowSecrets whether to store a text in which credentials were found
   * @param requestId a mark of this request, at most 256 bytes: a repeat with it writes nothing, and the first answer comes
   *     again; null: the client makes one for each call
   */
  public record WriteOptions(String author, boolean allowSecrets, String requestId) {
    /** By nobody in particular, without secrets. */
    public static final WriteOptions DEFAULT = new WriteOptions("", false, null);

    /** Who writes. */
    public WriteOptions withAuthor(String author) {
      return new WriteOptions(author, allowSecrets, requestId);
    }

    /** Stores a text in which credentials were found. */
    public WriteOptions withSecretsAllowed() {
      return new WriteOptions(author, true, requestId);
    }

    /** A mark of this request. */
    public WriteOptions withRequestId(String requestId) {
      return new WriteOptions(author, allowSecrets, requestId);
    }
  }

  /** The same files with another timeout. */
  public MemoryFiles withTimeout(Duration timeout) {
    return new MemoryFiles(caller.within(timeout), owner);
  }

  @Override
  public String toString() {
    return owner.hasUserId()
        ? "MemoryFiles[user=" + owner.getUserId() + "]"
        : "MemoryFiles[project=" + owner.getProjectId() + "]";
  }

  /** Reads the index. {@link MemorydException.MemoryFileNotFound} without it. */
  public MemoryFile get() {
    return get(MemorySource.INDEX);
  }

  /** Reads a file. {@link MemorydException.MemoryFileNotFound} without it. */
  public MemoryFile get(String name) {
    return get(name, 0);
  }

  /** Reads a file as it was at a version; 0 for the current one. {@link MemorydException.MemoryFileNotFound} without it. */
  public MemoryFile get(String name, long version) {
    GetMemoryFileResponse response =
        caller.call(
            MemoryContextServiceGrpc.getGetMemoryFileMethod(),
            GetMemoryFileRequest.newBuilder()
                .setOwner(owner)
                .setName(Protos.text(name, "name"))
                .setVersion(version)
                .build());
    return new MemoryFile(Protos.file(response.getFile()), response.getContent());
  }

  /** Replaces the index, or makes it. Like {@link #put(String, ByteString, String, WriteOptions)}. */
  public MemoryFileInfo put(String content) {
    return put(
        MemorySource.INDEX,
        ByteString.copyFromUtf8(Protos.text(content, "content")),
        null,
        WriteOptions.DEFAULT);
  }

  /** Replaces the index only if it is still the one with this etag, else {@link MemorydException.EtagMismatch}. */
  public MemoryFileInfo put(String content, String etag) {
    return put(
        MemorySource.INDEX,
        ByteString.copyFromUtf8(Protos.text(content, "content")),
        etag,
        WriteOptions.DEFAULT);
  }

  /**
   * Replaces a file, or makes it. Nothing is written when it has this content already.
   *
   * @param name which file
   * @param content the whole file, at most 1 MiB, kept as it is
   * @param etag replace it only if it is still the one with this etag, else {@link MemorydException.EtagMismatch}; null for
   *     whatever it is
   * @param options how to write
   */
  public MemoryFileInfo put(String name, ByteString content, String etag, WriteOptions options) {
    return put(put(name, content, options).setEtag(Protos.optional(etag, "etag")));
  }

  /** Makes a file only if there is none, else {@link MemorydException.EtagMismatch}. */
  public MemoryFileInfo create(String name, ByteString content, WriteOptions options) {
    return put(put(name, content, options).setCreateOnly(true));
  }

  private PutMemoryFileRequest.Builder put(String name, ByteString content, WriteOptions options) {
    return PutMemoryFileRequest.newBuilder()
        .setOwner(owner)
        .setName(Protos.text(name, "name"))
        .setContent(content)
        .setAuthor(Protos.text(options.author(), "author"))
        .setAllowSecrets(options.allowSecrets())
        .setRequestId(Protos.marked(options.requestId()));
  }

  private MemoryFileInfo put(PutMemoryFileRequest.Builder request) {
    return Protos.file(
        caller.call(MemoryContextServiceGrpc.getPutMemoryFileMethod(), request.build()).getFile());
  }

  /** Lists the files: the index, then the newest logs. */
  public Pages<MemoryFileInfo> list() {
    Caller pinned = caller.pinned();
    return new Pages<>(
        (token, size) -> {
          ListMemoryFilesResponse page =
              pinned.call(
                  MemoryContextServiceGrpc.getListMemoryFilesMethod(),
                  ListMemoryFilesRequest.newBuilder()
                      .setOwner(owner)
                      .setPageSize(size)
                      .setPageToken(token)
                      .build());
          return new Pages.Page<>(
              page.getFilesList().stream().map(Protos::file).toList(), page.getNextPageToken());
        });
  }

  /** Lists the versions of a file that are kept, at most 50, newest first. */
  public List<MemoryFileInfo> versions(String name) {
    return caller
        .call(
            MemoryContextServiceGrpc.getListMemoryFileVersionsMethod(),
            ListMemoryFileVersionsRequest.newBuilder().setOwner(owner).setName(Protos.text(name, "name")).build())
        .getVersionsList()
        .stream()
        .map(Protos::file)
        .toList();
  }

  /** Deletes a file with all its versions, for good, and tells whether there was one. Not tried again by itself. */
  public boolean delete(String name) {
    return delete(name, null);
  }

  /**
   * Deletes a file, as {@link #delete(String)} does.
   *
   * @param etag only if it is still the one that has it, else {@link MemorydException.EtagMismatch}; null for whatever it is
   */
  public boolean delete(String name, String etag) {
    return caller
        .call(
            MemoryContextServiceGrpc.getDeleteMemoryFileMethod(),
            DeleteMemoryFileRequest.newBuilder()
                .setOwner(owner)
                .setName(Protos.text(name, "name"))
                .setEtag(Protos.optional(etag, "etag"))
                .build())
        .getDeleted();
  }

  /** Adds lines at the end of the index. Like {@link #add(List, WriteOptions)}. */
  public AddedEntries add(String... entries) {
    return add(List.of(entries), WriteOptions.DEFAULT);
  }

  /**
   * Adds lines at the end of the index, all or none, and makes it if there is none. Lines that it holds already are skipped.
   * Calls at once do not overwrite each other. {@link MemorydException.MemoryFileFull} when it would be over 1 MiB.
   *
   * @param entries 1 to 256, as they shall stand in the file, each at most 4 KiB
   * @param options how to write
   */
  public AddedEntries add(List<String> entries, WriteOptions options) {
    AddMemoryEntriesRequest.Builder request =
        AddMemoryEntriesRequest.newBuilder()
            .setOwner(owner)
            .setAuthor(Protos.text(options.author(), "author"))
            .setAllowSecrets(options.allowSecrets())
            .setRequestId(Protos.marked(options.requestId()));
    entries.forEach(entry -> request.addEntries(Protos.text(entry, "an entry")));
    AddMemoryEntriesResponse response =
        caller.call(MemoryContextServiceGrpc.getAddMemoryEntriesMethod(), request.build());
    return new AddedEntries(
        Protos.file(response.getFile()), response.getAddedCount(), response.getSkippedCount());
  }

  /** Adds text at the end of today's log (in UTC), and gives that file. */
  public MemoryFileInfo log(String text) {
    return log(text, "", "", WriteOptions.DEFAULT);
  }

  /** Adds text at the end of a day's log, and gives that file. */
  public MemoryFileInfo log(String text, LocalDate date, WriteOptions options) {
    return log(text, date.toString(), "", options);
  }

  /** Adds text at the end of the log of what is today in a time zone, and gives that file. */
  public MemoryFileInfo log(String text, ZoneId timeZone, WriteOptions options) {
    return log(text, "", timeZone.equals(ZoneOffset.UTC) ? "UTC" : timeZone.getId(), options);
  }

  MemoryFileInfo log(String text, String date, String timeZone, WriteOptions options) {
    AppendDailyLogRequest request =
        AppendDailyLogRequest.newBuilder()
            .setOwner(owner)
            .setText(Protos.text(text, "text"))
            .setDate(date)
            .setTimeZone(timeZone)
            .setAuthor(Protos.text(options.author(), "author"))
            .setAllowSecrets(options.allowSecrets())
            .setRequestId(Protos.marked(options.requestId()))
            .build();
    return Protos.file(
        caller.call(MemoryContextServiceGrpc.getAppendDailyLogMethod(), request).getFile());
  }

  List<MemoryFileInfo> newest(int count) {
    return caller
        .call(
            MemoryContextServiceGrpc.getListMemoryFilesMethod(),
            ListMemoryFilesRequest.newBuilder().setOwner(owner).setPageSize(count).build())
        .getFilesList()
        .stream()
        .map(Protos::file)
        .toList();
  }
}
