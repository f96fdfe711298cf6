--------------------------- MODULE DuelingWriters ---------------------------
(***************************************************************************)
(* One message file in one cell: a primary file that grows at its end, a   *)
(* volatile cache of its bytes (chunks, and a length beside them), several *)
(* cache writers that do not know of each other, and one consumer.         *)
(*                                                                         *)
(* The model follows Appendix A of the Fast ACS paper, with Algorithm 1,   *)
(* Figure 7 and the start position of section 3, and adds the rule "longer *)
(* wins", evictions, lost acknowledgements, and locks.  The question: does *)
(* the consumer get exactly the produced bytes, in order, and all of them? *)
(*                                                                         *)
(* Bytes are named by their positions: byte i of the file is the number i, *)
(* so the produced bytes are kBytes = <<0, 1, ..., Total - 1>>.  A run     *)
(* <<a, b>> stands for the bytes a .. b-1.  A chunk value is one run; it   *)
(* is right when it begins at the chunk's first position.  A writer that   *)
(* put anything else there (see Bug) would give the consumer wrong bytes.  *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  Writers,       \* the cache writers (a symmetric set, but not with liveness)
  NumChunks,     \* chunks of the file
  ChunkSize,     \* bytes of a chunk
  Window,        \* bytes that a writer may have received and not published;
                 \* 1 = a byte per request, Total = requests of any size
  LongerWins,    \* TRUE: a cache keeps the longer value and the larger length
                 \* FALSE: the last write stays, as in the paper
  Losses,        \* what the caches lose: subset of {"chunk", "length"}
  Restarts,      \* TRUE: a writer may start again (a crash, a jump forward)
  Source,        \* TRUE: the producer's own cell, where bytes enter the cache
                 \* only after the primary committed them; FALSE: a cell
                 \* downstream, where the cache may lead the primary
  SplitWrites,   \* TRUE: writers as they are: a chunk write and its acknowledgement are
                 \* two steps, lengths are published again, running writers jump
  FreeConsumer,  \* TRUE: polls, reads and deliveries in any order, any staleness
                 \* FALSE: rounds of poll, poll, read, as the consumer does it
  Locks,         \* TRUE: a writer that starts takes the lock from the one before
  LateWrites,    \* chunk writes that a writer may still make before it sees
                 \* that its lock is poisoned
  CountWaste,    \* TRUE: count redundant chunk writes, up to WasteMax + 1
  WasteMax,      \* redundant chunk writes that LittleWaste allows
  Bug            \* "none", or the name of a planted bug

Total  == NumChunks * ChunkSize
Chunks == 0 .. NumChunks - 1
Base(c) == c * ChunkSize
ChunkOf(p) == p \div ChunkSize

Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a < b THEN b ELSE a

NotStarted == -1
NoWriter   == "none"

ASSUME
  /\ NumChunks \in Nat \ {0} /\ ChunkSize \in Nat \ {0} /\ Window \in Nat \ {0}
  /\ {LongerWins, Restarts, Source, SplitWrites, FreeConsumer, Locks, CountWaste}
       \subseteq BOOLEAN
  /\ Losses \subseteq {"chunk", "length"}
  /\ LateWrites \in Nat /\ WasteMax \in Nat
  /\ Bug \in {"none", "publishFirst", "fromMiddle", "skipHole", "noFallback",
              "cacheFirst"}

VARIABLES
  primaryLen,   \* committed length of the primary file
  chunk,        \* data cache: chunk number -> run; an empty run is no chunk
  cacheLen,     \* metadata cache: published length of the cached file
  written,      \* ghost: the longest value that was ever written of each chunk
  pub,          \* writer -> position up to which it has published
  acked,        \* writer -> chunk -> length acknowledged; a chunk before the
                \* writer's start counts as complete, it is not the writer's
  sent,         \* writer -> chunk -> length sent, where writes are split
  lock,         \* [holder, late]: who holds the lock; writes made while poisoned
  waste,        \* [mark, count]: see RedundantWrite
  pc,           \* the consumer's next step in a round: poll, pollPrimary, read
  seenCache,    \* the two lengths as the consumer last saw them; in rounds cut
  seenPrimary,  \* to the chunk being read, and 0 when of no more use
  waited,       \* Algorithm 1: the consumer has let the cache catch up once
  got,          \* pieces read and not delivered (free consumer only)
  read          \* what the consumer was given: runs, adjacent ones joined

cacheVars    == <<chunk, cacheLen, written>>
writerVars   == <<pub, acked, sent, lock, waste>>
consumerVars == <<pc, seenCache, seenPrimary, waited, got, read>>
vars == <<primaryLen, cacheVars, writerVars, consumerVars>>

(***************************************************************************)
(* Bytes                                                                   *)
(***************************************************************************)
\* The first n produced bytes: the paper's kBytes, cut.
Produced(n) == [i \in 1 .. n |-> i - 1]

RunLen(r) == r[2] - r[1]

\* The bytes of a list of runs, written out.
RECURSIVE Expand(_)
Expand(runs) ==
  IF runs = <<>> THEN <<>>
  ELSE [i \in 1 .. RunLen(Head(runs)) |-> Head(runs)[1] + i - 1] \o Expand(Tail(runs))

\* A list of runs with one run appended, joined to the last where it continues.
Join(runs, r) ==
  LET n == Len(runs) IN
  IF n > 0 /\ runs[n][2] = r[1] THEN [runs EXCEPT ![n] = <<@[1], r[2]>>]
  ELSE Append(runs, r)

RECURSIVE RunsLen(_)
RunsLen(runs) ==
  CASE Len(runs) = 0 -> 0
    [] Len(runs) = 1 -> RunLen(runs[1])
    [] OTHER -> RunLen(Head(runs)) + RunsLen(Tail(runs))

\* How many bytes the consumer was given: its position in the file.
Pos == RunsLen(read)

(***************************************************************************)
(* The primary file: one writer, and length and bytes change in one step.  *)
(***************************************************************************)
PrimaryAppend(len) ==
  /\ primaryLen < len /\ len <= Total
  /\ primaryLen' = len
  /\ UNCHANGED <<cacheVars, writerVars, consumerVars>>

(***************************************************************************)
(* Cache writers                                                           *)
(***************************************************************************)
Started(w) == pub[w] # NotStarted

\* May the writer still work?  Without locks always.  With them while it holds
\* the lock, and for a few writes that were under way when it lost it.
MayWork(w) == Locks /\ lock.holder # w => lock.late[w] < LateWrites

\* Was everything from what the writer has published up to len acknowledged?
AckedUpTo(w, len) ==
  \A c \in ChunkOf(pub[w]) .. ChunkOf(len - 1) : acked[w][c] >= Min(ChunkSize, len - Base(c))

\* The furthest position that was ever written to the cache.
Furthest ==
  CHOOSE p \in 0 .. Total :
    /\ \A c \in Chunks : written[c] > 0 => Base(c) + written[c] <= p
    /\ p > 0 => \E c \in Chunks : written[c] > 0 /\ Base(c) + written[c] = p

\* A writer starts, or starts again, at the chunk where the primary stands, or stood when
\* the writer asked.
WriterStart(w, at) ==
  /\ Started(w) => Restarts
  /\ at = Base(ChunkOf(at)) /\ at <= primaryLen /\ at < Total
  /\ pub' = [pub EXCEPT ![w] = at]
  /\ LET skipped == [c \in Chunks |-> IF Base(c) < at THEN ChunkSize ELSE 0]
     IN /\ acked' = [acked EXCEPT ![w] = skipped]
        /\ sent' = IF SplitWrites THEN [sent EXCEPT ![w] = skipped] ELSE sent
  /\ lock' = IF Locks THEN [lock EXCEPT !.holder = w, !.late[w] = 0] ELSE lock
  /\ waste' = IF CountWaste THEN [waste EXCEPT !.mark[w] = Furthest] ELSE waste
  /\ UNCHANGED <<primaryLen, cacheVars, consumerVars>>

\* A writer that runs jumps forward to there: what it wrote beyond still counts.
WriterJump(w, at) ==
  /\ Started(w) /\ Restarts
  /\ at = Base(ChunkOf(at)) /\ pub[w] < at /\ at <= primaryLen
  /\ pub' = [pub EXCEPT ![w] = at]
  /\ LET Skip(lens) == [c \in Chunks |-> IF Base(c) < at THEN ChunkSize ELSE lens[c]]
     IN /\ acked' = [acked EXCEPT ![w] = Skip(@)]
        /\ sent' = IF SplitWrites THEN [sent EXCEPT ![w] = Skip(@)] ELSE sent
  /\ UNCHANGED <<primaryLen, cacheVars, lock, waste, consumerVars>>

\* The cache takes a chunk value.  Of two values the longer stays, or the last.
Merge(old, new) ==
  IF LongerWins /\ RunLen(new) <= RunLen(old) THEN old ELSE new

\* A write is redundant when it leaves the cache as it was, although the writer is
\* past what it found when it began: somebody else does the same work beside it.
RedundantWrite(w, c, len) ==
  /\ RunLen(chunk[c]) >= len
  /\ Base(c) + len > waste.mark[w]

\* A writer writes the first len bytes of a chunk: a complete chunk, or the
\* partial one at the end.  Chunks are written in any order, writes to one
\* chunk one after another (Figure 7), each value longer than the one before.
ChunkWrite(w, c, len) ==
  /\ Started(w) /\ MayWork(w)
  /\ acked[w][c] < len /\ len <= ChunkSize
  /\ Base(c) + len <= pub[w] + Window
  /\ SplitWrites => sent[w][c] = acked[w][c]
  /\ Source /\ Bug # "cacheFirst" => Base(c) + len <= primaryLen
  /\ LET first == IF Bug = "fromMiddle" THEN Base(c) + acked[w][c] ELSE Base(c)
     IN chunk' = [chunk EXCEPT ![c] = Merge(@, <<first, Base(c) + len>>)]
  /\ written' = [written EXCEPT ![c] = Max(@, len)]
  /\ IF SplitWrites
       THEN sent' = [sent EXCEPT ![w][c] = len] /\ acked' = acked
       ELSE acked' = [acked EXCEPT ![w][c] = len] /\ sent' = sent
  /\ lock' = IF Locks /\ lock.holder # w THEN [lock EXCEPT !.late[w] = @ + 1] ELSE lock
  /\ waste' = IF CountWaste /\ RedundantWrite(w, c, len) /\ waste.count <= WasteMax
                THEN [waste EXCEPT !.count = @ + 1] ELSE waste
  /\ UNCHANGED <<primaryLen, cacheLen, pub, consumerVars>>

\* The writer learns that a chunk write has succeeded.
ChunkAck(w, c, len) ==
  /\ SplitWrites
  /\ Started(w)
  /\ acked[w][c] < len /\ sent[w][c] = len
  /\ acked' = [acked EXCEPT ![w][c] = len]
  /\ UNCHANGED <<primaryLen, cacheVars, pub, sent, lock, waste, consumerVars>>

\* The writer learns that a chunk write has failed, or stops waiting for it: the
\* cache may have the value or not.  It will write the chunk again.
ChunkFail(w, c) ==
  /\ SplitWrites
  /\ Started(w)
  /\ acked[w][c] < sent[w][c]
  /\ sent' = [sent EXCEPT ![w][c] = acked[w][c]]
  /\ UNCHANGED <<primaryLen, cacheVars, pub, acked, lock, waste, consumerVars>>

\* The writer publishes a length: every byte from its start to there was written.
\* Not one step with the chunk writes, and any length on the way may be skipped.
LengthPublish(w, len) ==
  /\ Started(w) /\ MayWork(w)
  /\ pub[w] < len
  /\ Bug # "publishFirst" => AckedUpTo(w, len)
  /\ pub' = [pub EXCEPT ![w] = len]
  /\ cacheLen' = IF LongerWins THEN Max(cacheLen, len) ELSE len
  /\ UNCHANGED <<primaryLen, chunk, written, acked, sent, lock, waste, consumerVars>>

\* A writer publishes once more what it stands at: a heartbeat, the position that it began
\* at or jumped to (the primary has what is before), or the metadata was lost.
LengthRepeat(w) ==
  /\ Started(w) /\ MayWork(w)
  /\ cacheLen' = IF LongerWins THEN Max(cacheLen, pub[w]) ELSE pub[w]
  /\ UNCHANGED <<primaryLen, chunk, written, writerVars, consumerVars>>

(***************************************************************************)
(* Losses of the caches                                                    *)
(***************************************************************************)
\* A chunk is evicted.  One that lies before the consumer is left alone: nobody
\* will read it any more, so the step would change nothing that can be seen.
Evict(c) ==
  /\ "chunk" \in Losses
  /\ RunLen(chunk[c]) > 0
  /\ ~FreeConsumer => Pos < Base(c + 1)
  /\ chunk' = [chunk EXCEPT ![c] = <<Base(c), Base(c)>>]
  /\ UNCHANGED <<primaryLen, cacheLen, written, writerVars, consumerVars>>

\* The metadata of the pair is lost.
LengthLost ==
  /\ "length" \in Losses
  /\ cacheLen > 0
  /\ cacheLen' = 0
  /\ UNCHANGED <<primaryLen, chunk, written, writerVars, consumerVars>>

(***************************************************************************)
(* The consumer in rounds: poll the cache's length, poll the primary's     *)
(* length, then read one chunk, or what the chunk lacks from the primary.  *)
(* Between any two of these steps anything may happen elsewhere, so both   *)
(* lengths may be stale, and in both directions against each other.        *)
(***************************************************************************)
\* What a seen length is good for in this round; 0 = for nothing.
Clip(len) == IF len <= Pos THEN 0 ELSE Min(len, Base(ChunkOf(Pos) + 1))

EndRound == pc' = "poll" /\ seenCache' = 0 /\ seenPrimary' = 0

RoundPollCache ==
  /\ pc = "poll" /\ Pos < Total
  /\ seenCache' = Clip(cacheLen)
  /\ pc' = "pollPrimary"
  /\ UNCHANGED <<seenPrimary, waited, got, read>>

RoundPollPrimary ==
  /\ pc = "pollPrimary"
  /\ IF seenCache = 0 /\ Clip(primaryLen) = 0
       THEN EndRound
       ELSE pc' = "read" /\ seenPrimary' = Clip(primaryLen) /\ seenCache' = seenCache
  /\ UNCHANGED <<waited, got, read>>

\* Reads the chunk at the consumer's position, as far as the seen length.  Bytes
\* end the round; a miss leaves the primary.
RoundReadChunk ==
  /\ pc = "read" /\ seenCache > 0
  /\ LET c   == ChunkOf(Pos)
         v   == chunk[c]
         off == Pos - Base(c)
         len == Min(RunLen(v), seenCache - Base(c))
     IN IF len > off
          THEN /\ read' = Join(read, <<v[1] + off, v[1] + len>>)
               /\ waited' = FALSE
               /\ EndRound
          ELSE IF Bug = "skipHole" /\ ChunkOf(Pos) < NumChunks - 1 /\ RunLen(chunk[c + 1]) > 0
          THEN /\ read' = Join(read, chunk[c + 1])
               /\ waited' = FALSE
               /\ EndRound
          ELSE /\ IF seenPrimary > 0 THEN seenCache' = 0 /\ UNCHANGED <<pc, seenPrimary>>
                                     ELSE EndRound
               /\ UNCHANGED <<read, waited>>
  /\ UNCHANGED got

\* Falls back: the cache is behind, or has missed.  The primary's bytes up to a
\* length seen never change, so when they are read makes no difference.
RoundReadPrimary ==
  /\ pc = "read" /\ seenCache = 0 /\ Bug # "noFallback"
  /\ read' = Join(read, <<Pos, seenPrimary>>)
  /\ waited' = FALSE
  /\ EndRound
  /\ UNCHANGED got

\* Algorithm 1: the cache may catch up soon.  Time is abstracted to "not twice".
RoundWait ==
  /\ pc = "read" /\ seenCache = 0
  /\ waited => Bug = "noFallback"
  /\ waited' = TRUE
  /\ EndRound
  /\ UNCHANGED <<got, read>>

RoundStep ==
  /\ ~FreeConsumer
  /\ RoundPollCache \/ RoundPollPrimary \/ RoundReadChunk \/ RoundReadPrimary \/ RoundWait
  /\ UNCHANGED <<primaryLen, cacheVars, writerVars>>

(***************************************************************************)
(* The free consumer: the same steps under no order at all, which is what  *)
(* parallel reads, hedges, late answers, lagging replicas and polls of a   *)
(* thread of their own come to.  Its steps are the events of a trace.      *)
(*                                                                         *)
(* A piece [at, run] says: these bytes were read for the positions from at *)
(* on.                                                                     *)
(***************************************************************************)
FreeOnly == FreeConsumer /\ UNCHANGED <<primaryLen, cacheVars, writerVars, pc, waited>>

\* A length that the cache has, or had: an answer may be late.  Lengths never
\* fall within one consumer.
PollCache(len) ==
  /\ FreeOnly
  /\ seenCache <= len /\ len <= cacheLen
  /\ seenCache' = len
  /\ UNCHANGED <<seenPrimary, got, read>>

PollPrimary(len) ==
  /\ FreeOnly
  /\ seenPrimary <= len /\ len <= primaryLen
  /\ seenPrimary' = len
  /\ UNCHANGED <<seenCache, got, read>>

\* Reads chunk c and gets len bytes of it, counted from the chunk's beginning: none for
\* a miss, fewer than the chunk has from a replica that lags, more than it has when the
\* answer was under way while the chunk was evicted.  It may do so before anybody
\* said that the chunk is there: what a cache has is committed.
ReadChunk(c, len) ==
  /\ FreeOnly
  /\ len <= written[c]
  /\ LET at == Max(Pos, Base(c))
         v  == chunk[c]
     IN got' = IF Base(c) + len <= at THEN got
               ELSE got \cup {[at |-> at, run |-> <<v[1] + at - Base(c), v[1] + len>>]}
  /\ UNCHANGED <<seenCache, seenPrimary, read>>

\* Reads the positions from .. to-1 of the primary file, all of them committed.
ReadPrimary(from, to) ==
  /\ FreeOnly
  /\ from < to /\ to <= seenPrimary
  /\ got' = IF to <= Pos THEN got ELSE got \cup {[at |-> from, run |-> <<from, to>>]}
  /\ UNCHANGED <<seenCache, seenPrimary, read>>

PieceEnd(g) == g.at + RunLen(g.run)

\* The runs after delivering the positions from .. to-1, which got must cover.
RECURSIVE Assemble(_, _, _)
Assemble(runs, from, to) ==
  IF from >= to THEN runs
  ELSE LET over == {g \in got : g.at <= from /\ from < PieceEnd(g)} IN
       IF over = {} THEN <<>>  \* a hole
       ELSE LET g   == CHOOSE h \in over : \A k \in over : PieceEnd(k) <= PieceEnd(h)
                end == Min(PieceEnd(g), to)
            IN Assemble(Join(runs, <<g.run[1] + from - g.at, g.run[1] + end - g.at>>), end, to)

\* Gives the application the positions up to "to", in order and without a hole.
Deliver(to) ==
  /\ FreeOnly
  /\ Pos < to
  /\ LET runs == Assemble(read, Pos, to) IN
     /\ runs # <<>>
     /\ read' = runs
  /\ got' = {g \in got : PieceEnd(g) > to}
  /\ UNCHANGED <<seenCache, seenPrimary>>

FreeStep ==
  /\ FreeConsumer
  /\ \/ \E len \in 0 .. Total : PollCache(len) \/ PollPrimary(len) \/ Deliver(len)
     \/ \E c \in Chunks, len \in 0 .. ChunkSize : ReadChunk(c, len)
     \/ \E from \in Pos .. Total, to \in 1 .. Total : ReadPrimary(from, to)

(***************************************************************************)
(* The whole                                                               *)
(***************************************************************************)
Init ==
  /\ primaryLen = 0
  /\ chunk = [c \in Chunks |-> <<Base(c), Base(c)>>]
  /\ cacheLen = 0
  /\ written = [c \in Chunks |-> 0]
  /\ pub = [w \in Writers |-> NotStarted]
  /\ acked = [w \in Writers |-> [c \in Chunks |-> 0]]
  /\ sent = IF SplitWrites THEN [w \in Writers |-> [c \in Chunks |-> 0]] ELSE <<>>
  /\ lock = [holder |-> NoWriter, late |-> IF Locks THEN [w \in Writers |-> 0] ELSE <<>>]
  /\ waste = [count |-> 0, mark |-> IF CountWaste THEN [w \in Writers |-> 0] ELSE <<>>]
  /\ pc = "poll" /\ seenCache = 0 /\ seenPrimary = 0 /\ waited = FALSE
  /\ got = {} /\ read = <<>>

PrimaryStep == \E len \in primaryLen + 1 .. Min(Total, primaryLen + Window) : PrimaryAppend(len)

WriterStep(w) ==
  \/ WriterStart(w, Base(ChunkOf(primaryLen)))
  \/ /\ Started(w) /\ pub[w] < Total
     /\ LET reach == Min(Total, pub[w] + Window) IN
        \/ \E c \in ChunkOf(pub[w]) .. ChunkOf(reach - 1) :
             \E len \in acked[w][c] + 1 .. Min(ChunkSize, reach - Base(c)) : ChunkWrite(w, c, len)
        \/ \E len \in pub[w] + 1 .. reach : LengthPublish(w, len)
  \/ /\ SplitWrites /\ Started(w)
     /\ \/ \E c \in Chunks : ChunkAck(w, c, sent[w][c]) \/ ChunkFail(w, c)
        \/ LengthRepeat(w)
        \/ WriterJump(w, Base(ChunkOf(primaryLen)))

CacheLoss == LengthLost \/ \E c \in Chunks : Evict(c)

Next == PrimaryStep \/ (\E w \in Writers : WriterStep(w)) \/ CacheLoss \/ RoundStep \/ FreeStep

Safe == Init /\ [][Next]_vars

\* The primary goes on growing and the consumer goes on polling and reading.
\* Nothing is assumed of cache writers and caches: they may stop for ever.
Live == Safe /\ WF_vars(PrimaryStep) /\ WF_vars(RoundStep)

WriterSymmetry == Permutations(Writers)

(***************************************************************************)
(* Safety                                                                  *)
(***************************************************************************)
TypeOK ==
  /\ primaryLen \in 0 .. Total /\ cacheLen \in 0 .. Total
  /\ \A c \in Chunks : RunLen(chunk[c]) \in 0 .. ChunkSize /\ written[c] \in 0 .. ChunkSize
  /\ \A w \in Writers : pub[w] \in -1 .. Total
  /\ pc \in {"poll", "pollPrimary", "read"}
  /\ seenCache \in 0 .. Total /\ seenPrimary \in 0 .. Total

\* The paper's Invariant: the bytes read are the first ones produced.  A list of
\* runs is a prefix when it is one run that begins at 0.
ReadIsPrefix == read = <<>> \/ (Len(read) = 1 /\ read[1][1] = 0)

\* The same, literally as in the paper; slow, for small sizes.
ReadIsPrefixLiterally ==
  LET readBytes == Expand(read)
  IN readBytes = Produced(Len(readBytes))

\* A chunk's value is a prefix of the chunk's bytes.
ChunkIsPrefix == \A c \in Chunks : chunk[c][1] = Base(c)

\* The published length is not ahead of the chunks: each byte from the chunk
\* where the primary stands up to the length was written.  It may have been lost
\* since.  Earlier bytes are the primary's: a writer begins no earlier.
PublishedIsWritten ==
  \A c \in ChunkOf(primaryLen) .. ChunkOf(cacheLen - 1) :
    written[c] >= Min(ChunkSize, cacheLen - Base(c))

\* In the producer's cell nothing is in the cache that was not committed.
CommittedFirst ==
  Source => /\ cacheLen <= primaryLen
            /\ \A c \in Chunks : written[c] > 0 => Base(c) + written[c] <= primaryLen

\* With locks, writers do not repeat each other's work.
LittleWaste == waste.count <= WasteMax

(***************************************************************************)
(* What "longer wins" gives: steps that cannot happen                      *)
(***************************************************************************)
ChunkNeverShrinks ==
  [][\A c \in Chunks : RunLen(chunk'[c]) >= RunLen(chunk[c]) \/ RunLen(chunk'[c]) = 0]_chunk

LengthNeverFalls == [][cacheLen' >= cacheLen \/ cacheLen' = 0]_cacheLen

(***************************************************************************)
(* Progress                                                                *)
(***************************************************************************)
\* The consumer gets everything.
AllRead == <>(read = <<<<0, Total>>>>)

\* The paper's Termination, with "the consumer has finished" for its pc = "done".
\* The implication holds in the first state already, so it says nothing.
PaperTermination == <>((Pos = Total) => (read = <<<<0, Total>>>>))
=============================================================================
