------------------------ MODULE DuelingWritersTrace ------------------------
(***************************************************************************)
(* Is a log of the running system a behaviour of DuelingWriters?           *)
(*                                                                         *)
(* A trace is about one message file (data or index) in one cell and one   *)
(* consumer of it.  Every step is logged, so each event is exactly one     *)
(* action of the model with its parameters, and a trace of thousands of    *)
(* events takes seconds.  tla/README.md lists the events, and when to      *)
(* stamp them: effects before they can be seen, observations after.        *)
(*                                                                         *)
(* The first event is Config, with the chunk size and whether this is the  *)
(* producer's own cell.  All other constants are taken from the trace or   *)
(* are the most liberal ones of the model.  Another Config begins another  *)
(* trace, so that many short ones are checked by one start of TLC.         *)
(***************************************************************************)
EXTENDS DuelingWritersRunning, TraceSupport

TraceConfig    == TraceEvents[1]
TraceChunkSize == TraceConfig.chunkSize
TraceSource    == TraceConfig.source

\* LET, because TLC evaluates the trace again for each use of TraceEvents in a
\* constant definition, but once for a LET.
TraceWriters ==
  LET events == TraceEvents
      told   == {i \in DOMAIN events : "writer" \in DOMAIN events[i]}
  IN {events[i].writer : i \in told}

\* The number of chunks that the trace speaks of.
TraceChunks ==
  LET events == TraceEvents
      size   == events[1].chunkSize
      LastChunk(e) ==
        CASE "chunk" \in DOMAIN e -> e.chunk
          [] "at" \in DOMAIN e -> e.at \div size
          [] "len" \in DOMAIN e /\ e.len > 0 -> (e.len - 1) \div size
          [] "to" \in DOMAIN e -> (e.to - 1) \div size
          [] OTHER -> 0
      last   == {LastChunk(events[i]) : i \in DOMAIN events}
  IN 1 + CHOOSE c \in last : \A d \in last : d <= c

TraceWindow == TraceChunks * TraceChunkSize

\* A consumer that resumes at a position was given what lies before it earlier.
ConsumerStart(at) ==
  /\ read = <<>> /\ got = {}
  /\ read' = IF at = 0 THEN <<>> ELSE <<<<0, at>>>>
  /\ UNCHANGED <<primaryLen, cacheVars, writerVars, pc, seenCache, seenPrimary, waited, got>>

\* Everything as in Init.
NewTrace ==
  /\ Event.chunkSize = ChunkSize /\ Event.source = Source
  /\ primaryLen' = 0
  /\ chunk' = [c \in Chunks |-> <<Base(c), Base(c)>>]
  /\ cacheLen' = 0
  /\ written' = [c \in Chunks |-> 0]
  /\ pub' = [w \in Writers |-> NotStarted]
  /\ acked' = [w \in Writers |-> [c \in Chunks |-> 0]]
  /\ sent' = [w \in Writers |-> [c \in Chunks |-> 0]]
  /\ seenCache' = 0 /\ seenPrimary' = 0
  /\ got' = {} /\ read' = <<>>
  /\ UNCHANGED <<lock, waste, pc, waited>>

TraceNext ==
  \/ Is("Config")        /\ NewTrace
  \/ Is("PrimaryAppend") /\ PrimaryAppend(Event.len)
  \/ Is("WriterStart")   /\ \/ WriterStart(Event.writer, Event.at)
                            \/ WriterGoesOn(Event.writer, Event.at)
  \/ Is("WriterJump")    /\ WriterJump(Event.writer, Event.at)
  \/ Is("ChunkWrite")    /\ ChunkWrite(Event.writer, Event.chunk, Event.len)
  \/ Is("ChunkAck")      /\ ChunkAck(Event.writer, Event.chunk, Event.len)
  \/ Is("ChunkFail")     /\ ChunkFail(Event.writer, Event.chunk)
  \/ Is("LengthPublish") /\ \/ LengthPublish(Event.writer, Event.len)
                            \/ Event.len = pub[Event.writer] /\ LengthRepeat(Event.writer)
                            \/ LengthBehind(Event.writer, Event.len)
  \/ Is("Evict")         /\ Evict(Event.chunk)
  \/ Is("LengthLost")    /\ LengthLost
  \/ Is("ConsumerStart") /\ ConsumerStart(Event.at)
  \/ Is("PollCache")     /\ PollCache(Event.len)
  \/ Is("PollPrimary")   /\ PollPrimary(Event.len)
  \/ Is("ReadChunk")     /\ ReadChunk(Event.chunk, Event.len)
  \/ Is("ReadPrimary")   /\ ReadPrimary(Event.from, Event.to)
  \/ Is("Deliver")       /\ Deliver(Event.to)

TraceSpec == Init /\ TraceInit /\ [][TraceNext]_<<vars, line>>
=============================================================================
