----------------------------- MODULE LocksTrace -----------------------------
(* Is a log of lock operations a behaviour of Locks? One file and layer, all its operations; the      *)
(* events in one total order, each at the moment when the metadata cache answered (or, without the    *)
(* cache, when the decision was made). TraceSupport says how a trace is judged.                       *)
(*                                                                                                    *)
(* An operation is named by s and k: the incarnation of its scheduler, and its count there (both      *)
(* from the term). Only their order matters; they may have gaps. saw is the lock value that was       *)
(* read: [s, k, state] with state 1 held, 2 poisoned, 3 released, or [0, 0, 0] for none. next is      *)
(* what the operation does then: "take", "wait", "work", "stop" or "ended".                           *)
(*                                                                                                    *)
(*   StartScheduler s                 (not for the first one)                                         *)
(*   Schedule      s k                a new operation, for a file without one or to replace it        *)
(*   Look          s k saw next       its first look; "wait" means that it wrote poisoned             *)
(*   Await         s k saw next       a further look while it waits                                   *)
(*   Seize         s k                the delay is over                                               *)
(*   Acquire       s k                it wrote held, and works                                        *)
(*   GoWithout     s k                the cache cannot be reached; it works                           *)
(*   Check         s k saw next       a look at work; "work" with a smaller value seen: it wrote held *)
(*                                  again                                                             *)
(*   Release       s k                it wrote released, after the work had stopped                   *)
(*   Crash         s k                its writer is dead                                              *)
(*   Lose / CacheAway / CacheBack                                                                     *)
EXTENDS Locks, TraceSupport

Named == {i \in 1 .. Len(TraceEvents) : "s" \in DOMAIN TraceEvents[i]}
Incarnations == {TraceEvents[i].s : i \in Named}
Counts(s) == {TraceEvents[i].k : i \in {j \in Named : TraceEvents[j].s = s /\ "k" \in DOMAIN TraceEvents[j]}}
Rank(x, S) == Cardinality({y \in S : y <= x})
OpOf(s, k) == <<Rank(s, Incarnations), Rank(k, Counts(s))>>

TraceSchedulers == 1 .. Cardinality(Incarnations)
TraceMaxOps == CountOf("Schedule")
TraceMaxMoves == CountOf("Schedule")
TraceMaxCrashes == CountOf("Crash")
TraceMaxLosses == CountOf("Lose")
TraceMaxDowns == CountOf("CacheAway")

o == OpOf(Event.s, Event.k)
Saw == IF Event.saw[1] = 0 THEN NoLock
       ELSE [op |-> OpOf(Event.saw[1], Event.saw[2]), st |-> Event.saw[3]]
Then == op'[o] = Event.next

\* A look after which everything is as it was.
NothingToDo == UNCHANGED vars /\ up /\ op[o] = Event.next

TraceStart == Init /\ line = 1

TraceNext ==
  \/ Is("StartScheduler") /\ StartScheduler(Rank(Event.s, Incarnations))
  \/ Is("Schedule") /\ (Schedule(o[1]) \/ Move(o[1])) /\ cur'[o[1]] = o[2]
  \/ Is("Look") /\ reg = Saw /\ Look(o) /\ Then
  \/ Is("Await") /\ reg = Saw /\ (Await(o) \/ (op[o] = "wait" /\ ~FreeFor(o) /\ NothingToDo)) /\ Then
  \/ Is("Seize") /\ Seize(o)
  \/ Is("Acquire") /\ Acquire(o)
  \/ Is("GoWithout") /\ GoWithout(o)
  \/ Is("Check") /\ reg = Saw
     /\ (Check(o) \/ (op[o] = "work" /\ reg = [op |-> o, st |-> Held] /\ NothingToDo)) /\ Then
  \/ Is("Release") /\ Release(o)
  \/ Is("Crash") /\ Crash(o)
  \/ Is("Lose") /\ Lose
  \/ Is("CacheAway") /\ CacheAway
  \/ Is("CacheBack") /\ CacheBack

TraceSpec == TraceStart /\ [][TraceNext]_<<vars, line>>
=============================================================================
