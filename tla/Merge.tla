------------------------------- MODULE Merge -------------------------------
(* One value of the cache on its three replicas (r = 3.2): a chunk, of which the longer value wins,     *)
(* or a length, which merges by maximum. To the model they are the same: a number that only grows, 0    *)
(* for nothing. Replicas restart empty and are repaired; the ring changes.                              *)
(*                                                                                                      *)
(* Design rule 3, "Longer wins". What must hold:                                                        *)
(*   - on a replica a value never shrinks, whatever writers duel, unless the replica loses everything;  *)
(*   - a read of two replicas sees every write that two had acknowledged before the read began, as long *)
(*     as replicas fail one at a time, also while one is empty and while the ring changes;              *)
(*   - a client's idea of a length never falls, whatever fails;                                         *)
(*   - two values that contradict each other are never mixed and never pass in silence.                 *)
(*                                                                                                      *)
(* What it needs: a replica that restarted empty answers no reads before it was repaired from both      *)
(* others, and it rests for longer than a write may take before it copies, as the acknowledgement of    *)
(* its former life may still be counted. While the ring changes, writes need two in each ring, reads    *)
(* ask two in each; values move after every old replica refuses the old configuration; and the move     *)
(* ends when those that leave are invalid.                                                              *)
(*                                                                                                      *)
(* Abstractions. One key. A write is delivered to each replica by itself, at any time, or never. A      *)
(* value is <<version, length>>: version 2 are bytes that contradict version 1, which a correct         *)
(* system never writes. A client learns of a new configuration at any time, and never in the middle     *)
(* of a call.                                                                                           *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
  Old, New,     \* the replicas of the key before and after the change of the ring
  MaxValue,
  MaxWrites,
  MaxRestarts,
  Together,     \* TRUE: replicas may restart while another one is not repaired
  Moving,       \* TRUE: the ring changes
  Wrong,        \* TRUE: somebody writes contradicting bytes
  Bug           \* "none", or the planted bug; each is described where it is

VARIABLES
  phase,        \* "old", "both", "ending", "new"
  view,         \* replica -> the configuration that it knows: "old", "both", "new", or "invalid"
  val,          \* replica -> [ver, len]
  heard,        \* replica -> versions that it was given since it was last empty
  dropped,      \* replica -> has it counted a mismatch since then?
  whole,        \* replica -> may it answer?
  merged,       \* replica -> peers that it was repaired or filled from
  wr,           \* the write under way
  writes,
  acked,        \* the greatest value that was acknowledged
  rd,           \* the read under way
  stale,        \* has a read ever missed what was acknowledged before it began?
  mine,         \* the client's idea of the value
  restarts

vars == <<phase, view, val, heard, dropped, whole, merged, wr, writes, acked, rd, stale, mine, restarts>>

Replicas == Old \cup New
Empty == [ver |-> 1, len |-> 0]
NoWrite == [on |-> FALSE, v |-> Empty, conf |-> "old", acks |-> {}, lost |-> {}]
NoRead == [on |-> FALSE, conf |-> "old", from |-> {}, best |-> 0, floor |-> 0]

Greater(a, b) == IF a > b THEN a ELSE b

\* The merge of a value into what a replica has.
Join(have, given) ==
  IF Bug = "last_write_wins" THEN given
  ELSE IF have.len = 0 THEN given
  ELSE IF given.len = 0 THEN have
  ELSE IF have.ver # given.ver /\ Bug # "mismatch_longer" THEN Empty
  ELSE IF given.len > have.len THEN given ELSE have

Give(r, v) ==
  /\ val' = [val EXCEPT ![r] = Join(@, v)]
  /\ heard' = [heard EXCEPT ![r] = IF v.len = 0 THEN @ ELSE @ \cup {v.ver}]
  /\ dropped' = [dropped EXCEPT ![r] =
       @ \/ (Bug # "mismatch_longer" /\ val[r].len > 0 /\ v.len > 0 /\ val[r].ver # v.ver)]

Two(s, ring) == Cardinality(s \cap ring) >= 2
Quorum(s, conf) ==
  CASE conf = "old" -> Two(s, Old)
    [] conf = "both" -> IF Bug = "one_ring" THEN Two(s, Old) \/ Two(s, New) ELSE Two(s, Old) /\ Two(s, New)
    [] conf = "new" -> Two(s, New)
Asked(conf) == CASE conf = "old" -> Old [] conf = "both" -> Old \cup New [] conf = "new" -> New

\* What a client that fetches the configuration now is told.
Current == IF phase = "ending" THEN "both" ELSE phase
\* A client may act on any configuration that there was.
Known == CASE Current = "old" -> {"old"} [] Current = "both" -> {"old", "both"}
           [] Current = "new" -> {"old", "both", "new"}

-----------------------------------------------------------------------------
\* A write of any value, also of one that is shorter than what is there: that is a duel.
WriteBegin(conf, v) ==
  /\ ~wr.on
  /\ writes < MaxWrites
  /\ conf \in Known
  /\ writes' = writes + 1
  /\ wr' = [NoWrite EXCEPT !.on = TRUE, !.v = v, !.conf = conf]
  /\ UNCHANGED <<phase, view, val, heard, dropped, whole, merged, acked, rd, stale, mine, restarts>>

\* A replica refuses a configuration that is older than its own.
Accepts(r, conf) ==
  /\ view[r] # "invalid"
  /\ \/ conf = "new"
     \/ conf = "both"
     \/ conf = "old" /\ (view[r] = "old" \/ Bug = "old_writes_accepted")

WriteDeliver(r) ==
  /\ wr.on
  /\ r \in Asked(wr.conf) \ wr.acks
  /\ Accepts(r, wr.conf)
  /\ Give(r, wr.v)
  /\ wr' = [wr EXCEPT !.acks = @ \cup {r}]
  /\ UNCHANGED <<phase, view, whole, merged, writes, acked, rd, stale, mine, restarts>>

\* It ends when enough have acknowledged, or by its deadline.
WriteEnd ==
  /\ wr.on
  /\ wr' = NoWrite
  /\ acked' = IF Quorum(wr.acks, wr.conf) THEN Greater(acked, wr.v.len) ELSE acked
  /\ UNCHANGED <<phase, view, val, heard, dropped, whole, merged, writes, rd, stale, mine, restarts>>

-----------------------------------------------------------------------------
\* (A read that begins before anything was acknowledged can miss nothing.)
ReadBegin(conf) ==
  /\ ~rd.on
  /\ acked > 0
  /\ conf \in Known
  /\ rd' = [NoRead EXCEPT !.on = TRUE, !.conf = conf, !.floor = acked]
  /\ UNCHANGED <<phase, view, val, heard, dropped, whole, merged, wr, writes, acked, stale, mine, restarts>>

ReadReplica(r) ==
  /\ rd.on
  /\ r \in Asked(rd.conf) \ rd.from
  /\ view[r] # "invalid"
  \* planted: an empty replica answers "nothing there"
  /\ whole[r] \/ Bug = "empty_answers"
  /\ rd' = [rd EXCEPT !.from = @ \cup {r}, !.best = Greater(@, val[r].len)]
  /\ UNCHANGED <<phase, view, val, heard, dropped, whole, merged, wr, writes, acked, stale, mine, restarts>>

ReadEnd ==
  /\ rd.on
  /\ Quorum(rd.from, rd.conf) \/ (Bug = "one_answers" /\ rd.from # {})
  /\ rd' = NoRead
  /\ stale' = (stale \/ rd.best < rd.floor)
  /\ mine' = IF Bug = "client_forgets" THEN rd.best ELSE Greater(mine, rd.best)
  /\ UNCHANGED <<phase, view, val, heard, dropped, whole, merged, wr, writes, acked, restarts>>

\* Not enough answered in time.
ReadGiveUp ==
  /\ rd.on
  /\ rd' = NoRead
  /\ UNCHANGED <<phase, view, val, heard, dropped, whole, merged, wr, writes, acked, stale, mine, restarts>>

-----------------------------------------------------------------------------
Restart(r) ==
  /\ restarts < MaxRestarts
  /\ view[r] # "invalid"
  /\ Together \/ \A q \in Replicas : whole[q]
  /\ restarts' = restarts + 1
  /\ val' = [val EXCEPT ![r] = Empty]
  /\ heard' = [heard EXCEPT ![r] = {}]
  /\ dropped' = [dropped EXCEPT ![r] = FALSE]
  /\ whole' = [whole EXCEPT ![r] = FALSE]
  /\ merged' = [merged EXCEPT ![r] = {}]
  /\ wr' = IF r \in wr.acks THEN [wr EXCEPT !.lost = @ \cup {r}] ELSE wr
  /\ UNCHANGED <<phase, view, writes, acked, rd, stale, mine>>

Peers(r) == (IF r \in Old THEN Old ELSE New) \ {r}

RepairFrom(r, q) ==
  /\ ~whole[r]
  /\ q \in Peers(r) \ merged[r]
  /\ whole[q]
  \* It rests before it copies: a write that counts an acknowledgement of the former life must end first.
  /\ r \notin wr.lost \/ Bug \in {"repaired_at_once", "rests_after_copying"}
  /\ Give(r, val[q])
  /\ merged' = [merged EXCEPT ![r] = @ \cup {q}]
  /\ UNCHANGED <<phase, view, whole, wr, writes, acked, rd, stale, mine, restarts>>

\* From both others, since either may be the only one that still has a write.
Repaired(r) ==
  /\ ~whole[r]
  /\ Cardinality(merged[r]) >= (IF Bug = "repaired_from_one" THEN 1 ELSE 2)
  /\ r \notin wr.lost \/ Bug # "rests_after_copying"
  /\ whole' = [whole EXCEPT ![r] = TRUE]
  /\ merged' = [merged EXCEPT ![r] = {}]
  /\ UNCHANGED <<phase, view, val, heard, dropped, wr, writes, acked, rd, stale, mine, restarts>>

\* Everything that this module calls a failure of two at once: nobody is left to repair from.
RepairedFromNobody(r) ==
  /\ Together
  /\ ~whole[r]
  /\ \A q \in Peers(r) : whole[q] => q \in merged[r]
  /\ whole' = [whole EXCEPT ![r] = TRUE]
  /\ merged' = [merged EXCEPT ![r] = {}]
  /\ UNCHANGED <<phase, view, val, heard, dropped, wr, writes, acked, rd, stale, mine, restarts>>

-----------------------------------------------------------------------------
\* The change of the ring.
MoveBegin ==
  /\ Moving
  /\ phase = "old"
  /\ phase' = "both"
  /\ UNCHANGED <<view, val, heard, dropped, whole, merged, wr, writes, acked, rd, stale, mine, restarts>>

Renew(r) ==
  /\ phase \in {"both", "ending", "new"}
  /\ view[r] = "old"
  /\ view' = [view EXCEPT ![r] = "both"]
  /\ UNCHANGED <<phase, val, heard, dropped, whole, merged, wr, writes, acked, rd, stale, mine, restarts>>

\* A new replica is filled from the old ones, after all of these refuse the old configuration.
MoveValue(n, q) ==
  /\ phase = "both"
  /\ n \in New \ Old
  /\ q \in Old \ merged[n]
  /\ \A o \in Old : view[o] # "old" \/ Bug = "moved_early"
  /\ Give(n, val[q])
  /\ merged' = [merged EXCEPT ![n] = @ \cup {q}]
  /\ UNCHANGED <<phase, view, whole, wr, writes, acked, rd, stale, mine, restarts>>

\* Two old ones make a quorum.
Filled(n) == n \in Old \/ Cardinality(merged[n]) >= (IF Bug = "filled_from_one" THEN 1 ELSE 2)

MoveEnding ==
  /\ phase = "both"
  /\ \A n \in New : Filled(n)
  /\ \A o \in Old : view[o] # "old" \/ Bug = "moved_early"
  /\ phase' = "ending"
  /\ UNCHANGED <<view, val, heard, dropped, whole, merged, wr, writes, acked, rd, stale, mine, restarts>>

\* A replica that leaves, or cannot renew, makes its memory unreadable.
Invalidate(r) ==
  /\ phase \in {"ending", "new"}
  /\ r \in Old \ New
  /\ view[r] # "invalid"
  /\ view' = [view EXCEPT ![r] = "invalid"]
  /\ UNCHANGED <<phase, val, heard, dropped, whole, merged, wr, writes, acked, rd, stale, mine, restarts>>

MoveEnd ==
  /\ phase = "ending"
  /\ \A o \in Old \ New : view[o] = "invalid" \/ Bug = "left_readable"
  /\ phase' = "new"
  /\ UNCHANGED <<view, val, heard, dropped, whole, merged, wr, writes, acked, rd, stale, mine, restarts>>

-----------------------------------------------------------------------------
Init ==
  /\ phase = "old"
  /\ view = [r \in Replicas |-> "old"]
  /\ val = [r \in Replicas |-> Empty]
  /\ heard = [r \in Replicas |-> {}]
  /\ dropped = [r \in Replicas |-> FALSE]
  /\ whole = [r \in Replicas |-> TRUE]
  /\ merged = [r \in Replicas |-> {}]
  /\ wr = NoWrite
  /\ writes = 0
  /\ acked = 0
  /\ rd = NoRead
  /\ stale = FALSE
  /\ mine = 0
  /\ restarts = 0

Values == [ver : IF Wrong THEN {1, 2} ELSE {1}, len : 1 .. MaxValue]

Next ==
  \/ \E conf \in {"old", "both", "new"} : ReadBegin(conf) \/ \E v \in Values : WriteBegin(conf, v)
  \/ \E r \in Replicas :
       \/ WriteDeliver(r) \/ ReadReplica(r) \/ Restart(r) \/ Repaired(r) \/ RepairedFromNobody(r)
       \/ Renew(r) \/ Invalidate(r)
       \/ \E q \in Replicas : RepairFrom(r, q) \/ MoveValue(r, q)
  \/ WriteEnd \/ ReadEnd \/ ReadGiveUp
  \/ MoveBegin \/ MoveEnding \/ MoveEnd

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
\* A read of two replicas sees what two had acknowledged before it began.
ReadsSeeAcked == ~stale

\* On a replica a value shrinks only when the replica restarts, or drops a contradiction.
ValuesGrow ==
  [][\A r \in Replicas : val'[r].len >= val[r].len \/ restarts' # restarts \/ (dropped'[r] /\ val'[r].len = 0)]_vars

\* A client's length never falls.
ClientNeverFalls == [][mine' >= mine]_vars

\* A replica that was given contradicting values has counted it, and holds a value of one version only.
MismatchCounted == \A r \in Replicas : Cardinality(heard[r]) > 1 => dropped[r]
=============================================================================
