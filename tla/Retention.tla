------------------------------ MODULE Retention ------------------------------
(***************************************************************************)
(* What a shard's cells may delete, what they may create, and what a       *)
(* consumer is told about positions that are gone.                         *)
(*                                                                         *)
(* The shard's closed message files are 1, 2, ...; a position is a file    *)
(* number.  The source "src" feeds "mid", and "mid" feeds "leaf".  Rules:  *)
(*                                                                         *)
(*   - Each cell keeps a durable floor.  It raises the floor first and     *)
(*     deletes files below it afterwards, and creates nothing below it.    *)
(*   - What a cell has done is read off its files, which are durable: the  *)
(*     first file from its floor on that it does not have completely.      *)
(*   - Something wants the oldest files away: age, size, or an operator's  *)
(*     durable word (trim).  The source's floor is the tree's: it is       *)
(*     raised when they are wanted away and no member is known to lack,    *)
(*     or not known to have, them.                                         *)
(*   - The members are the cells of the tree that are waited for.  One     *)
(*     that was away too long, or that lacks what the policy "drop" wants  *)
(*     away for its size, is durably left out of the members first.  When *)
(*     it is heard of again it is told the tree's floor: what is below is  *)
(*     its gap.  It is durably taken in when it gets on from there, or has *)
(*     all closed files: one that does not would be waited for again.      *)
(*   - The producer opens no file while Keep closed ones are not           *)
(*     collected: with "block" it waits for the cell, with "drop" until    *)
(*     that is left out.                                                   *)
(*   - Every cell raises its floor to what it was told of the tree's.  Any *)
(*     cell may become any other's parent (see Reroute), so it does not    *)
(*     matter whose child a cell is.                                       *)
(*   - A consumer whose file is missing asks for the cell's floor after it *)
(*     has looked for the file.  Below the floor it gets OutOfRange with   *)
(*     the floor as the first available position; else it waits.           *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
  NumFiles,    \* files of the shard
  Keep,        \* closed files that size keeps; NumFiles: as many as there are
  Policy,      \* "block" or "drop", when a member lacks what size wants away
  Age,         \* TRUE: any closed file may become too old
  MaxTrims,    \* how often an operator trims
  MaxCrashes,  \* crashes of cells
  MaxTwice,    \* how often two operations copy one file at once
  MaxAway,     \* how often a cell is left out because it was away for too long
  Bug          \* "none", or the name of a planted bug

Cells == {"src", "mid", "leaf"}
Others == Cells \ {"src"}
Files == 1 .. NumFiles
Unknown == 0                \* of a cell of which the source has not heard

ParentOf(c) == IF c = "leaf" THEN "mid" ELSE "src"

ASSUME Policy \in {"block", "drop"} /\ Age \in BOOLEAN
ASSUME Bug \in {"none", "unknownIsDone", "deleteFirst", "noFloorAtCreate", "floorAtStart",
                "progressFirst", "takenInAsDone", "leftOutLate", "blockIgnored",
                "trimInMemory", "silentJump", "neverTold", "countedApart", "keptOut"}

VARIABLES
  produced,    \* number of files that the source has closed
  held,        \* cell -> complete files that it has
  floor,       \* cell -> durable: nothing below it is created; the source's is the tree's
  begun,       \* cell -> files whose copy is under way; lost in a crash
  members,     \* durable at the source
  trim,        \* durable at the source: everything below was to be trimmed
  old,         \* ghost: files below are too old; time does not pass in a crash
  view,        \* cell -> what the source has heard that it has done; lost in a crash
  promise,     \* ghost: member -> the tree's floor when it was taken in
  collected,   \* ghost: cell -> files that it has deleted
  answered,    \* ghost: the highest trim that was answered
  pos,         \* the leaf's consumer: the next file to read
  missed,      \* it has looked for the file and not found it
  skipped,     \* ghost: files that it did not get, told by OutOfRange or not
  budget       \* what may still happen: [crashes, twice, away, trims]

vars == <<produced, held, floor, begun, members, trim, old, view, promise, collected, answered, pos,
          missed, skipped, budget>>
durable == <<floor, members, trim>>
consumer == <<pos, missed, skipped>>

SetMin(s) == CHOOSE m \in s : \A n \in s : m <= n
Max(a, b) == IF a < b THEN b ELSE a
treeFloor == floor["src"]
Spend(what) == budget' = [budget EXCEPT ![what] = @ - 1]

(***************************************************************************)
(* Producing and copying                                                   *)
(***************************************************************************)
Over == produced + 1 - treeFloor > Keep

Produce ==
  /\ produced < NumFiles
  \* The file that is opened now is not counted before it is closed.
  \* planted, countedApart: it counts one file that those who make room do not
  /\ Bug # "blockIgnored" =>
       produced + (IF Bug = "countedApart" THEN 2 ELSE 1) - treeFloor <= Keep
  /\ produced' = produced + 1
  /\ held' = [held EXCEPT !["src"] = @ \cup {produced + 1}]
  /\ UNCHANGED <<durable, begun, old, view, promise, collected, answered, consumer, budget>>

MayCreate(c, f) == Bug # "noFloorAtCreate" => floor[c] <= f

\* Also in a cell that was left out: nobody stops its operations.
Begin(c, f) ==
  /\ f \in held[ParentOf(c)] /\ f \notin held[c] /\ f \notin begun[c]
  /\ MayCreate(c, f)
  /\ begun' = [begun EXCEPT ![c] = @ \cup {f}]
  /\ UNCHANGED <<produced, held, durable, old, view, promise, collected, answered, consumer, budget>>

\* The copy becomes durable.  The floor may have passed the file since it was begun, so
\* it is asked for again, after the creation of the name and before the file counts.
\* Another operation may copy the same file and end later.
Create(c, f, another) ==
  /\ f \in begun[c]
  /\ another => budget.twice > 0
  /\ begun' = IF another THEN begun ELSE [begun EXCEPT ![c] = @ \ {f}]
  /\ IF another THEN Spend("twice") ELSE UNCHANGED budget
  /\ held' = IF Bug = "floorAtStart" \/ MayCreate(c, f)
               THEN [held EXCEPT ![c] = @ \cup {f}] ELSE held
  /\ UNCHANGED <<produced, durable, old, view, promise, collected, answered, consumer>>

\* The first file from the cell's floor on that the cell lacks.
Done(c) ==
  LET has == held[c] \cup (IF Bug = "progressFirst" THEN begun[c] ELSE {})
  IN SetMin({f \in 1 .. NumFiles + 1 : f >= floor[c] /\ f \notin has})

(***************************************************************************)
(* What is wanted away                                                     *)
(***************************************************************************)
Grow ==
  /\ Age /\ old <= produced
  /\ old' = old + 1
  /\ UNCHANGED <<produced, held, durable, begun, view, promise, collected, answered, consumer, budget>>

\* Answered when it is durable.  The newest closed file is kept.
Trim(n) ==
  /\ budget.trims > 0 /\ trim < n /\ n <= produced
  /\ Spend("trims")
  /\ trim' = n
  /\ answered' = n
  /\ UNCHANGED <<produced, held, floor, begun, members, old, view, promise, collected, consumer>>

WantedAway(f) == f < trim \/ f < old \/ (Over /\ f = treeFloor)

(***************************************************************************)
(* The tree's floor                                                        *)
(***************************************************************************)
\* Only of members: what is heard of another one takes it in first.
Hear(c) ==
  /\ c \in members \ {"src"} /\ view[c] # Done(c)
  /\ view' = [view EXCEPT ![c] = Max(@, Done(c))]
  /\ UNCHANGED <<produced, held, durable, begun, old, promise, collected, answered, consumer, budget>>

Needed(c, f) == IF view[c] = Unknown THEN Bug # "unknownIsDone" ELSE view[c] <= f
Needing == {c \in members \ {"src"} : Needed(c, treeFloor)}
Raised == [floor EXCEPT !["src"] = @ + 1]

RaiseTreeFloor ==
  /\ treeFloor <= produced /\ WantedAway(treeFloor)
  /\ Needing = {}
  /\ floor' = Raised
  /\ UNCHANGED <<produced, held, begun, members, trim, old, view, promise, collected, answered,
                 consumer, budget>>

\* Who needs it is left out and the floor is raised in one write.  If these were two,
\* whoever was left out could be taken in again before the second, for ever.
Drop ==
  /\ Policy = "drop" /\ Over /\ Needing # {}
  /\ floor' = Raised
  \* planted: the floor first
  /\ members' = IF Bug = "leftOutLate" THEN members ELSE members \ Needing
  /\ view' = [c \in Cells |-> IF c \in Needing THEN Unknown ELSE view[c]]
  /\ UNCHANGED <<produced, held, begun, trim, old, promise, collected, answered, consumer, budget>>

Away(c) ==
  /\ c \in members \ {"src"} /\ budget.away > 0
  /\ Spend("away")
  /\ members' = members \ {c}
  /\ view' = [view EXCEPT ![c] = Unknown]
  /\ UNCHANGED <<produced, held, floor, begun, trim, old, promise, collected, answered, consumer>>

\* What the floor gave it is no getting on.  Where no closed file is left, the code takes in
\* at once only who had been silent; who had answered waits for the next file to be closed,
\* which here, where files come to an end, would be for ever.
GetsOn(c) == Done(c) > treeFloor \/ Done(c) = produced + 1

\* From now on it is waited for.  Its floor may still be its own: what it was told is late.
TakeIn(c) ==
  /\ c \in Others \ members
  \* planted: it is never seen to get on
  /\ GetsOn(c) /\ Bug # "keptOut"
  /\ members' = members \cup {c}
  /\ promise' = [promise EXCEPT ![c] = treeFloor]
  \* planted: it counts as having what there is
  /\ view' = [view EXCEPT ![c] = IF Bug = "takenInAsDone" THEN produced + 1 ELSE Done(c)]
  /\ UNCHANGED <<produced, held, floor, begun, trim, old, collected, answered, consumer, budget>>

(***************************************************************************)
(* Collecting in a cell                                                    *)
(***************************************************************************)
\* What it is told of the tree's floor may be late, so it may be any that was: also when
\* it is no member any more.
RaiseFloor(c) ==
  /\ c # "src" /\ floor[c] < treeFloor
  \* planted: a cell that is left out is not told
  /\ Bug = "neverTold" => c \in members
  /\ Bug = "deleteFirst" => \A f \in held[c] : f > floor[c]
  /\ floor' = [floor EXCEPT ![c] = @ + 1]
  /\ UNCHANGED <<produced, held, begun, members, trim, old, view, promise, collected, answered,
                 consumer, budget>>

Delete(c, f) ==
  /\ f \in held[c]
  /\ f < (IF Bug = "deleteFirst" THEN treeFloor ELSE floor[c])
  /\ held' = [held EXCEPT ![c] = @ \ {f}]
  /\ collected' = [collected EXCEPT ![c] = @ \cup {f}]
  /\ UNCHANGED <<produced, durable, begun, old, view, promise, answered, consumer, budget>>

(***************************************************************************)
(* Crashes                                                                 *)
(***************************************************************************)
Crash(c) ==
  /\ budget.crashes > 0
  /\ Spend("crashes")
  /\ IF c = "src"
       THEN /\ view' = [d \in Cells |-> Unknown]
            /\ trim' = IF Bug = "trimInMemory" THEN 1 ELSE trim
            /\ UNCHANGED begun
       ELSE /\ begun' = [begun EXCEPT ![c] = {}]
            /\ UNCHANGED <<view, trim>>
  /\ UNCHANGED <<produced, held, floor, members, old, promise, collected, answered, consumer>>

(***************************************************************************)
(* The leaf's consumer                                                     *)
(***************************************************************************)
Read ==
  /\ ~missed /\ pos \in held["leaf"]
  /\ pos' = pos + 1
  /\ UNCHANGED <<produced, held, durable, begun, old, view, promise, collected, answered, missed,
                 skipped, budget>>

Miss ==
  /\ ~missed /\ pos \in Files /\ pos \notin held["leaf"]
  /\ missed' = TRUE
  /\ UNCHANGED <<produced, held, durable, begun, old, view, promise, collected, answered, pos,
                 skipped, budget>>

\* Where the consumer goes on: OutOfRange names the floor; else it waits for the file.
NextPos ==
  LET later == {f \in held["leaf"] : f > pos} IN
  CASE pos < floor["leaf"]                     -> floor["leaf"]
    [] Bug = "silentJump" /\ later # {}        -> SetMin(later)
    [] OTHER                                   -> pos

AskFloor ==
  /\ missed
  /\ missed' = FALSE
  /\ pos' = NextPos
  /\ skipped' = skipped \cup (pos .. NextPos - 1)
  /\ UNCHANGED <<produced, held, durable, begun, old, view, promise, collected, answered, budget>>

Init ==
  /\ produced = 0
  /\ held = [c \in Cells |-> {}]
  /\ floor = [c \in Cells |-> 1]
  /\ begun = [c \in Cells |-> {}]
  /\ members = Cells
  /\ trim = 1 /\ old = 1 /\ answered = 1
  /\ view = [c \in Cells |-> Unknown]
  /\ promise = [c \in Cells |-> 1]
  /\ collected = [c \in Cells |-> {}]
  /\ pos = 1 /\ missed = FALSE /\ skipped = {}
  /\ budget = [crashes |-> MaxCrashes, twice |-> MaxTwice, away |-> MaxAway, trims |-> MaxTrims]

CellStep(c) ==
  \/ Hear(c) \/ RaiseFloor(c) \/ Away(c) \/ TakeIn(c)
  \/ \E f \in Files : \/ c # "src" /\ (Begin(c, f) \/ Create(c, f, TRUE) \/ Create(c, f, FALSE))
                      \/ Delete(c, f)

Next ==
  \/ Produce \/ Grow \/ RaiseTreeFloor \/ Drop
  \/ \E n \in Files : Trim(n)
  \/ Read \/ Miss \/ AskFloor
  \/ \E c \in Cells : CellStep(c) \/ Crash(c)

Safe == Init /\ [][Next]_vars

Live ==
  /\ Safe
  /\ WF_vars(Produce) /\ WF_vars(Grow) /\ WF_vars(RaiseTreeFloor) /\ WF_vars(Drop)
  /\ WF_vars(Miss) /\ WF_vars(AskFloor) /\ SF_vars(Read)
  /\ \A c \in Cells :
       /\ WF_vars(Hear(c)) /\ WF_vars(RaiseFloor(c)) /\ WF_vars(TakeIn(c))
       /\ \A f \in Files :
            /\ WF_vars(Delete(c, f))
            /\ c # "src" => WF_vars(Begin(c, f)) /\ WF_vars(Create(c, f, FALSE))

(***************************************************************************)
(* Properties                                                              *)
(***************************************************************************)
TypeOK ==
  /\ produced \in 0 .. NumFiles
  /\ \A c \in Cells : held[c] \subseteq Files /\ begun[c] \subseteq Files
  /\ \A c \in Cells : floor[c] \in 1 .. NumFiles + 1
  /\ "src" \in members

\* Whatever a member lacks and was promised, the source has.  (A parent that has it no
\* more, but is a member, has it at or above its own floor, see FloorFirst and the next one.)
NothingNeededLost ==
  \A c \in members \ {"src"}, f \in Files :
    f <= produced /\ Max(floor[c], promise[c]) <= f /\ f \notin held[c] => f \in held["src"]

\* No cell collects what the source keeps.
TreesFloor == \A c \in Cells : floor[c] <= treeFloor

\* What a cell has collected it does not get again: no copying and collecting for ever.
\* More than that, it creates nothing below its floor.
CollectedOnce == \A c \in Cells : held[c] \cap collected[c] = {}

NothingBelowFloor == [][\A c \in Cells : \A f \in held'[c] \ held[c] : floor[c] <= f]_held

\* The consumer misses only what the cell's floor says is gone.
NoSilentJump == \A f \in skipped : f < floor["leaf"]

\* A cell never deletes what is at or above its floor.
FloorFirst == \A c \in Cells : \A f \in collected[c] : f < floor[c]

\* The disk is bounded: Keep, and the file that was being written.
Bounded == produced + 1 - treeFloor <= Keep + 1

\* A member loses something only by having been left out.
OnlyLeftOut == \A c \in members : promise[c] = 1 \/ budget.away < MaxAway \/ Policy = "drop"

\* Who was left out is waited for again.
Rejoins == <>[](members = Cells)
\* The consumer comes to the end of the shard; what is wanted away goes, everywhere.
Arrives == <>[](pos = NumFiles + 1)
Freed   == <>[](\A c \in Cells : \A f \in held[c] : ~WantedAway(f) /\ f >= treeFloor)
Trimmed == \A n \in Files : answered >= n ~> treeFloor >= n
=============================================================================
