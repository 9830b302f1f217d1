package dev.memoryd;

import java.time.Duration;
import java.time.Instant;

/**
 * What stands for the oldest messages of a session, how it was made, and from what.
 *
 * @param id unique among the summaries of the session
 * @param text the summary, without the line that marks it in windows
 * @param previousId the id of the summary that was part of its input; empty for none
 * @param fromSeq the seq of the first message that it took in beside the previous summary
 * @param toSeq the seq of the last message that it took in
 * @param messageCount how many messages it took in beside the previous summary
 * @param coveredFromSeq the seq of the first message that it and those before it stand for
 * @param coveredMessageCount how many messages it and those before it stand for, removed ones included
 * @param summarizer who made it: {@code extractive}, {@code openai} or {@code client}
 * @param model with which model; empty for none
 * @param inputTokenCount the tokens of what it took in, the previous summary included
 * @param outputTokenCount the tokens of its text
 * @param createTime when it was committed
 * @param duration how long it took, from the lease to the commit
 * @param current whether it is the one that windows show
 * @param originalsRemoved whether messages behind it are removed, so that it cannot be taken back
 */
public record Summary(
    String id,
    String text,
    String previousId,
    long fromSeq,
    long toSeq,
    long messageCount,
    long coveredFromSeq,
    long coveredMessageCount,
    String summarizer,
    String model,
    long inputTokenCount,
    long outputTokenCount,
    Instant createTime,
    Duration duration,
    boolean current,
    boolean originalsRemoved) {}
