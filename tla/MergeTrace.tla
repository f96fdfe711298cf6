----------------------------- MODULE MergeTrace -----------------------------
(* Is what the cache did to one key a behaviour of Merge? All replicas, the registry, and of the      *)
(* clients one write and one read at a time; the events in one total order, each written at the       *)
(* moment of its step. TraceSupport says how a trace is judged. r and q are replicas, "ring" is "O"   *)
(* (the old one) or "N" (the one that comes), len a value's length at that replica then.              *)
(*                                                                                                    *)
(*   Begin        old new           all of the old ring are whole, nothing is written; also between   *)
(*                                  two traces of the same rings, so that TLC is started once         *)
(*   Restart      r                 a new life of r does its first step; it died before that          *)
(*   GhostEnds    r                 nobody reads the memory of its former life any more               *)
(*   Rest         r                 it has rested, and may copy                                       *)
(*   Renew        r phase           it has heard of this phase                                        *)
(*   Copy         r q len           r has taken what q had                                            *)
(*   Invalidate   r                 whoever reads the old ring finds out that r is not to be read     *)
(*   Lapse        r                 the scheduler has not heard of it for so long that nobody reads it*)
(*   BecomeWhole  r ring            the registry has admitted it, durably, as the events below        *)
(*   RaiseEpoch   excused           all who are excused now; one that the registry did not hear of    *)
(*                                  may be among them though it lives: it begins again, with memory   *)
(*   MoveBoth / MoveNew / MoveDrained / MoveBack                                                      *)
(*   WriteBegin   r conf epoch value votes acked len   the first delivery of a write; it began in     *)
(*                                  configuration "old", "both" or "drained", and in this epoch,      *)
(*                                  counted from the trace's beginning; votes: the rings in which the *)
(*                                  client counts r; acked: that made the quorum                      *)
(*   WriteDeliver r votes acked len                                                                   *)
(*   WriteEnd                       it failed, was given up, or begins again with another ring        *)
(*   Read         r ring len complete     an answer that the client counts; was it the last one that  *)
(*   ReadGhost    r ring len complete     it needs? The same of a former life's memory                *)
(*   ReadGiveUp                     it ended without (partial), or the epoch has risen                *)
(*                                                                                                    *)
(* The code may count less than Merge lets it (it knows later that a replica is whole), never more.   *)
(* Wider than Merge: a replica may copy more often than it must; while the new ring is read, one of   *)
(* the old one may stay readable, as one answer is never complete; those that are in both rings       *)
(* answer for the old one no longer, when they have heard of the new; a newcomer needs no copy of one *)
(* that was excused at any time since the change began.                                               *)
EXTENDS Merge, Sequences, TraceSupport

VARIABLES
  sealed,   \* those of Old that nobody reads who reads the old ring
  pardoned  \* those of Old that were excused since the change began

\* LET, because TLC evaluates the trace again for each use of TraceEvents.
Elements(sequence) == {sequence[i] : i \in DOMAIN sequence}
TraceOld == LET events == TraceEvents IN Elements(events[1].old)
TraceNew == LET events == TraceEvents IN Elements(events[1].new)

r == Event.r
x == Event.ring
Votes == {<<y, r>> : y \in Elements(Event.votes)}
Same == UNCHANGED <<sealed, pardoned>>

TraceStart == Init /\ sealed = {} /\ pardoned = {} /\ line = 1

Begin ==
  /\ Elements(Event.old) = Old /\ Elements(Event.new) = New
  /\ phase' = "old"
  /\ view' = Views
  /\ gone' = {}
  /\ val' = [y \in Replicas |-> Empty]
  /\ heard' = [y \in Replicas |-> {}]
  /\ dropped' = [y \in Replicas |-> FALSE]
  /\ whole' = [y \in Rings |-> IF y = "O" THEN Old ELSE {}]
  /\ rested' = [y \in Replicas |-> TRUE]
  /\ copied' = [y \in Replicas |-> {}]
  /\ ghost' = [y \in Replicas |-> NoMemory]
  /\ excused' = [y \in Rings |-> {}]
  /\ recent' = {}
  /\ epoch' = 0
  /\ wr' = NoWrite
  /\ acked' = Nothing
  /\ rd' = NoRead
  /\ sealed' = {}
  /\ pardoned' = {}
  /\ UNCHANGED <<writes, stale, mine, restarts, collected, now>>

-----------------------------------------------------------------------------
TraceRestart ==
  /\ StartAgain(r)
  /\ sealed' = sealed \ {r}
  /\ UNCHANGED pardoned

GhostEnds ==
  /\ ghost' = [ghost EXCEPT ![r] = NoMemory]
  /\ UNCHANGED <<ring, memory, whole, rested, copied, excused, recent, calls, world>>

\* The rest must be longer than what it is for: nothing of the former life is under way any more.
TraceRest ==
  IF rested[r] THEN UNCHANGED vars ELSE ~ghost[r].on /\ Rest(r)

TraceRenew ==
  /\ Event.phase = phase
  /\ IF Before(view[r], Learnt) THEN Renew(r) ELSE UNCHANGED vars

\* What comes from a replica that does not refuse the writes of "old" counts for nothing, nor does what
\* comes from one that is not whole.
TraceCopy ==
  LET q == Event.q
      counted == IF r \in Old \/ view[q] # "old" THEN {<<y, q>> : y \in Counts(q)} ELSE {}
  IN /\ rested[r]
     /\ q \in gone \/ Event.len = val[q].len
     /\ IF r \in gone THEN UNCHANGED memory
        ELSE Give(r, [ver |-> 1, len |-> Event.len, exp |-> now + Ttl], TRUE)
     /\ copied' = [copied EXCEPT ![r] = @ \cup counted]
     /\ UNCHANGED <<ring, whole, rested, ghost, excused, recent, calls, world>>

TraceInvalidate ==
  /\ r \in Old
  /\ sealed' = sealed \cup {r}
  /\ UNCHANGED pardoned
  /\ IF r \in Old \ New /\ r \notin gone THEN Invalidate(r)
     ELSE ~Before(phase, "new") /\ UNCHANGED vars

-----------------------------------------------------------------------------
\* A newcomer that hears late that an old one is whole again, and has not copied from it: what was
\* acknowledged since then reached two of the new ring as well, since clients know of the change if they
\* know that one as whole.
TraceBecomeWhole ==
  /\ \/ MayBeWhole(r, x)
     \/ /\ phase = "both" /\ x = "N" /\ r \in New \ (Old \cup whole["N"])
        /\ rested[r]
        /\ \A q \in Old \ pardoned : <<"O", q>> \in copied[r]
  /\ Admit(r, x)

\* One that is excused though it lives is not whole any more, and has to rest and to copy.
TraceRaiseEpoch ==
  LET given == Elements(Event.excused)
      still == [y \in Rings |-> whole[y] \ given]
      lost  == Of(Reference) \ still[Reference]
      back  == {y \in given : y \in whole[Reference]}
  IN /\ given \subseteq Of(Reference)
     /\ Cardinality(lost) >= 2
     /\ ~(given \subseteq excused[Reference])
     /\ epoch' = epoch + 1
     /\ excused' = [excused EXCEPT ![Reference] = given]
     /\ whole' = still
     /\ rested' = [y \in Replicas |-> rested[y] /\ y \notin back]
     /\ copied' = [y \in Replicas |-> IF y \in back THEN {} ELSE copied[y]]
     /\ acked' = Nothing
     /\ pardoned' = IF phase = "both" THEN pardoned \cup given ELSE pardoned
     /\ UNCHANGED sealed
     /\ UNCHANGED <<ring, memory, ghost, recent, wr, writes, rd, stale, mine, restarts, collected, now>>

\* Who may still be read by those who read the old ring.
Readers(y) == (y \in whole["O"] /\ y \notin sealed) \/ (ghost[y].on /\ "O" \in ghost[y].whole)

TraceMoveDrained ==
  /\ phase = "new"
  /\ Cardinality({y \in Old : Readers(y)}) <= 1
  /\ MoveTo("drained")

-----------------------------------------------------------------------------
\* A write of an older epoch counts for nothing, whatever its client counts.
TraceDeliver(w) ==
  LET current == w.epoch = epoch
  IN /\ current => Votes \subseteq VotesOf(r) \ Unknown(w.conf)
     /\ Deliver(w, r, IF current THEN Votes ELSE {})
     /\ Event.acked = ~wr'.on
     /\ r \in gone \/ val'[r].len = Event.len
     /\ UNCHANGED writes

TraceWriteBegin ==
  /\ ~wr.on
  /\ Event.conf \in WrittenIn
  /\ Event.epoch <= epoch
  /\ TraceDeliver([NoWrite EXCEPT !.on = TRUE, !.len = Event.value, !.conf = Event.conf,
                                  !.epoch = Event.epoch])

Complete == Event.complete = ~rd'.on

TraceRead ==
  /\ r \in whole[x] \ gone
  /\ x = "O" => r \notin sealed
  /\ val[r].len = Event.len
  /\ Answer(x, r, val[r])
  /\ Complete

TraceReadGhost ==
  /\ ghost[r].on
  /\ x \in ghost[r].whole
  /\ ghost[r].val.len = Event.len
  /\ Answer(x, r, ghost[r].val)
  /\ Complete

TraceNext ==
  \/ Is("Begin") /\ Begin
  \/ Is("Restart") /\ TraceRestart
  \/ Is("GhostEnds") /\ GhostEnds /\ Same
  \/ Is("Rest") /\ TraceRest /\ Same
  \/ Is("Renew") /\ TraceRenew /\ Same
  \/ Is("Copy") /\ TraceCopy /\ Same
  \/ Is("Invalidate") /\ TraceInvalidate
  \/ Is("Lapse") /\ TraceInvalidate
  \/ Is("BecomeWhole") /\ TraceBecomeWhole /\ Same
  \/ Is("RaiseEpoch") /\ TraceRaiseEpoch
  \/ Is("MoveBoth") /\ MoveBoth /\ pardoned' = excused["O"] /\ UNCHANGED sealed
  \/ Is("MoveNew") /\ MoveNew /\ Same
  \/ Is("MoveDrained") /\ TraceMoveDrained /\ Same
  \/ Is("MoveBack") /\ MoveBack /\ Same
  \/ Is("WriteBegin") /\ TraceWriteBegin /\ Same
  \/ Is("WriteDeliver") /\ wr.on /\ TraceDeliver(wr) /\ Same
  \/ Is("WriteEnd") /\ WriteEnd /\ Same
  \/ Is("Read") /\ TraceRead /\ Same
  \/ Is("ReadGhost") /\ TraceReadGhost /\ Same
  \/ Is("ReadGiveUp") /\ ReadGiveUp /\ Same

TraceSpec == TraceStart /\ [][TraceNext]_<<vars, line, sealed, pardoned>>
=============================================================================
