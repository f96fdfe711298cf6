------------------------------- MODULE Locks -------------------------------
(* The lock of one message file in one layer: which of several operations copies it. Paper, section  *)
(* 3, "Dueling Writers".                                                                             *)
(*                                                                                                   *)
(* The lock is a maximum register: a value is (term, owner, state) with held < poisoned < released,  *)
(* and the greatest value ever written stays. An operation writes held to take the lock, a greater   *)
(* one writes poisoned in its name to ask it to end, it answers with released. After a delay the     *)
(* greater one takes the lock without an answer ("seizes" it).                                       *)
(*                                                                                                   *)
(* Locks only save work; the bytes are right without them (rule 3, "Longer wins", and fences). So    *)
(* what is asked of them is: a change of hands by one scheduler never has two operations at work;    *)
(* whatever the faults, some time exactly one goes on and nobody disturbs it, even when two          *)
(* schedulers live that know nothing of each other; and a cache that is away stops nobody.           *)
(*                                                                                                   *)
(* Abstractions. An operation <<s, k>> is the k-th one of the scheduler with incarnation s; its term *)
(* is (s, k), compared in this order; the owner (replica, nonce) decides ties between operations of  *)
(* one term, which do not occur here. The register is atomic: a write is acknowledged by two         *)
(* replicas and a read asks two (spec Merge). It loses everything at once (Lose). Delays end at any  *)
(* time. A scheduler that was superseded may go on for ever, and may schedule an operation whenever  *)
(* it has none. Numbers are bounded: an identity is used again only when it never wrote, as such an  *)
(* operation differs from a new one in nothing.                                                      *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
  Schedulers,  \* incarnations, 1 .. n
  MaxOps,      \* operations of each scheduler
  MaxMoves,    \* times that a scheduler replaces an operation that works
  MaxCrashes,  \* writers that end without a release
  MaxLosses,   \* times that the register loses its value
  MaxDowns,    \* times that the cache is away
  SeizeEarly,  \* TRUE: an operation may be seized that is only slow. FALSE: only when it is dead
  Bug          \* "none", or the planted bug; each is described where it is

VARIABLES
  reg,         \* the register: [op, st]
  op,          \* operation -> none, want, take, wait, work, stop, ended, dead
  wrote,       \* operation -> did it ever write?
  cur,         \* scheduler -> its latest operation's k, 0 for none
  started,     \* the schedulers that were ever there; 1 from the start
  up,          \* can the cache be reached?
  moves, crashes, losses, downs

vars == <<reg, op, wrote, cur, started, up, moves, crashes, losses, downs>>
faults == <<moves, crashes, losses, downs>>

Ops == Schedulers \X (1 .. MaxOps)
Held == 1
Poisoned == 2
Released == 3
NoLock == [op |-> <<0, 0>>, st |-> 0]

\* planted ("term_adds"): the term is one number, the incarnation raised by one for each operation
Less(a, b) == IF Bug = "term_adds" THEN a[1] + a[2] < b[1] + b[2] \/ (a[1] + a[2] = b[1] + b[2] /\ a[1] < b[1])
              ELSE a[1] < b[1] \/ (a[1] = b[1] /\ a[2] < b[2])
Join(a, b) ==
  \* planted ("unordered"): the last write stays, as in a plain key-value cache
  IF Bug = "unordered" THEN b
  ELSE IF Less(a.op, b.op) \/ (a.op = b.op /\ a.st < b.st) THEN b ELSE a
Write(o, value) == /\ reg' = Join(reg, value)
                   /\ wrote' = [wrote EXCEPT ![o] = TRUE]

\* What an operation makes of a value of the register that it saw.
\* Does somebody else have the lock for good, so that this operation has to end?
SupersededBy(o, saw) == IF Bug = "unordered" THEN FALSE ELSE Less(o, saw.op)
FreeIn(o, saw) == saw = NoLock \/ saw.st = Released \/ saw.op = o
Superseded(o) == SupersededBy(o, reg)

Live(o) == op[o] \in {"want", "take", "wait", "work", "stop"}

-----------------------------------------------------------------------------
\* A new incarnation: the cell's scheduler moved, or the old one is only thought dead.
StartScheduler(s) ==
  /\ s \notin started
  /\ s - 1 \in started
  /\ started' = started \cup {s}
  /\ UNCHANGED <<reg, op, wrote, cur, up, faults>>

\* An operation for a file that has none, as far as this scheduler knows.
Schedule(s) ==
  /\ s \in started
  /\ \/ cur[s] = 0 /\ cur' = [cur EXCEPT ![s] = 1]
     \/ /\ cur[s] # 0
        /\ ~Live(<<s, cur[s]>>)
        /\ IF ~wrote[<<s, cur[s]>>] \/ Bug = "unordered" THEN UNCHANGED cur
           ELSE cur[s] < MaxOps /\ cur' = [cur EXCEPT ![s] = @ + 1]
  /\ op' = [op EXCEPT ![<<s, cur'[s]>>] = "want"]
  /\ UNCHANGED <<reg, wrote, started, up, faults>>

\* The scheduler moves the operation to another writer.
Move(s) ==
  /\ s \in started
  /\ moves < MaxMoves
  /\ cur[s] # 0
  /\ cur[s] < MaxOps
  /\ op[<<s, cur[s]>>] = "work"
  /\ cur' = [cur EXCEPT ![s] = @ + 1]
  /\ op' = [op EXCEPT ![<<s, cur'[s]>>] = "want"]
  /\ moves' = moves + 1
  /\ UNCHANGED <<reg, wrote, started, up, crashes, losses, downs>>

-----------------------------------------------------------------------------
\* Steps are written with the value that was seen, for the traces, where it may be an older one.

\* A new operation looks at the lock: it ends before a greater one, poisons a smaller one.
LookAt(o, saw) ==
  /\ up
  /\ op[o] = "want"
  /\ \/ SupersededBy(o, saw) /\ op' = [op EXCEPT ![o] = "ended"] /\ UNCHANGED <<reg, wrote>>
     \/ ~SupersededBy(o, saw) /\ FreeIn(o, saw) /\ op' = [op EXCEPT ![o] = "take"] /\ UNCHANGED <<reg, wrote>>
     \/ /\ ~SupersededBy(o, saw)
        /\ ~FreeIn(o, saw)
        /\ Write(o, [saw EXCEPT !.st = Poisoned])
        \* planted: it does not wait for the answer
        /\ op' = [op EXCEPT ![o] = IF Bug = "not_awaited" THEN "take" ELSE "wait"]
  /\ UNCHANGED <<cur, started, up, faults>>

Look(o) == LookAt(o, reg)

\* It waits until the poisoned one has released the lock.
AwaitAt(o, saw) ==
  /\ up
  /\ op[o] = "wait"
  /\ \/ SupersededBy(o, saw) /\ op' = [op EXCEPT ![o] = "ended"]
     \/ ~SupersededBy(o, saw) /\ FreeIn(o, saw) /\ op' = [op EXCEPT ![o] = "take"]
  /\ UNCHANGED <<reg, wrote, cur, started, up, faults>>

Await(o) == AwaitAt(o, reg)

\* The delay is over and there is no answer.
SeizeAt(o, saw) ==
  /\ up
  /\ op[o] = "wait"
  /\ ~SupersededBy(o, saw)
  /\ ~FreeIn(o, saw)
  /\ SeizeEarly \/ ~Live(saw.op)
  /\ op' = [op EXCEPT ![o] = "take"]
  /\ UNCHANGED <<reg, wrote, cur, started, up, faults>>

Seize(o) == SeizeAt(o, reg)

Acquire(o) ==
  /\ up
  /\ op[o] = "take"
  /\ Write(o, [op |-> o, st |-> Held])
  /\ op' = [op EXCEPT ![o] = "work"]
  /\ UNCHANGED <<cur, started, up, faults>>

\* The cache is away: it works without a lock.
GoWithout(o) ==
  /\ ~up
  /\ Bug # "away_stops"
  /\ op[o] \in {"want", "take", "wait"}
  /\ op' = [op EXCEPT ![o] = "work"]
  /\ UNCHANGED <<reg, wrote, cur, started, up, faults>>

\* At work it looks again and again. Poisoned: it stops. Somebody greater is there: it ends. The
\* register is less than what it wrote, or should have written: it writes it (again).
CheckAt(o, saw) ==
  /\ up
  /\ op[o] = "work"
  /\ \/ /\ SupersededBy(o, saw) \/ (saw.op = o /\ saw.st = Released)
        /\ op' = [op EXCEPT ![o] = "ended"]
        /\ UNCHANGED <<reg, wrote>>
     \/ /\ saw.op = o
        /\ saw.st = Poisoned
        \* planted: the answer is written before the work stops
        /\ IF Bug = "released_early" THEN Write(o, [op |-> o, st |-> Released]) ELSE UNCHANGED <<reg, wrote>>
        /\ op' = [op EXCEPT ![o] = IF Bug = "released_early" THEN "work" ELSE "stop"]
     \/ /\ Bug # "unordered" /\ Bug # "not_rewritten"
        /\ Less(saw.op, o)
        /\ Write(o, [op |-> o, st |-> Held])
        /\ UNCHANGED op
  /\ UNCHANGED <<cur, started, up, faults>>

Check(o) == CheckAt(o, reg)

Release(o) ==
  /\ up
  /\ op[o] = "stop"
  /\ Write(o, [op |-> o, st |-> Released])
  /\ op' = [op EXCEPT ![o] = "ended"]
  /\ UNCHANGED <<cur, started, up, faults>>

-----------------------------------------------------------------------------
Crash(o) ==
  /\ crashes < MaxCrashes
  /\ Live(o)
  /\ crashes' = crashes + 1
  /\ op' = [op EXCEPT ![o] = "dead"]
  /\ UNCHANGED <<reg, wrote, cur, started, up, moves, losses, downs>>

Lose ==
  /\ losses < MaxLosses
  /\ reg # NoLock
  /\ losses' = losses + 1
  /\ reg' = NoLock
  /\ UNCHANGED <<op, wrote, cur, started, up, moves, crashes, downs>>

CacheAway ==
  /\ up
  /\ downs < MaxDowns
  /\ downs' = downs + 1
  /\ up' = FALSE
  /\ UNCHANGED <<reg, op, wrote, cur, started, moves, crashes, losses>>

CacheBack ==
  /\ ~up
  /\ up' = TRUE
  /\ UNCHANGED <<reg, op, wrote, cur, started, faults>>

-----------------------------------------------------------------------------
Init ==
  /\ reg = NoLock
  /\ op = [o \in Ops |-> "none"]
  /\ wrote = [o \in Ops |-> FALSE]
  /\ cur = [s \in Schedulers |-> 0]
  /\ started = {1}
  /\ up = TRUE
  /\ moves = 0 /\ crashes = 0 /\ losses = 0 /\ downs = 0

Step(o) == Look(o) \/ Await(o) \/ Seize(o) \/ Acquire(o) \/ GoWithout(o) \/ Check(o) \/ Release(o)

Next ==
  \/ \E s \in Schedulers : StartScheduler(s) \/ Schedule(s) \/ Move(s)
  \/ \E o \in Ops : Step(o) \/ Crash(o)
  \/ Lose \/ CacheAway \/ CacheBack

Spec == Init /\ [][Next]_vars

\* Each operation that lives takes its steps, each scheduler sees that it has no operation. Faults,
\* moves and new schedulers need not happen. That the cache comes back is assumed only where it says so.
Fair == /\ \A o \in Ops : WF_vars(Step(o))
        /\ \A s \in Schedulers : WF_vars(Schedule(s))
FairSpec == Spec /\ Fair
FairSpecBack == FairSpec /\ WF_vars(CacheBack)

-----------------------------------------------------------------------------
Working == {o \in Ops : op[o] \in {"work", "stop"}}

\* A lock changes hands with no two at work, when one scheduler does it and nobody seizes early.
Exclusive == Cardinality(Working) <= 1

\* Two that begin at the same moment may both find the lock free: the register has no compare and
\* swap. Then all but the greatest can see it at their next look. (No losses, cache never away.)
OverlapIsSeen == \A o, q \in Working : Less(o, q) => Superseded(o)

\* The register never goes back but by a loss.
OnlyGrows == [][losses' = losses => (reg' = reg \/ Less(reg.op, reg'.op) \/ (reg.op = reg'.op /\ reg.st < reg'.st))]_vars

\* Whatever happened, some time one operation works for ever and no other does.
Settles == <>[](Cardinality(Working) = 1 /\ Cardinality({o \in Ops : op[o] = "work"}) = 1)

\* And it is one of the newest scheduler.
NewestWins == <>[](LET s == CHOOSE x \in started : \A y \in started : y <= x IN
                   \A o \in Ops : op[o] = "work" => o[1] = s)

\* Even with a cache that stays away there is somebody at work again and again.
SomebodyWorks == []<>(\E o \in Ops : op[o] = "work")
=============================================================================
