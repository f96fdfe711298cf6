------------------------------ MODULE Retention ------------------------------
(***************************************************************************)
(* What a shard's cells may delete, what they may create, and what a       *)
(* consumer is told about positions that are gone.                         *)
(*                                                                         *)
(* The shard's message files are 1, 2, ...; a position is a file number.   *)
(* The source "src" feeds "mid", and "mid" feeds "leaf".  Rules:           *)
(*                                                                         *)
(*   - Each cell keeps a durable floor.  It raises the floor first and     *)
(*     deletes files below it afterwards, and creates nothing below it.    *)
(*   - Each cell keeps a durable progress record: the first file that it   *)
(*     does not have completely.                                           *)
(*   - The source keeps the list of the tree's cells and the tree's floor  *)
(*     in one record.  It raises the tree's floor up to the minimum of the *)
(*     progress records that it has heard of; what it has not heard of is  *)
(*     needed.  A cell that joins is added and gets the tree's floor as    *)
(*     its own in one step.                                                *)
(*   - Every cell raises its floor at most to the tree's floor that it has *)
(*     heard of.  Any cell may become any other's parent (see Reroute), so *)
(*     it does not matter whose child a cell is.                           *)
(*   - A consumer whose file is missing asks for the cell's floor after it *)
(*     has looked for the file.  Below the floor it gets OutOfRange with   *)
(*     the floor as the first available position; else it waits.           *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
  NumFiles,    \* files of the shard
  MaxCrashes,  \* crashes of cells
  MaxTwice,    \* how often two operations copy one file at once
  MaxJoins,    \* how often the leaf leaves the tree and joins again
  Bug          \* "none", or the name of a planted bug

Cells == {"src", "mid", "leaf"}
Files == 1 .. NumFiles
Unknown == 0                \* a progress record that the source has not heard of

ParentOf(c) == IF c = "leaf" THEN "mid" ELSE "src"

ASSUME Bug \in {"none", "unknownIsDone", "deleteFirst", "noFloorAtCreate", "floorAtStart",
                "progressFirst", "floorBeforeJoin", "silentJump"}

VARIABLES
  produced,    \* number of files that the source has sealed
  held,        \* cell -> complete files that it has
  floor,       \* cell -> durable: nothing below it is created
  progress,    \* cell -> durable: everything before it was copied or is not wanted
  begun,       \* cell -> files whose copy is under way; lost in a crash
  members,     \* durable at the source: the cells of the tree
  treeFloor,   \* durable at the source, in the same record
  view,        \* the source's knowledge of the progress records; lost in a crash
  heard,       \* cell -> the tree's floor as the cell has heard of it
  collected,   \* ghost: cell -> files that it has deleted
  pos,         \* the leaf's consumer: the next file to read
  missed,      \* it has looked for the file and not found it
  skipped,     \* ghost: files that it did not get, told by OutOfRange or not
  joinFloor,   \* planted bug only: the floor that the leaf read before it joined
  budget       \* what may still happen: [crashes, joins, twice]

vars == <<produced, held, floor, progress, begun, members, treeFloor, view, heard, collected,
          pos, missed, skipped, joinFloor, budget>>

SetMin(s) == CHOOSE m \in s : \A n \in s : m <= n
Max(a, b) == IF a < b THEN b ELSE a

(***************************************************************************)
(* Producing and copying                                                   *)
(***************************************************************************)
Produce ==
  /\ produced < NumFiles
  /\ produced' = produced + 1
  /\ held' = [held EXCEPT !["src"] = @ \cup {produced + 1}]
  /\ UNCHANGED <<floor, progress, begun, members, treeFloor, view, heard, collected, pos,
                 missed, skipped, joinFloor, budget>>

MayCreate(c, f) == Bug # "noFloorAtCreate" => floor[c] <= f

Begin(c, f) ==
  /\ c # "src" /\ c \in members
  /\ f \in held[ParentOf(c)] /\ f \notin held[c] /\ f \notin begun[c]
  /\ MayCreate(c, f)
  /\ begun' = [begun EXCEPT ![c] = @ \cup {f}]
  /\ UNCHANGED <<produced, held, floor, progress, members, treeFloor, view, heard, collected,
                 pos, missed, skipped, joinFloor, budget>>

\* The copy becomes durable.  The floor may have passed the file since it was begun, so
\* it is asked for again, in one step with the creation of the name.
\* Another operation may copy the same file and end later.
Create(c, f, another) ==
  /\ f \in begun[c]
  /\ another => budget.twice > 0
  /\ begun' = IF another THEN begun ELSE [begun EXCEPT ![c] = @ \ {f}]
  /\ budget' = IF another THEN [budget EXCEPT !.twice = @ - 1] ELSE budget
  /\ held' = IF Bug = "floorAtStart" \/ MayCreate(c, f)
               THEN [held EXCEPT ![c] = @ \cup {f}] ELSE held
  /\ UNCHANGED <<produced, floor, progress, members, treeFloor, view, heard, collected, pos,
                 missed, skipped, joinFloor>>

\* The first file from the cell's floor on that the cell lacks.
FirstLacking(c) ==
  LET has == held[c] \cup (IF Bug = "progressFirst" THEN begun[c] ELSE {})
  IN SetMin({f \in 1 .. NumFiles + 1 : f >= progress[c] /\ f >= floor[c] /\ f \notin has})

RecordProgress(c) ==
  /\ c # "src"
  /\ progress[c] < FirstLacking(c)
  /\ progress' = [progress EXCEPT ![c] = FirstLacking(c)]
  /\ UNCHANGED <<produced, held, floor, begun, members, treeFloor, view, heard, collected, pos,
                 missed, skipped, joinFloor, budget>>

(***************************************************************************)
(* The tree's floor                                                        *)
(***************************************************************************)
Hear(c) ==
  /\ c \in members /\ c # "src" /\ view[c] # progress[c]
  /\ view' = [view EXCEPT ![c] = progress[c]]
  /\ UNCHANGED <<produced, held, floor, progress, begun, members, treeFloor, heard, collected,
                 pos, missed, skipped, joinFloor, budget>>

Needed(c, f) == IF view[c] = Unknown THEN Bug # "unknownIsDone" ELSE view[c] <= f

\* Retention by time or size wants the next file away, and nobody needs it any more.
RaiseTreeFloor ==
  /\ treeFloor <= produced
  /\ \A c \in members \ {"src"} : ~Needed(c, treeFloor)
  /\ treeFloor' = treeFloor + 1
  /\ UNCHANGED <<produced, held, floor, progress, begun, members, view, heard, collected, pos,
                 missed, skipped, joinFloor, budget>>

Announce(c) ==
  /\ c \in members /\ heard[c] < treeFloor
  /\ heard' = [heard EXCEPT ![c] = treeFloor]
  /\ UNCHANGED <<produced, held, floor, progress, begun, members, treeFloor, view, collected,
                 pos, missed, skipped, joinFloor, budget>>

(***************************************************************************)
(* Collecting in a cell                                                    *)
(***************************************************************************)
RaiseFloor(c) ==
  /\ floor[c] < heard[c]
  /\ Bug = "deleteFirst" => \A f \in held[c] : f > floor[c]
  /\ floor' = [floor EXCEPT ![c] = @ + 1]
  /\ UNCHANGED <<produced, held, progress, begun, members, treeFloor, view, heard, collected,
                 pos, missed, skipped, joinFloor, budget>>

Delete(c, f) ==
  /\ f \in held[c]
  /\ f < (IF Bug = "deleteFirst" THEN heard[c] ELSE floor[c])
  /\ held' = [held EXCEPT ![c] = @ \ {f}]
  /\ collected' = [collected EXCEPT ![c] = @ \cup {f}]
  /\ UNCHANGED <<produced, floor, progress, begun, members, treeFloor, view, heard, pos, missed,
                 skipped, joinFloor, budget>>

(***************************************************************************)
(* Crashes, leaving and joining                                            *)
(***************************************************************************)
Crash(c) ==
  /\ budget.crashes > 0
  /\ budget' = [budget EXCEPT !.crashes = @ - 1]
  /\ IF c = "src"
       THEN /\ view' = [d \in Cells |-> Unknown]
            /\ UNCHANGED <<begun, heard>>
       ELSE /\ begun' = [begun EXCEPT ![c] = {}]
            /\ heard' = [heard EXCEPT ![c] = floor[c]]
            /\ UNCHANGED view
  /\ UNCHANGED <<produced, held, floor, progress, members, treeFloor, collected, pos, missed,
                 skipped, joinFloor>>

\* Operations of a cell that has left run on as orphans.
Leave ==
  /\ "leaf" \in members /\ budget.joins > 0
  /\ budget' = [budget EXCEPT !.joins = @ - 1]
  /\ members' = members \ {"leaf"}
  /\ view' = [view EXCEPT !["leaf"] = Unknown]
  /\ joinFloor' = IF Bug = "floorBeforeJoin" THEN treeFloor ELSE joinFloor
  /\ UNCHANGED <<produced, held, floor, progress, begun, treeFloor, heard, collected, pos,
                 missed, skipped>>

Join ==
  /\ "leaf" \notin members
  /\ members' = members \cup {"leaf"}
  /\ LET at == Max(floor["leaf"], IF Bug = "floorBeforeJoin" THEN joinFloor ELSE treeFloor)
     IN /\ floor' = [floor EXCEPT !["leaf"] = at]
        /\ heard' = [heard EXCEPT !["leaf"] = Max(@, at)]
        /\ progress' = [progress EXCEPT !["leaf"] = Max(@, at)]
  /\ UNCHANGED <<produced, held, begun, treeFloor, view, collected, pos, missed, skipped,
                 joinFloor, budget>>

(***************************************************************************)
(* The leaf's consumer                                                     *)
(***************************************************************************)
Read ==
  /\ ~missed /\ pos \in held["leaf"]
  /\ pos' = pos + 1
  /\ UNCHANGED <<produced, held, floor, progress, begun, members, treeFloor, view, heard,
                 collected, missed, skipped, joinFloor, budget>>

Miss ==
  /\ ~missed /\ pos \in Files /\ pos \notin held["leaf"]
  /\ missed' = TRUE
  /\ UNCHANGED <<produced, held, floor, progress, begun, members, treeFloor, view, heard,
                 collected, pos, skipped, joinFloor, budget>>

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
  /\ UNCHANGED <<produced, held, floor, progress, begun, members, treeFloor, view, heard,
                 collected, joinFloor, budget>>

Init ==
  /\ produced = 0
  /\ held = [c \in Cells |-> {}]
  /\ floor = [c \in Cells |-> 1]
  /\ progress = [c \in Cells |-> 1]
  /\ begun = [c \in Cells |-> {}]
  /\ members = Cells
  /\ treeFloor = 1
  /\ view = [c \in Cells |-> Unknown]
  /\ heard = [c \in Cells |-> 1]
  /\ collected = [c \in Cells |-> {}]
  /\ pos = 1 /\ missed = FALSE /\ skipped = {}
  /\ joinFloor = 1
  /\ budget = [crashes |-> MaxCrashes, joins |-> MaxJoins, twice |-> MaxTwice]

CellStep(c) ==
  \/ RecordProgress(c) \/ Hear(c) \/ Announce(c) \/ RaiseFloor(c)
  \/ \E f \in Files : Begin(c, f) \/ Create(c, f, TRUE) \/ Create(c, f, FALSE) \/ Delete(c, f)

Next ==
  \/ Produce \/ RaiseTreeFloor \/ Leave \/ Join
  \/ Read \/ Miss \/ AskFloor
  \/ \E c \in Cells : CellStep(c) \/ Crash(c)

Safe == Init /\ [][Next]_vars

Live ==
  /\ Safe
  /\ WF_vars(Produce) /\ WF_vars(RaiseTreeFloor) /\ WF_vars(Join)
  /\ WF_vars(Miss) /\ WF_vars(AskFloor) /\ SF_vars(Read)
  /\ \A c \in Cells :
       /\ WF_vars(RecordProgress(c)) /\ WF_vars(Hear(c)) /\ WF_vars(Announce(c))
       /\ WF_vars(RaiseFloor(c))
       /\ \A f \in Files : WF_vars(Begin(c, f)) /\ WF_vars(Create(c, f, FALSE)) /\ WF_vars(Delete(c, f))

(***************************************************************************)
(* Properties                                                              *)
(***************************************************************************)
TypeOK ==
  /\ produced \in 0 .. NumFiles
  /\ \A c \in Cells : held[c] \subseteq Files /\ begun[c] \subseteq Files
  /\ \A c \in Cells : floor[c] \in 1 .. NumFiles + 1 /\ progress[c] \in 1 .. NumFiles + 1

\* Whatever a cell of the tree lacks and wants, the source has, and so has the cell's
\* parent once the parent is past it.
NothingNeededLost ==
  \A c \in members \ {"src"}, f \in Files :
    f <= produced /\ Max(progress[c], floor[c]) <= f /\ f \notin held[c]
      => /\ f \in held["src"]
         /\ ParentOf(c) # "src" /\ f < progress[ParentOf(c)] => f \in held[ParentOf(c)]

\* A progress record never claims what the cell does not have (or has collected).
ProgressIsTrue ==
  \A c \in Cells \ {"src"}, f \in Files :
    floor[c] <= f /\ f < progress[c] => f \in held[c] \/ f \in collected[c]

\* What a cell has collected it does not get again: no copying and collecting for ever.
\* More than that, it creates nothing below its floor.
CollectedOnce == \A c \in Cells : held[c] \cap collected[c] = {}

NothingBelowFloor == [][\A c \in Cells : \A f \in held'[c] \ held[c] : floor[c] <= f]_held

\* The consumer misses only what the cell's floor says is gone.
NoSilentJump == \A f \in skipped : f < floor["leaf"]

\* A cell never deletes what is at or above its floor.
FloorFirst == \A c \in Cells : \A f \in collected[c] : f < floor[c]

\* The consumer comes to the end of the shard, and everything is collected at last.
Arrives == <>[](pos = NumFiles + 1)
Freed   == <>[](\A c \in Cells : held[c] = {})
=============================================================================
