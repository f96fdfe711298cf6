----------------------- MODULE DuelingWritersRunning -----------------------
(***************************************************************************)
(* DuelingWriters with two steps more that writers of the running system   *)
(* take and those of the paper do not; traces are checked against this.    *)
(*                                                                         *)
(* WriterGoesOn: a new writer begins where the published length stands,    *)
(* not where the primary stands: downstream the cache may lead, and what   *)
(* is below a published length was written already.                       *)
(* LengthBehind: a writer that jumped publishes a length from before its   *)
(* jump: the primary's length was known late, or it repeats an old one.    *)
(*                                                                         *)
(* Both could break PublishedIsWritten; the configurations show that they  *)
(* do not, nor anything else.                                              *)
(***************************************************************************)
EXTENDS DuelingWriters

CONSTANT BeyondLength  \* planted: a writer goes on so many chunks beyond the length; 0 is right

\* The chunk where the cache's length stands, or stood when the writer asked. Begun there all is
\* as with WriterStart.
WriterGoesOn(w, at) ==
  /\ Started(w) => Restarts
  /\ at = Base(ChunkOf(at)) /\ at < Total
  /\ at <= cacheLen + BeyondLength * ChunkSize
  /\ pub' = [pub EXCEPT ![w] = at]
  /\ LET skipped == [c \in Chunks |-> IF Base(c) < at THEN ChunkSize ELSE 0]
     IN /\ acked' = [acked EXCEPT ![w] = skipped]
        /\ sent' = IF SplitWrites THEN [sent EXCEPT ![w] = skipped] ELSE sent
  /\ UNCHANGED <<primaryLen, cacheVars, lock, waste, consumerVars>>

LengthBehind(w, len) ==
  /\ Started(w)
  /\ len < pub[w]
  /\ cacheLen' = IF LongerWins THEN Max(cacheLen, len) ELSE len
  /\ UNCHANGED <<primaryLen, chunk, written, writerVars, consumerVars>>

RunningStep(w) ==
  \/ \E c \in Chunks : WriterGoesOn(w, Base(c))
  \/ \E len \in 1 .. Total : LengthBehind(w, len)

RunningSafe == Init /\ [][Next \/ \E w \in Writers : RunningStep(w)]_vars
=============================================================================
