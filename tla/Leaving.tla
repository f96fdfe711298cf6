------------------------------ MODULE Leaving ------------------------------
(***************************************************************************)
(* A cell leaves the copy tree of a stream, gives its disk back, and may   *)
(* be in the tree again, before, while or after its files go.              *)
(*                                                                         *)
(* The source "src" feeds "leaf", over "mid" in every other tree: trees    *)
(* are versions 0, 1, 2, ..., and the even ones have mid.  There is one    *)
(* closed message file.  Rules:                                            *)
(*                                                                         *)
(*   - The source alone decides, and what it decided is durable, under its *)
(*     registry's fence, before anybody is told: mid is a leaver, then its *)
(*     copies are going, until they are gone.                              *)
(*   - They go only while neither the tree nor an open change, with all    *)
(*     that it comes from, names mid; and no tree names mid as long as     *)
(*     they are going.                                                     *)
(*   - Before that the source looks at what mid has: all of it must be in  *)
(*     the source, too.                                                    *)
(*   - Each leaving has an order number.  Orders may be late and come      *)
(*     twice; mid carries out none that is not above its last one, and     *)
(*     none while a tree that it knows names it.                           *)
(*   - mid's scheduler finds out which file has the name, makes sure that  *)
(*     it has not been replaced, and deletes this very file.  It may be    *)
(*     stopped between any two of these, and have a successor.             *)
(*   - What mid says of its files counts for the tree for which it was     *)
(*     asked, and mid says nothing before it has heard of that tree, nor   *)
(*     while its files go.                                                 *)
(*   - Somebody slow may make a file in mid when all are gone: mid, which  *)
(*     is in no tree and finds one, asks the source to be a leaver.        *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
  MaxTrees,    \* changes of the tree
  MaxCrashes,  \* schedulers of mid, and of src, that are replaced
  MaxSlow,     \* files that somebody slow makes in mid
  MaxLost,     \* how often the source's file is removed by hand
  Bug          \* "none", or the name of a planted bug

ASSUME Bug \in {"none", "openChangeIgnored", "rejoinsWhileGoing", "lastCopyGoes", "toldFirst",
                "orderTwice", "deletedByName", "notConfirmed", "answerOfBefore", "gapUnseen"}

VARIABLES
  ver,      \* durable at the source: the tree
  base,     \* and the one that was carried out last; ver: no change is open
  leaver,   \* and "no", "left" or "going"
  order,    \* and the number of the last leaving
  compared, \* the source's scheduler has looked; lost when it is replaced
  orders,   \* messages of it: [order, ver]; any may be late, and come again
  srcHas,   \* the source has the file
  copy,     \* which file mid has: 0 none, else a number that no other one has
  files,    \* the last such number
  midVer,   \* durable in mid: the newest tree that it has heard of
  dropped,  \* and [order, going]: the last order that it has taken
  inc,      \* mid's scheduler; those before may run still
  picked,   \* scheduler of mid -> the file that it is about to delete, or 0
  sure,     \* scheduler of mid -> it knew after that that it was not replaced
  gone,     \* answers of mid: orders that are carried out
  leafVer,  \* over the path of which tree leaf is fed
  answers,  \* of mid, to the question what it has: [ver, has]
  believed, \* the source takes mid for having the file: nobody copies it again
  budget

vars == <<ver, base, leaver, order, compared, orders, srcHas, copy, files, midVer, dropped, inc,
          picked, sure, gone, leafVer, answers, believed, budget>>
source == <<ver, base, leaver, order, compared, orders>>
middle == <<midVer, dropped, inc, picked, sure, gone>>
disk == <<srcHas, copy, files>>
talk == <<answers, believed>>

Schedulers == 1 .. MaxCrashes + 1
HasMid(v) == v % 2 = 0
Changing == base # ver
\* By the tree, or by any that the open change comes from.
Named == HasMid(ver) \/ (Bug # "openChangeIgnored" /\ \E v \in base .. ver : HasMid(v))
Max(a, b) == IF a < b THEN b ELSE a
Spend(what) == budget' = [budget EXCEPT ![what] = @ - 1]

(***************************************************************************)
(* The source                                                              *)
(***************************************************************************)
Reroute ==
  /\ ver < MaxTrees
  /\ HasMid(ver + 1) => leaver # "going" \/ Bug = "rejoinsWhileGoing"
  /\ ver' = ver + 1
  /\ base' = base
  /\ leaver' = IF HasMid(ver + 1) THEN "no" ELSE IF leaver = "no" THEN "left" ELSE leaver
  /\ order' = IF ~HasMid(ver + 1) /\ leaver = "no" THEN order + 1 ELSE order
  /\ compared' = FALSE
  /\ believed' = (believed /\ Bug = "answerOfBefore")
  /\ UNCHANGED <<orders, disk, middle, leafVer, answers, budget>>

LeafSettles ==
  /\ leafVer < ver /\ leafVer' = ver
  /\ UNCHANGED <<source, disk, middle, talk, budget>>

EndChange ==
  /\ Changing /\ leafVer = ver /\ (HasMid(ver) => midVer = ver /\ believed)
  /\ base' = ver
  /\ UNCHANGED <<ver, leaver, order, compared, orders, disk, middle, leafVer, talk, budget>>

\* What mid has is read first, and then what the source has; mid has heard of the tree.
Compare ==
  /\ leaver = "left" /\ ~Named /\ ~compared /\ midVer = ver
  /\ copy = 0 \/ srcHas \/ Bug = "lastCopyGoes"
  /\ compared' = TRUE
  /\ UNCHANGED <<ver, base, leaver, order, orders, disk, middle, leafVer, talk, budget>>

Go ==
  /\ leaver = "left" /\ compared /\ ~Named
  /\ leaver' = "going"
  /\ UNCHANGED <<ver, base, order, compared, orders, disk, middle, leafVer, talk, budget>>

Order ==
  /\ leaver = "going" \/ (Bug = "toldFirst" /\ leaver = "left" /\ compared)
  /\ [order |-> order, ver |-> ver] \notin orders
  /\ orders' = orders \cup {[order |-> order, ver |-> ver]}
  /\ UNCHANGED <<ver, base, leaver, order, compared, disk, middle, leafVer, talk, budget>>

Gone ==
  /\ leaver = "going" /\ order \in gone
  /\ leaver' = "no"
  /\ UNCHANGED <<ver, base, order, compared, orders, disk, middle, leafVer, talk, budget>>

SourceReplaced ==
  /\ budget.crashes > 0 /\ compared
  /\ Spend("crashes")
  /\ compared' = FALSE
  /\ UNCHANGED <<ver, base, leaver, order, orders, disk, middle, leafVer, talk>>

\* By hand, beside all rules; not between the look and the deletion, which nobody can see.
Lose ==
  /\ budget.lost > 0 /\ srcHas /\ copy # 0 /\ ~compared /\ leaver # "going"
  /\ Spend("lost")
  /\ srcHas' = FALSE
  /\ UNCHANGED <<source, copy, files, middle, leafVer, talk>>

(***************************************************************************)
(* mid                                                                     *)
(***************************************************************************)
\* The source or a parent tells it the tree.
Install ==
  /\ midVer < ver
  /\ ~(HasMid(ver) /\ dropped.going) \/ Bug = "rejoinsWhileGoing"
  /\ midVer' = ver
  /\ UNCHANGED <<source, disk, dropped, inc, picked, sure, gone, leafVer, talk, budget>>

TakeOrder ==
  \E o \in orders :
    /\ o.order > dropped.order \/ (Bug = "orderTwice" /\ o.order = dropped.order /\ ~dropped.going)
    /\ ~HasMid(Max(midVer, o.ver))
    /\ midVer' = Max(midVer, o.ver)
    /\ dropped' = [order |-> o.order, going |-> TRUE]
    /\ UNCHANGED <<source, disk, inc, picked, sure, gone, leafVer, talk, budget>>

\* Which file has the name?  One that was replaced does not know it, nor what came after it.
Pick(s) ==
  /\ (s = inc /\ dropped.going) \/ s < inc
  /\ copy # 0 /\ picked[s] = 0
  /\ picked' = [picked EXCEPT ![s] = copy]
  /\ sure' = [sure EXCEPT ![s] = FALSE]
  /\ UNCHANGED <<source, disk, midVer, dropped, inc, gone, leafVer, talk, budget>>

\* A write to mid's registry: a scheduler that was replaced can't.
Confirm ==
  /\ picked[inc] # 0 /\ ~sure[inc]
  /\ sure' = [sure EXCEPT ![inc] = TRUE]
  /\ UNCHANGED <<source, disk, midVer, dropped, inc, picked, gone, leafVer, talk, budget>>

Delete(s) ==
  /\ picked[s] # 0 /\ (sure[s] \/ Bug = "notConfirmed")
  /\ copy' = IF copy = picked[s] \/ Bug = "deletedByName" THEN 0 ELSE copy
  /\ picked' = [picked EXCEPT ![s] = 0]
  /\ UNCHANGED <<source, srcHas, files, midVer, dropped, inc, sure, gone, leafVer, talk, budget>>

AllGone ==
  /\ dropped.going /\ copy = 0 /\ picked[inc] = 0
  /\ dropped' = [dropped EXCEPT !.going = FALSE]
  /\ gone' = gone \cup {dropped.order}
  /\ UNCHANGED <<source, disk, midVer, inc, picked, sure, leafVer, talk, budget>>

MidReplaced ==
  /\ budget.crashes > 0 /\ inc <= MaxCrashes
  /\ Spend("crashes")
  /\ inc' = inc + 1
  /\ UNCHANGED <<source, disk, midVer, dropped, picked, sure, gone, leafVer, talk>>

\* Over the tree's edge, whether mid's scheduler has heard of it or not; or by somebody slow.
Copy ==
  /\ copy = 0 /\ srcHas
  /\ \/ HasMid(ver) /\ ~believed /\ UNCHANGED budget
     \/ budget.slow > 0 /\ Spend("slow")
  /\ files' = files + 1
  /\ copy' = files + 1
  /\ UNCHANGED <<source, srcHas, middle, leafVer, talk>>

AskToLeave ==
  /\ copy # 0 /\ ~HasMid(midVer) /\ ~dropped.going /\ Bug # "gapUnseen"
  /\ leaver = "no" /\ ~Named
  /\ leaver' = "left" /\ order' = order + 1 /\ compared' = FALSE
  /\ UNCHANGED <<ver, base, orders, disk, middle, leafVer, talk, budget>>

Answer ==
  /\ HasMid(ver)
  /\ (midVer >= ver /\ ~dropped.going) \/ Bug = "answerOfBefore"
  /\ answers' = answers \cup {[ver |-> ver, has |-> copy # 0]}
  /\ UNCHANGED <<source, disk, middle, leafVer, believed, budget>>

Believe ==
  /\ HasMid(ver)
  /\ \E a \in answers : a.has /\ (a.ver = ver \/ Bug = "answerOfBefore")
  /\ believed' = TRUE
  /\ UNCHANGED <<source, disk, middle, leafVer, answers, budget>>

Init ==
  /\ ver = 0 /\ base = 0 /\ leaver = "no" /\ order = 0 /\ compared = FALSE /\ orders = {}
  /\ srcHas = TRUE /\ copy = 1 /\ files = 1
  /\ midVer = 0 /\ dropped = [order |-> 0, going |-> FALSE] /\ inc = 1
  /\ picked = [s \in Schedulers |-> 0] /\ sure = [s \in Schedulers |-> FALSE] /\ gone = {}
  /\ leafVer = 0 /\ answers = {} /\ believed = TRUE
  /\ budget = [crashes |-> MaxCrashes, slow |-> MaxSlow, lost |-> MaxLost]

Next ==
  \/ Reroute \/ LeafSettles \/ EndChange \/ Compare \/ Go \/ Order \/ Gone \/ SourceReplaced \/ Lose
  \/ Install \/ TakeOrder \/ Confirm \/ AllGone \/ MidReplaced \/ Copy \/ AskToLeave
  \/ Answer \/ Believe
  \/ \E s \in Schedulers : Pick(s) \/ Delete(s)

Safe == Init /\ [][Next]_vars

Live ==
  /\ Safe
  /\ WF_vars(LeafSettles) /\ WF_vars(EndChange) /\ WF_vars(Compare) /\ WF_vars(Go)
  /\ WF_vars(Order) /\ WF_vars(Gone) /\ WF_vars(Install) /\ WF_vars(TakeOrder)
  /\ WF_vars(Confirm) /\ WF_vars(AllGone) /\ WF_vars(Copy) /\ WF_vars(AskToLeave)
  /\ WF_vars(Answer) /\ WF_vars(Believe) /\ \A s \in Schedulers : WF_vars(Pick(s)) /\ WF_vars(Delete(s))

(***************************************************************************)
(* Properties                                                              *)
(***************************************************************************)
TypeOK ==
  /\ base <= ver /\ midVer <= ver /\ leafVer <= ver
  /\ leaver \in {"no", "left", "going"} /\ copy <= files
  /\ \A s \in Schedulers : picked[s] <= files

\* No file goes from a cell that a tree or an open change names.
NeededStays ==
  [][copy # 0 /\ copy' = 0 => \A v \in base .. ver : ~HasMid(v)]_copy

\* Nor while the source lacks it.
LastCopyStays == [][copy # 0 /\ copy' = 0 => srcHas]_copy

\* What counts as copied is there.
BelievedIsThere == HasMid(ver) /\ believed => copy # 0

\* A cell of the tree has the file in the end, and one that is in none gives its disk back.
Ends ==
  /\ <>[](HasMid(ver) /\ srcHas => copy # 0)
  /\ <>[](~HasMid(ver) /\ srcHas => copy = 0)
=============================================================================
