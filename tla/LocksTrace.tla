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
(*   Begin                            another trace begins, so that TLC is started once for many      *)
(*   StartScheduler s                 (not for the first one)                                         *)
(*   Schedule      s k                a new operation, for a file without one or to replace it        *)
(*   Look          s k saw next       its first look; "wait" means that it wrote poisoned             *)
(*   Await         s k saw next       a further look while it waits; a value that is held is poisoned *)
(*   Seize         s k saw            the delay is over; saw may be left out                          *)
(*   Acquire       s k                it writes held, and works                                       *)
(*   GoWithout     s k                the cache cannot be reached; it works                           *)
(*   Check         s k saw next       a look at work; "work" with a smaller value seen: it writes     *)
(*                                    held (again); "wait": it worked without a lock, and a smaller   *)
(*                                    one has it                                                      *)
(*   Release       s k                it writes released, after the work has stopped or ended         *)
(*   Crash         s k                its writer is dead                                              *)
(*   Lose / CacheAway / CacheBack                                                                     *)
(*                                                                                                    *)
(* Wider than Locks: the register of the running system is three replicas of which two answer, so a   *)
(* look may give any value that was sent, also an older one, or none (reg is the greatest one that    *)
(* was sent). A scheduler may replace an operation that only waits. Work has an end. An operation     *)
(* poisons again what it saw held while it waits, and one that went without a lock may find a smaller *)
(* one holding it. One that has ended may be asked to start once more; it sees its own release.       *)
EXTENDS Integers, Locks, TraceSupport

VARIABLE sent  \* every value that was written

\* LET, because TLC evaluates the trace again for each use of TraceEvents in a constant definition,
\* but once for a LET. scheduler -> counts of its operations.
Counts ==
  LET events == TraceEvents
      named  == {<<events[i].s, IF "k" \in DOMAIN events[i] THEN events[i].k ELSE -1>> :
                   i \in {j \in DOMAIN events : "s" \in DOMAIN events[j]}}
  IN [s \in {n[1] : n \in named} |-> {n[2] : n \in {m \in named : m[1] = s /\ m[2] # -1}}]
Incarnations == DOMAIN Counts
Rank(x, S) == Cardinality({y \in S : y <= x})
OpOf(s, k) == <<Rank(s, Incarnations), Rank(k, Counts[s])>>

TraceSchedulers == 1 .. Cardinality(Incarnations)
TraceMaxOps == LET size == {Cardinality(Counts[s]) : s \in Incarnations}
               IN CHOOSE n \in size : \A m \in size : m <= n
TraceMaxMoves == 0
TraceMaxCrashes == CountOf("Crash")
TraceMaxLosses == CountOf("Lose")
TraceMaxDowns == CountOf("CacheAway")

o == OpOf(Event.s, Event.k)
Saw == IF ~Has("saw") THEN reg
       ELSE IF Event.saw[1] = 0 THEN NoLock
       ELSE [op |-> OpOf(Event.saw[1], Event.saw[2]), st |-> Event.saw[3]]
Seen == Saw = NoLock \/ Saw \in sent
Then == op'[o] = Event.next
Sends(values) == sent' = sent \cup values
Mine(st) == {[op |-> o, st |-> st]}
Poison == {[Saw EXCEPT !.st = Poisoned]}

\* A look after which everything is as it was.
NothingToDo == UNCHANGED vars /\ up /\ op[o] = Event.next

TraceSchedule ==
  /\ o[1] \in started /\ op[o] = "none" /\ cur[o[1]] < o[2]
  /\ cur' = [cur EXCEPT ![o[1]] = o[2]]
  /\ op' = [op EXCEPT ![o] = "want"]
  /\ UNCHANGED <<reg, wrote, started, up, faults>>

\* At work without a lock, it finds a smaller operation that holds it; or it waits, and poisons again.
PoisonAndWait(from) ==
  /\ up
  /\ op[o] = from
  /\ ~SupersededBy(o, Saw) /\ ~FreeIn(o, Saw)
  /\ from = "work" => ~wrote[o]
  /\ Write(o, [Saw EXCEPT !.st = Poisoned])
  /\ op' = [op EXCEPT ![o] = "wait"]
  /\ UNCHANGED <<cur, started, up, faults>>

WorkEnds ==
  /\ up
  /\ op[o] = "work"
  /\ Write(o, [op |-> o, st |-> Released])
  /\ op' = [op EXCEPT ![o] = "ended"]
  /\ UNCHANGED <<cur, started, up, faults>>

TraceStart == Init /\ sent = {} /\ line = 1

Begin ==
  /\ reg' = NoLock
  /\ op' = [x \in Ops |-> "none"]
  /\ wrote' = [x \in Ops |-> FALSE]
  /\ cur' = [s \in Schedulers |-> 0]
  /\ started' = {1}
  /\ up' = TRUE
  /\ sent' = {}
  /\ UNCHANGED faults

TraceNext ==
  \/ Is("Begin") /\ Begin
  \/ Is("StartScheduler") /\ StartScheduler(Rank(Event.s, Incarnations)) /\ Sends({})
  \/ Is("Schedule") /\ TraceSchedule /\ Sends({})
  \/ Is("Look") /\ Seen /\ LookAt(o, Saw) /\ Then /\ Sends(IF Event.next = "wait" THEN Poison ELSE {})
  \/ Is("Look") /\ Seen /\ Saw = [op |-> o, st |-> Released] /\ op[o] = "ended" /\ NothingToDo /\ Sends({})
  \/ Is("Await") /\ Seen /\ AwaitAt(o, Saw) /\ Then /\ Sends({})
  \/ Is("Await") /\ Seen /\ PoisonAndWait("wait") /\ Then /\ Sends(Poison)
  \/ Is("Seize") /\ Seen /\ SeizeAt(o, Saw) /\ Sends({})
  \/ Is("Acquire") /\ Acquire(o) /\ Sends(Mine(Held))
  \/ Is("GoWithout") /\ GoWithout(o) /\ Sends({})
  \/ Is("Check") /\ Seen /\ CheckAt(o, Saw) /\ Then
     /\ Sends(IF Event.next = "work" THEN Mine(Held) ELSE {})
  \/ Is("Check") /\ Seen /\ Saw = [op |-> o, st |-> Held] /\ op[o] = "work" /\ NothingToDo /\ Sends({})
  \/ Is("Check") /\ Seen /\ PoisonAndWait("work") /\ Then /\ Sends(Poison)
  \/ Is("Release") /\ (Release(o) \/ WorkEnds) /\ Sends(Mine(Released))
  \/ Is("Crash") /\ Crash(o) /\ Sends({})
  \/ Is("Lose") /\ Lose /\ Sends({})
  \/ Is("CacheAway") /\ CacheAway /\ Sends({})
  \/ Is("CacheBack") /\ CacheBack /\ Sends({})

TraceSpec == TraceStart /\ [][TraceNext]_<<vars, line, sent>>
=============================================================================
