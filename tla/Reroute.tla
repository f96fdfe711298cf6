------------------------------- MODULE Reroute -------------------------------
(***************************************************************************)
(* A cell gets another parent in the copy tree, make before break.         *)
(*                                                                         *)
(* The cell "dst" is fed by a parent, "old", and is to be fed by "new".    *)
(* Both parents copy from "src", each at its own speed.  dst's scheduler   *)
(* executes the change in steps that are each safe to repeat:              *)
(*                                                                         *)
(*   decide     a durable record says that both edges are used             *)
(*   make       the new edge's cache operation runs beside the old one's   *)
(*   take over  when the new parent has what dst has, the new edge's       *)
(*              primary operation opens dst's file, which fences the old   *)
(*   finish     when the new parent has what dst has, looked at again now  *)
(*              that only the new edge appends, the record says new only   *)
(*   break      operations of edges that are not in the record are stopped *)
(*                                                                         *)
(* It may crash between any two of them, or between looking and acting,    *)
(* and then knows only the record; operations run on without it.  Workers  *)
(* die and appends end with unknown outcome.  The target may change in the *)
(* middle, which is how a change is taken back.                            *)
(*                                                                         *)
(* The file's bytes are units 1, 2, ...; a position counts units.  All     *)
(* cells collect what every cell of the tree has recorded as its own.      *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  Total,       \* units of the file
  MaxDeaths,   \* deaths of workers
  MaxLosses,   \* lost answers to appends
  MaxPlans,    \* changes of the target after the first
  Bug          \* "none", or the name of a planted bug

Parents == {"old", "new"}
Other(e) == CHOOSE p \in Parents : p # e

ASSUME Bug \in {"none", "breakFirst", "staleCheck", "blindAppend", "lastWins",
                "childrenOnly", "recordFirst"}

VARIABLES
  len,       \* cell -> committed length of its copy; dst's is Len(file)
  floor,     \* cell -> first position that it still has
  file,      \* dst's primary file: the units appended, in their order
  epoch,     \* dst's file: epoch of the last opening
  recorded,  \* dst's durable progress record, which the other cells see
  op,        \* edge -> primary operation: [on, epoch, pos, flying]
  cacheOp,   \* edge -> cache operation: [on, wrote]
  chunkLen,  \* dst's data cache: the length of the chunk's value
  cacheLen,  \* dst's metadata cache: the published length
  record,    \* durable: [edges, target]
  looked,    \* the executor saw that the target has caught up; lost in a crash
  budget     \* what may still go wrong: [deaths, losses, plans]

vars == <<len, floor, file, epoch, recorded, op, cacheOp, chunkLen, cacheLen, record, looked, budget>>

Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a < b THEN b ELSE a

DstLen == Len(file)
NoOp   == [on |-> FALSE, epoch |-> 0, pos |-> 0, flying |-> FALSE]
NoCacheOp == [on |-> FALSE, wrote |-> 0]

\* May the operation still append?  One that was fenced does not know it yet.
Valid(e) == op[e].on /\ op[e].epoch = epoch
CaughtUp(e) == len[e] >= DstLen

(***************************************************************************)
(* The source and the two parents                                          *)
(***************************************************************************)
Produce ==
  /\ len["src"] < Total
  /\ len' = [len EXCEPT !["src"] = @ + 1]
  /\ UNCHANGED <<floor, file, epoch, recorded, op, cacheOp, chunkLen, cacheLen, record, looked, budget>>

CopyToParent(e) ==
  /\ floor["src"] <= len[e] /\ len[e] < len["src"]
  /\ len' = [len EXCEPT ![e] = @ + 1]
  /\ UNCHANGED <<floor, file, epoch, recorded, op, cacheOp, chunkLen, cacheLen, record, looked, budget>>

RecordProgress ==
  /\ recorded < DstLen
  /\ recorded' = DstLen
  /\ UNCHANGED <<len, floor, file, epoch, op, cacheOp, chunkLen, cacheLen, record, looked, budget>>

\* Which cells a collecting cell asks: all of the tree, not only its children now.
Asks(c, d) ==
  CASE c = "src" -> TRUE
    [] d = "dst" -> Bug = "childrenOnly" => c \in record.edges
    [] OTHER -> FALSE

Collect(c) ==
  /\ floor[c] < len[c]
  /\ Asks(c, "dst") => floor[c] < recorded
  /\ \A p \in Parents : Asks(c, p) => floor[c] < len[p]
  /\ floor' = [floor EXCEPT ![c] = @ + 1]
  /\ UNCHANGED <<len, file, epoch, recorded, op, cacheOp, chunkLen, cacheLen, record, looked, budget>>

(***************************************************************************)
(* Primary operations: one append under way at a time, at an offset        *)
(***************************************************************************)
Send(e) ==
  /\ op[e].on /\ ~op[e].flying
  /\ floor[e] <= op[e].pos /\ op[e].pos < len[e]
  /\ op' = [op EXCEPT ![e].flying = TRUE]
  /\ UNCHANGED <<len, floor, file, epoch, recorded, cacheOp, chunkLen, cacheLen, record, looked, budget>>

\* The append reaches dst's file system, which applies it or refuses it.  A lost
\* answer makes the operation send the same unit again; one that was fenced ends;
\* one at a wrong offset goes on where the file ends.
Land(e, answered) ==
  /\ op[e].flying
  /\ answered \/ budget.losses > 0
  /\ budget' = IF answered THEN budget ELSE [budget EXCEPT !.losses = @ - 1]
  /\ LET fenced == op[e].epoch # epoch /\ Bug # "blindAppend"
         fits   == op[e].pos = DstLen \/ Bug = "blindAppend"
         done   == ~fenced /\ fits
     IN /\ file' = IF done THEN Append(file, op[e].pos + 1) ELSE file
        /\ op' = [op EXCEPT ![e] =
             CASE ~answered    -> [@ EXCEPT !.flying = FALSE]
               [] fenced       -> NoOp
               [] done         -> [@ EXCEPT !.flying = FALSE, !.pos = @ + 1]
               [] OTHER        -> [@ EXCEPT !.flying = FALSE, !.pos = DstLen]]
  /\ UNCHANGED <<len, floor, epoch, recorded, cacheOp, chunkLen, cacheLen, record, looked>>

(***************************************************************************)
(* Cache operations: chunk first, then length; both edges may run          *)
(***************************************************************************)
CacheWrite(e) ==
  /\ cacheOp[e].on /\ cacheOp[e].wrote < len[e]
  /\ cacheOp' = [cacheOp EXCEPT ![e].wrote = len[e]]
  /\ chunkLen' = IF Bug = "lastWins" THEN len[e] ELSE Max(chunkLen, len[e])
  /\ UNCHANGED <<len, floor, file, epoch, recorded, op, cacheLen, record, looked, budget>>

CachePublish(e) ==
  /\ cacheOp[e].on /\ cacheLen < cacheOp[e].wrote
  /\ cacheLen' = Max(cacheLen, cacheOp[e].wrote)
  /\ UNCHANGED <<len, floor, file, epoch, recorded, op, cacheOp, chunkLen, record, looked, budget>>

(***************************************************************************)
(* The executor: dst's scheduler                                           *)
(***************************************************************************)
\* Opening the file fences every earlier operation and tells its length.
Open(e) ==
  /\ epoch' = epoch + 1
  /\ op' = [op EXCEPT ![e] = [on |-> TRUE, epoch |-> epoch + 1, pos |-> DstLen, flying |-> FALSE]]

Decide ==
  /\ record = [edges |-> {"old"}, target |-> "old"]
  /\ record' = IF Bug = "recordFirst" THEN [edges |-> {"new"}, target |-> "new"]
                                      ELSE [edges |-> Parents, target |-> "new"]
  /\ looked' = FALSE
  /\ UNCHANGED <<len, floor, file, epoch, recorded, op, cacheOp, chunkLen, cacheLen, budget>>

\* The plan changes in the middle: the other way round, by the same steps.
ChangePlan ==
  /\ record.edges = Parents /\ budget.plans > 0
  /\ record' = [record EXCEPT !.target = Other(@)]
  /\ looked' = FALSE
  /\ budget' = [budget EXCEPT !.plans = @ - 1]
  /\ UNCHANGED <<len, floor, file, epoch, recorded, op, cacheOp, chunkLen, cacheLen>>

\* Operations that the record asks for and that do not run are started.  For the
\* primary file that is one, and only when no other one may append.
Make(e) ==
  /\ e \in record.edges /\ ~cacheOp[e].on
  /\ cacheOp' = [cacheOp EXCEPT ![e] = [on |-> TRUE, wrote |-> 0]]
  /\ UNCHANGED <<len, floor, file, epoch, recorded, op, chunkLen, cacheLen, record, looked, budget>>

Repair(e) ==
  /\ e \in record.edges /\ \A p \in Parents : ~Valid(p)
  /\ record.edges = {e} \/ CaughtUp(e)
  /\ Open(e)
  /\ UNCHANGED <<len, floor, file, recorded, cacheOp, chunkLen, cacheLen, record, looked, budget>>

\* The executor asks for the lengths.  They go on changing while it thinks.
Look ==
  /\ record.edges = Parents /\ ~looked
  /\ CaughtUp(record.target) \/ Bug = "breakFirst"
  /\ looked' = TRUE
  /\ UNCHANGED <<len, floor, file, epoch, recorded, op, cacheOp, chunkLen, cacheLen, record, budget>>

\* Only while the old edge's cache operation feeds the cell, should the target turn
\* out to be behind after all.
TakeOver ==
  /\ record.edges = Parents /\ looked /\ ~Valid(record.target)
  /\ cacheOp[record.target].on
  /\ Open(record.target)
  /\ looked' = (Bug \in {"staleCheck", "breakFirst"})
  /\ UNCHANGED <<len, floor, file, recorded, cacheOp, chunkLen, cacheLen, record, budget>>

Finish ==
  /\ record.edges = Parents /\ looked /\ Valid(record.target) /\ cacheOp[record.target].on
  /\ record' = [record EXCEPT !.edges = {record.target}]
  /\ looked' = FALSE
  /\ UNCHANGED <<len, floor, file, epoch, recorded, op, cacheOp, chunkLen, cacheLen, budget>>

Break(e) ==
  /\ e \notin record.edges /\ (op[e].on \/ cacheOp[e].on)
  /\ op' = [op EXCEPT ![e] = NoOp]
  /\ cacheOp' = [cacheOp EXCEPT ![e] = NoCacheOp]
  /\ UNCHANGED <<len, floor, file, epoch, recorded, chunkLen, cacheLen, record, looked, budget>>

\* A crash takes what the executor had seen; everything else is in the record or
\* in the operations, which run on.
ExecutorCrash ==
  /\ looked
  /\ looked' = FALSE
  /\ UNCHANGED <<len, floor, file, epoch, recorded, op, cacheOp, chunkLen, cacheLen, record, budget>>

\* A worker dies with both its operations.  An append under way is lost with it or
\* has been applied; the second case is Land before the death.
WorkerDeath(e) ==
  /\ budget.deaths > 0 /\ (op[e].on \/ cacheOp[e].on)
  /\ op' = [op EXCEPT ![e] = NoOp]
  /\ cacheOp' = [cacheOp EXCEPT ![e] = NoCacheOp]
  /\ budget' = [budget EXCEPT !.deaths = @ - 1]
  /\ UNCHANGED <<len, floor, file, epoch, recorded, chunkLen, cacheLen, record, looked>>

Init ==
  /\ len = [c \in {"src", "old", "new"} |-> 0]
  /\ floor = [c \in {"src", "old", "new"} |-> 0]
  /\ file = <<>> /\ epoch = 1 /\ recorded = 0
  /\ op = [e \in Parents |-> IF e = "old" THEN [NoOp EXCEPT !.on = TRUE, !.epoch = 1] ELSE NoOp]
  /\ cacheOp = [e \in Parents |-> [on |-> e = "old", wrote |-> 0]]
  /\ chunkLen = 0 /\ cacheLen = 0
  /\ record = [edges |-> {"old"}, target |-> "old"]
  /\ looked = FALSE
  /\ budget = [deaths |-> MaxDeaths, losses |-> MaxLosses, plans |-> MaxPlans]

Parent(e) == CopyToParent(e) \/ Collect(e)
Operation(e) == Send(e) \/ Land(e, TRUE) \/ CacheWrite(e) \/ CachePublish(e)
Upkeep == Decide \/ TakeOver \/ Finish \/ \E e \in Parents : Make(e) \/ Repair(e) \/ Break(e)

Next ==
  \/ Produce \/ RecordProgress \/ Collect("src")
  \/ Upkeep \/ Look \/ ChangePlan \/ ExecutorCrash
  \/ \E e \in Parents : Parent(e) \/ Operation(e) \/ Land(e, FALSE) \/ WorkerDeath(e)

Safe == Init /\ [][Next]_vars

\* Everybody alive goes on working.  The executor may crash again and again between
\* looking and acting; it acts at last (strong fairness).
Live ==
  /\ Safe
  /\ WF_vars(Produce)
  /\ WF_vars(Look)
  /\ SF_vars(TakeOver) /\ SF_vars(Finish) /\ WF_vars(Decide)
  /\ \A e \in Parents :
       /\ WF_vars(CopyToParent(e)) /\ WF_vars(Send(e)) /\ WF_vars(Land(e, TRUE))
       /\ WF_vars(CacheWrite(e)) /\ WF_vars(CachePublish(e))
       /\ WF_vars(Make(e)) /\ WF_vars(Repair(e)) /\ WF_vars(Break(e))

(***************************************************************************)
(* Properties                                                              *)
(***************************************************************************)
\* dst's file is what the source produced: each unit once and in order.
InOrder == \A i \in 1 .. DstLen : file[i] = i

\* Whatever dst lacks, each edge of its record can give it.
NothingLost == \A e \in record.edges : floor[e] <= DstLen

\* Make before break: while no worker dies, dst is fed at every moment by an edge
\* whose parent is not behind it, through one layer at least.
AlwaysFed ==
  budget.deaths = MaxDeaths =>
    \E e \in Parents : CaughtUp(e) /\ (Valid(e) \/ cacheOp[e].on)

\* At most one operation may append.
OneAppends == Cardinality({e \in Parents : Valid(e)}) <= 1

\* Two cache operations at once do no harm.
PublishedIsWritten == cacheLen <= chunkLen
CacheNeverShrinks == [][chunkLen' >= chunkLen /\ cacheLen' >= cacheLen]_<<chunkLen, cacheLen>>

\* The cell gets everything, and the change comes to its end.
Complete == <>[](DstLen = Total /\ cacheLen = Total)
Changed  == <>[](/\ Cardinality(record.edges) = 1
                 /\ \A e \in Parents : e \notin record.edges => ~op[e].on /\ ~cacheOp[e].on)
=============================================================================
